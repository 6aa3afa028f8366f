#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes `vmlinuz` and `initrd` in the current folder out of Debian's packages: its kernel, busybox, e2fsprogs
# and sqlite3, with `init.sh` as the first program. Nothing is installed; apt only downloads, into DEBS, once.
#
#   guest.sh DEBS
set -eu
debs=$1

if [ ! -d "$debs" ]; then
    # The kernel for clouds: fewer drivers, a quicker boot, ext4 built in.
    kernel=$(apt-cache depends --important linux-image-cloud-amd64 | sed -n 's/^ *Depends: *\(linux-image-[^ ]*\).*/\1/p')
    [ -n "$kernel" ] || { echo "apt knows no linux-image-cloud-amd64 (Debian has it): apt-get update" >&2; exit 1; }
    # Programs and, recursively, the libraries they need.
    packages=$(apt-cache depends --recurse --important busybox-static e2fsprogs sqlite3 | grep '^[a-z]')
    mkdir debs
    # shellcheck disable=SC2086 # words
    (cd debs && apt-get download -qq -o APT::Sandbox::User=root "$kernel" $packages)
    mv debs "$debs"
fi

mkdir -p tree root/bin root/usr/bin root/lib64 root/lib/modules root/dev root/proc root/sys root/mnt root/etc
for deb in "$debs"/*.deb; do
    dpkg-deb -x "$deb" tree
done
cp tree/boot/vmlinuz-* vmlinuz
find tree -path '*bin/busybox' -exec cp {} root/bin \;
# Apart from the links of busybox, which has an mke2fs of its own.
for program in sqlite3 mke2fs e2fsck; do
    find tree -path "*bin/$program" -exec cp -L {} root/usr/bin \;
done
# Where the loader looks for libraries without a cache of its own.
find tree -path '*lib/x86_64-linux-gnu/*.so*' ! -path '*/gconv/*' ! -path '*/audit/*' -exec cp -L {} root/lib \;
cp root/lib/ld-linux-x86-64.so.2 root/lib64
# In the order of their needs; newer Debians pack them.
for module in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk; do
    find tree -name "$module.ko*" -exec cp {} root/lib/modules \;
done
for packed in root/lib/modules/*.xz; do
    [ ! -e "$packed" ] || xz -d "$packed"
done
cp init.sh root/init && chmod +x root/init
ln -s /proc/mounts root/etc/mtab
(cd root && find . | ../root/bin/busybox cpio -o -H newc 2>/dev/null) >initrd
rm -rf tree root
