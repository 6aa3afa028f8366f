#!/bin/busybox sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# The guest's first program: records a disk and a partition while fio and git use them, and compares. Reports to the second serial port
# "ok WHAT" for each thing that was so, or "failed WHAT". Kernel messages go to the first.
#
# From the kernel's command line: kernel=PATH (of its modules, on the host) program=PATH (on the host)
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
export PATH=/bin:/usr/sbin:/usr/bin:/sbin:/usr/local/bin
exec </dev/null >/dev/ttyS1 2>&1

end() { echo "$*"; [ ! -e $run/log ] || tail -n 20 $run/log; dmesg | tail -n 15; poweroff -f; }
ok() { echo "ok $*"; }
run=/host/run mnt=/host/run/mnt

for module in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci netfs fscache 9pnet 9pnet_virtio 9p; do
    [ ! -e "/lib/modules/$module.ko" ] || insmod "/lib/modules/$module.ko" || end "failed insmod $module"
done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro host /host || end "failed mount of the host's root"
for dir in dev proc sys; do mount -o bind /$dir /host/$dir || end "failed mount of $dir"; done
mount -t tmpfs tmp /host/run || end "failed mount of run"
ln -s "/host$kernel/lib/modules/$(uname -r)" "/lib/modules/$(uname -r)"
for module in virtio_blk ext4; do modprobe $module || end "failed modprobe $module"; done
modprobe crc32c_generic 2>/dev/null
mkdir $mnt

# until_so WHAT COMMAND...: waits for what the kernel or a program does in its own time.
until_so() {
    what=$1 tries=0
    shift
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 3000 ] || end "failed: not within 60 s: $what"
        usleep 20000 # pacing: a poll
    done
}
until_so "the disks" [ -b /dev/vdb ]
on_host() { chroot /host "$@"; }

# by WAY: the file systems of the kernel that are there, in the chroot that the program runs in.
by() {
    umount -l /host/sys/kernel/debug/tracing /host/sys/kernel/debug /host/sys/kernel/tracing 2>/dev/null
    for kind in "$@"; do
        point=/host/sys/kernel/tracing
        [ $kind = tracefs ] || point=/host/sys/kernel/debug
        mount -t $kind $kind $point || end "failed mount of $kind"
    done
}
# begin FILE DEVICE: records in the background, until requests are noted.
begin() {
    : >$run/log
    # Not by a function: $! is to be the recorder and no shell.
    chroot /host "$program" record "$2" --out "/run/$1" --json >$run/json 2>>$run/log &
    recorder=$!
    until_so "the recording begins" grep -q "recording .* into" $run/log
}
finish() { kill -TERM $recorder; wait $recorder || end "failed: the end of a recording"; }
said() { grep -o "\"$1\":[^,}]*" $run/json | head -n 1 | cut -d : -f 2 | tr -d '"'; }
# fio prints reads before writes.
did() { grep "\"$1\"" $run/fio | sed -n "${2}p" | grep -o '[0-9]*' | tail -n 1; }
fio_on() {
    on_host sh -c "cd /run && fio --name=mix --filename=$1 --rw=randrw --rwmixread=60 --bssplit=512/20:4k/60:64k/20 --size=16m --thread \
        --ioengine=libaio --direct=1 --iodepth=16 --randseed=7 --output-format=json" >$run/fio 2>&1 || { cat $run/fio; end "failed fio"; }
}
# as_fio WHAT: what was recorded is what fio has done.
as_fio() {
    recorded="$(said reads) $(said writes) $(said requests) $(said bytes_read) $(said bytes_written) $(said lost)"
    done="$(did total_ios 1) $(did total_ios 2) $(($(did total_ios 1) + $(did total_ios 2))) $(did io_bytes 1) $(did io_bytes 2) 0"
    [ "$recorded" = "$done" ] || end "failed: $1: recorded $recorded, fio has done $done"
    [ "$(did total_ios 1)" -gt 100 ] || end "failed: fio has done too little"
    ok "$1 ($(said way)): $(said requests) requests, $(said bytes_read) bytes read, $(said bytes_written) written, $(said lost) lost; file $(said file_bytes) bytes, processor $(said processor_seconds) of $(said seconds) s"
}

by
on_host "$program" record /dev/vda --out /run/none 2>$run/log && end "failed: recorded without debugfs and tracefs"
grep -q "mount -t tracefs" $run/log && grep -q "biosnoop" $run/log && [ ! -e $run/none ] || end "failed: what it says then"
ok "without the kernel's file systems it says what to run"

# One partition with 64 MiB in the middle.
printf 'n\np\n1\n131072\n+64M\nw\n' | fdisk /dev/vdb >/dev/null 2>&1
until_so "the partition" [ -b /dev/vdb1 ]
for kind in debugfs tracefs; do
    by $kind
    begin $kind /dev/vda
    fio_on /dev/vda
    finish
    as_fio "fio on a disk"
    on_host "$program" advise /run/$kind --cache-size 64MiB --json >$run/advice 2>>$run/log || end "failed: advise"
    grep -q "\"reads\":$(said reads)," $run/advice || end "failed: advise reads something else"

    begin $kind-partition /dev/vdb1
    fio_on /dev/vdb1
    finish
    as_fio "fio on a partition"

    # Killed, and recorded again.
    begin $kind-killed /dev/vda
    kill -9 $recorder
    wait $recorder
    begin $kind-again /dev/vda
    fio_on /dev/vda
    finish
    as_fio "after a kill -9"
    [ -z "$(ls /host/sys/kernel/tracing/instances 2>/dev/null)" ] || end "failed: an instance is left"
    ls $run/*.lock 2>/dev/null && end "failed: a lock is left"
done

# A trace of somebody else's: one that a killed recording has left, and no lock.
by debugfs tracefs
begin foreign /dev/vda
kill -9 $recorder
wait $recorder
rm $run/flashfront-record-*.lock
begin beside /dev/vda
fio_on /dev/vda
finish
[ "$(said way)" = tracefs ] || end "failed: by $(said way)"
as_fio "beside a trace of somebody else's"

# Advice on a device: it is recorded until the signal, and probed then.
: >$run/log
chroot /host "$program" advise /dev/vda --for 1h --out /run/advised --probe-for 500ms --cache-size 64MiB --json >$run/advice 2>>$run/log &
adviser=$!
until_so "the recording begins" grep -q "recording .* into" $run/log
fio_on /dev/vda
kill -TERM $adviser
wait $adviser || end "failed: advice on a device"
grep -q "\"reads\":$(did total_ios 1),\"writes\":$(did total_ios 2)," $run/advice || end "failed: the advice is on something else"
grep -q '"probe":{"model":"' $run/advice && [ -s $run/advised ] || end "failed: the device is not probed, or the recording is gone"
ok "advice on a device: $(grep -o '"probe":{"model":"[^,]*,"scale":[0-9.]*' $run/advice)"

# A clone, by the other way again; the disk's own counters say how many bytes that was.
by tracefs
on_host /sbin/mke2fs -q -F -t ext4 -E lazy_itable_init=0,lazy_journal_init=0 /dev/vda || end "failed mke2fs"
mount -t ext4 /dev/vda $mnt || end "failed mount"
on_host sh -c "export HOME=/run GIT_CONFIG_NOSYSTEM=1; cd /run && git init -q tree && cd tree &&
    for nth in \$(seq 300); do seq \$nth 2000 >\$nth.txt; done && git add -A &&
    git -c user.name=a -c user.email=a@b commit -q -m tree" >$run/git 2>&1 || { cat $run/git; end "failed git commit"; }
# Of the kernel's counters: sectors read and written.
counted() { awk '{ print $3 * 512, $7 * 512 }' /sys/block/vda/stat; }
sync
begin clone /dev/vda
before=$(counted)
on_host sh -c "export HOME=/run; git clone -q --no-hardlinks /run/tree /run/mnt/clone" >$run/git 2>&1 || { cat $run/git; end "failed git clone"; }
umount $mnt
after=$(counted)
finish
bytes=$(echo "$before $after" | awk '{ print $3 - $1, $4 - $2 }')
[ "$(said bytes_read) $(said bytes_written)" = "$bytes" ] || end "failed: recorded $(said bytes_read) $(said bytes_written), the disk says $bytes"
[ "$(said bytes_written)" -gt 1000000 ] || end "failed: a clone of nothing"
ok "a git clone ($(said way)): $(said requests) requests, $(said bytes_read) bytes read, $(said bytes_written) written, $(said flushes) flushes; as the disk counts"

mount -t ext4 /dev/vda $mnt && rm -r $mnt/clone && sync || end "failed mount"
by debugfs
# The trace that nobody took down is still there.
touch "$run/flashfront-record-$(cat /sys/block/vda/dev).lock"
begin clone-by-blktrace /dev/vda
before=$(counted)
on_host sh -c "export HOME=/run; git clone -q --no-hardlinks /run/tree /run/mnt/clone" >$run/git 2>&1 || { cat $run/git; end "failed git clone"; }
umount $mnt
after=$(counted)
finish
bytes=$(echo "$before $after" | awk '{ print $3 - $1, $4 - $2 }')
[ "$(said way) $(said bytes_read) $(said bytes_written)" = "blktrace $bytes" ] || end "failed: recorded $(said way) $(said bytes_read) $(said bytes_written), the disk says $bytes"
ok "a git clone ($(said way)): $(said requests) requests, $(said bytes_read) bytes read, $(said bytes_written) written, $(said flushes) flushes; as the disk counts"
grep -i "panicked" $run/log && end "failed: a panic"
echo down
poweroff -f
