#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes `vmlinuz` and `initrd` in the current folder for `cargo x vm compare`: Debian's own kernel with its bcache, dm-cache and
# dm-writecache, and dm-writeboost built for it from Debian's package. Nothing is installed; apt only downloads, into KERNEL, once.
# The guest has fio and the rest from this machine's root, which it sees read-only.
#
#   kernel.sh KERNEL
set -eu
kernel=$1

# The package that a metapackage stands for.
real() { apt-cache depends --important "$1" | sed -n "s/^ *Depends: *\($2[^ ]*\).*/\1/p" | head -n 1; }

if [ ! -d "$kernel" ]; then
    image=$(real linux-image-amd64 linux-image-)
    [ -n "$image" ] || { echo "apt knows no linux-image-amd64 (Debian has it): apt-get update" >&2; exit 1; }
    headers=linux-headers-${image#linux-image-}
    mkdir debs
    (
        cd debs
        apt-get download -qq -o APT::Sandbox::User=root "$image" "$headers" \
            "$(real "$headers" linux-headers-)" "$(real "$headers" linux-kbuild-)" dm-writeboost-dkms
    )
    mkdir tree
    for deb in debs/*.deb; do
        dpkg-deb -x "$deb" tree
    done
    # Its paths are those of an installed package.
    sed -i "s,/usr/src,$PWD/tree/usr/src," "tree/usr/src/$headers/Makefile"
    release=${image#linux-image-}
    writeboost=$(echo tree/usr/src/dm-writeboost-*)
    make -s -C "tree/usr/src/$headers" M="$PWD/$writeboost" modules >make.log 2>&1 ||
        cat make.log
    cp "$writeboost/dm-writeboost.ko" "tree/lib/modules/$release/" || echo "dm-writeboost can't be built here" >&2
    rm -rf debs tree/usr
    busybox depmod -b tree "$release"
    mv tree "$kernel"
fi

find "$kernel" -name 'dm-writeboost.ko*' | grep -q . || echo "without dm-writeboost; to try again: rm -r $kernel" >&2
cp "$kernel"/boot/vmlinuz-* vmlinuz
mkdir -p root/bin root/lib/modules root/dev root/proc root/sys root/host
cp "$(command -v busybox)" root/bin/
for module in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci netfs fscache 9pnet 9pnet_virtio 9p; do
    find "$kernel/lib/modules" -name "$module.ko*" -exec cp {} root/lib/modules \;
done
# Newer Debians pack them.
for packed in root/lib/modules/*.xz; do
    [ ! -e "$packed" ] || xz -d "$packed"
done
cp peers.sh root/init && chmod +x root/init
cp job.fio root/
(cd root && find . | ./bin/busybox cpio -o -H newc 2>/dev/null) >initrd
rm -rf root
