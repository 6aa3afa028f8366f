#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes `vmlinuz` and `initrd` in the current folder for `cargo x vm ublk`: Debian's own kernel with its ublk driver, of the backports
# if the release's is older than 6.5. Nothing is installed, and the state of this machine's apt is not touched; apt only downloads,
# into KERNEL, once. The guest has fio, mke2fs and the program under test from this machine's root, which it sees read-only.
#
#   kernel.sh KERNEL
set -eu
kernel=$1

if [ ! -d "$kernel" ]; then
    codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
    mkdir -p apt/lists/partial apt/cache debs
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $codename-backports main
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $codename main" >apt/sources
    : >apt/status
    own="-o Dir::Etc::SourceList=$PWD/apt/sources -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists=$PWD/apt/lists
        -o Dir::State::status=$PWD/apt/status -o Dir::Cache=$PWD/apt/cache -o APT::Sandbox::User=root"
    # shellcheck disable=SC2086 # words
    apt-get $own update -qq
    # The release's own, if it is new enough, else that of its backports.
    # shellcheck disable=SC2086
    image=$(apt-cache $own show linux-image-amd64 | awk '/^Version:/ { v = $2 } /^Depends:/ { print v, $2 }' | sort -V |
        awk '{ split($1, v, "."); if (v[1] > 6 || (v[1] == 6 && v[2] >= 5)) { print $2; exit } }')
    [ -n "$image" ] || { echo "Debian has no linux-image-amd64 of 6.5 or later for $codename" >&2; exit 1; }
    # shellcheck disable=SC2086
    (cd debs && apt-get $own download -qq "$image")
    mkdir tree
    for deb in debs/*.deb; do
        dpkg-deb -x "$deb" tree
    done
    # Newer Debians have it all below /usr.
    [ -d tree/lib/modules ] || { mkdir -p tree/lib && mv tree/usr/lib/modules tree/lib/modules; }
    release=$(basename tree/lib/modules/*)
    find tree/lib/modules -name 'ublk_drv.ko*' | grep -q . || { echo "$image has no ublk_drv" >&2; exit 1; }
    # Modules that are not packed need no help from the guest's modprobe.
    find tree/lib/modules -name '*.ko.xz' -exec xz -d {} +
    busybox depmod -b tree "$release"
    rm -rf apt debs tree/usr
    mv tree "$kernel"
fi

cp "$kernel"/boot/vmlinuz-* vmlinuz
mkdir -p root/bin root/lib/modules root/dev root/proc root/sys root/host
cp "$(command -v busybox)" root/bin/
for module in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci netfs fscache 9pnet 9pnet_virtio 9p; do
    find "$kernel/lib/modules" -name "$module.ko" -exec cp {} root/lib/modules \;
done
cp guest.sh root/init && chmod +x root/init
(cd root && find . | ./bin/busybox cpio -o -H newc 2>/dev/null) >initrd
rm -rf root
