#!/bin/busybox sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# The guest's first program: makes a cache of the kernel's, runs fio's job on it, phase by phase, and reports to the second serial port
# what fio and the kernel counted. Kernel messages go to the first.
#
# From the kernel's command line: system=... phases=A,B disks=vda,vdb (the SSD and the HDD; one, if the cache is on the host) kernel=PATH (of
# its modules, on the host).
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
export PATH=/bin:/usr/sbin:/usr/bin:/sbin
exec </dev/null >/dev/ttyS1 2>&1

end() { echo "$*"; poweroff -f; }

for module in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci netfs fscache 9pnet 9pnet_virtio 9p; do
    [ ! -e "/lib/modules/$module.ko" ] || insmod "/lib/modules/$module.ko" || end "failed insmod $module"
done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro host /host || end "failed mount of the host's root"
for dir in dev proc sys; do mount -o bind /$dir /host/$dir || end "failed mount of $dir"; done
mount -t tmpfs tmp /host/run || end "failed mount of run"
ln -s "/host$kernel/lib/modules/$(uname -r)" "/lib/modules/$(uname -r)"
modprobe virtio_blk || end "failed modprobe virtio_blk"
# What libcrc32c asks the kernel for, without a dependency that modprobe could see; newer kernels have it built in.
modprobe crc32c_generic 2>/dev/null
disks=$(echo "$disks" | tr , ' ')
# The disks come some time after their driver.
for disk in $disks; do
    tries=0
    until [ -b "/dev/$disk" ]; do
        tries=$((tries + 1))
        [ $tries -lt 1000 ] || end "failed: no disk $disk"
        usleep 10000 # pacing: the kernel has no way to wait for a disk
    done
done
ssd=/dev/vda hdd=/dev/vdb

on_host() { chroot /host "$@"; }
sectors() { blockdev --getsz "$1"; }
# There is no udev to make the node.
table() { echo "$2" | on_host dmsetup create "$1" && on_host dmsetup mknodes "$1" || end "failed dmsetup create $1"; }

case $system in
ssd) volume=$ssd ;;
hdd) volume=$hdd ;;
flashfront) volume=/dev/vda ;;
bcache)
    modprobe bcache || end "failed modprobe bcache"
    on_host make-bcache --writeback -C $ssd -B $hdd >/dev/null || end "failed make-bcache"
    for disk in $ssd $hdd; do echo $disk >/sys/fs/bcache/register_quiet; done
    volume=/dev/bcache0
    tries=0
    until [ -b $volume ] && grep -q . /sys/block/bcache0/bcache/cache/cache_available_percent 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 1000 ] || end "failed: no bcache0"
        usleep 10000 # pacing: as above
    done
    # As the articles have it, and the model.
    echo 0 >/sys/block/bcache0/bcache/sequential_cutoff
    # Else it passes the SSD by whenever the emulated processor, not the SSD, makes that slow.
    for limit in /sys/fs/bcache/*-*/congested_*_threshold_us; do echo 0 >"$limit"; done
    ;;
dm-cache)
    modprobe dm-cache-smq && modprobe dm-cache || end "failed modprobe dm-cache"
    metadata=16384 # sectors
    table metadata "0 $metadata linear $ssd 0"
    table places "0 $(($(sectors $ssd) - metadata)) linear $ssd $metadata"
    dd if=/dev/zero of=/dev/mapper/metadata bs=4k count=1 2>/dev/null
    table volume "0 $(sectors $hdd) cache /dev/mapper/metadata /dev/mapper/places $hdd 128 1 writeback smq 0"
    volume=/dev/mapper/volume
    ;;
dm-writecache)
    modprobe dm-writecache || end "failed modprobe dm-writecache"
    table volume "0 $(sectors $hdd) writecache s $hdd $ssd 4096 0"
    volume=/dev/mapper/volume
    ;;
dm-writeboost)
    modprobe dm-writeboost || end "failed modprobe dm-writeboost"
    dd if=/dev/zero of=$ssd bs=4k count=1 2>/dev/null
    table volume "0 $(sectors $hdd) writeboost $hdd $ssd 4 writeback_threshold 70 read_cache_threshold 1"
    volume=/dev/mapper/volume
    ;;
*) end "failed: no system $system" ;;
esac

# What the kernel counted on a disk: reads, sectors read, writes, sectors written.
disks() {
    for disk in $disks; do
        awk -v disk="$disk" '$3 == disk { print "disk", disk, $4, $6, $8, $10 }' /proc/diskstats
    done
}

# Reads that the cache could answer and that it couldn't, as it counts them.
told() {
    status() { on_host dmsetup status volume; }
    case $system in
    bcache) cd /sys/block/bcache0/bcache/stats_total && echo "cache $(cat cache_hits) $(cat cache_misses)" && cd / ;;
    dm-cache) status | awk '{ print "cache", $8, $9 }' ;;
    dm-writecache) status | awk '{ print "cache", $9, $8 - $9 }' ;;
    # Sixteen counters, by write, hit, on buffer, whole block; on the buffer is a hit too.
    dm-writeboost) status | awk '{ print "cache", $16 + $18, $12 }' ;;
    esac
}

# Nothing is written to the host's root but here. fio isn't to wait as well.
sed "/^startdelay/d; s,^filename=.*,filename=$volume," /job.fio >/host/run/job.fio
for phase in $(echo "$phases" | tr , ' '); do
    disks
    told
    echo "begin $phase"
    on_host sh -c "cd /run && fio --minimal --section=$phase job.fio" >/fio 2>&1 || { cat /fio; end "failed fio in $phase"; }
    awk -F';' -v phase="$phase" '$1 == "3" { print "phase", phase, $6, $8, $9, $47, $49, $50 }' /fio
    disks
    # What a cache does meanwhile is not counted. bcache adds up its hits every 13.6 s (drivers/md/bcache/stats.c).
    sleep 20 # pacing: the job's startdelay
    told
    echo "done $phase"
done
end "down"
