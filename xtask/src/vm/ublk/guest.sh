#!/bin/busybox sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# The guest's first program: runs the daemon under test on two disks, with a volume as /dev/ublkb0, kills it, and reports to the second
# serial port "ok WHAT" for each thing that was so, or "failed WHAT". Kernel messages go to the first.
#
# From the kernel's command line: kernel=PATH (of its modules, on the host) program=PATH (on the host)
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
export PATH=/bin:/usr/sbin:/usr/bin:/sbin
exec </dev/null >/dev/ttyS1 2>&1

end() { echo "$*"; [ ! -e /log ] || tail -n 20 /log; dmesg | tail -n 15; poweroff -f; }
ok() { echo "ok $*"; }

for module in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci netfs fscache 9pnet 9pnet_virtio 9p; do
    [ ! -e "/lib/modules/$module.ko" ] || insmod "/lib/modules/$module.ko" || end "failed insmod $module"
done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro host /host || end "failed mount of the host's root"
for dir in dev proc sys; do mount -o bind /$dir /host/$dir || end "failed mount of $dir"; done
mount -t tmpfs tmp /host/run || end "failed mount of run"
ln -s "/host$kernel/lib/modules/$(uname -r)" "/lib/modules/$(uname -r)"
for module in virtio_blk ext4 ublk_drv; do modprobe $module || end "failed modprobe $module"; done
modprobe crc32c_generic 2>/dev/null

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
ours() { on_host "$program" "$@"; }
run=/host/run disk=/dev/ublkb0 mnt=/host/run/mnt
mkdir $mnt

# serve DURABILITY [FLAG...]: in the background, until it is ready.
serve() {
    durability=$1
    shift
    : >$run/ready
    # Not by a function: $! is to be the daemon and no shell.
    chroot /host "$program" serve --cache /dev/vda --origin /dev/vdb --control /run/control --state /run/state \
        --ublk 0 --durability "$durability" "$@" >$run/ready 2>>/log &
    daemon=$!
    until_so "ready" grep -q . $run/ready
    [ "$(cat $run/ready)" = "ready file:///dev/ublkb0" ] || end "failed: it says $(cat $run/ready)"
}
die() { kill -9 $daemon && wait $daemon; }
stop() { kill $daemon && wait $daemon || end "failed: a clean stop"; }
counter() { ours status --control /run/control --json 2>/dev/null | grep -o "\"$1\":[0-9]*" | cut -d : -f 2; }
limit() { cat "/sys/block/ublkb0/queue/$1"; }
fio() { on_host sh -c "cd /run && fio --minimal --thread --ioengine=libaio --direct=1 --iodepth=32 --verify=crc32c --verify_fatal=1 $*" >/fio 2>&1; }

ours format --cache /dev/vda --origin /dev/vdb >/dev/null || end "failed format"
serve always
grep -q "can't become an I/O flusher\|can't lock" /log && end "failed: as root it may"
[ "$(limit write_cache)" = "write back" ] && [ "$(limit fua)" = 1 ] && [ "$(limit logical_block_size)" = 512 ] &&
    [ "$(limit discard_max_bytes)" -gt 0 ] && [ "$(limit write_zeroes_max_bytes)" -gt 0 ] || end "failed: limits of the device"
[ "$(cat /sys/block/ublkb0/size)" = "$(cat /sys/block/vdb/size)" ] || end "failed: its size"
ok "the device is there"

fio --name=raw --filename=$disk --rw=randwrite --bssplit=512/20:4k/50:64k/20:1m/10 --size=48m --verify_backlog=256 --fsync=64 || { cat /fio; end "failed fio on the device"; }
[ "$(counter flushes)" -gt 0 ] || end "failed: fsync is a FLUSH"
ok "fio on the device"

on_host /sbin/mke2fs -q -F -t ext4 $disk || end "failed mke2fs"
mount -t ext4 $disk $mnt || end "failed mount"
mkdir $mnt/tree && cp -r /host/usr/share/doc/a* $mnt/tree/ && sync
(cd $mnt && find tree -type f -exec md5sum {} +) >/sums
ok "ext4"

# Killed under it, twice: fio sees nothing but time.
fio --name=killed --directory=/run/mnt --rw=randwrite --bssplit=4k/60:64k/30:1m/10 --size=32m --loops=4 --verify_backlog=256 --fsync=32 &
writer=$!
for kill in 1 2; do
    before=$(counter writes)
    until_so "fio writes" sh -c "[ \$(awk '{ print \$5 }' /sys/block/ublkb0/stat) -gt $((before + 300 * kill)) ]"
    die
    [ -b $disk ] || end "failed: the device is gone with the daemon"
    serve always
    grep -q "taken over" /log || end "failed: not taken over"
    kill -0 $writer 2>/dev/null || break
done
wait $writer || { cat /fio; end "failed: fio noticed the kill"; }
[ "$(grep -c "taken over" /log)" -ge 1 ] || end "failed: no kill"
ok "killed and taken over $(grep -c "taken over" /log) times under fio"

# Other programs take over, and some fail after the daemon has let the device go: fio sees nothing but time.
cat >$run/fails <<'script'
#!/bin/sh
read -r offer
echo '{"say":"waits","version":"it fails"}' >&0
read -r take
exit 3
script
chmod +x $run/fails
fio --name=upgraded --directory=/run/mnt --rw=randwrite --bssplit=4k/60:64k/30:1m/10 --size=32m --loops=8 --verify_backlog=256 --fsync=32 &
writer=$!
for upgrade in 1 2 3; do
    written=$(awk '{ print $5 }' /sys/block/ublkb0/stat)
    until_so "fio writes" sh -c "[ \$(awk '{ print \$5 }' /sys/block/ublkb0/stat) -gt $((written + 150)) ]"
    ours upgrade --control /run/control >/other 2>&1 || { cat /other; end "failed upgrade"; }
    echo "  $(cat /other)"
    ours upgrade --control /run/control --program /run/fails >/other 2>&1 && end "failed: upgraded to a program that fails"
    grep -q "serves on" /other || { cat /other; end "failed: what it says of a program that fails"; }
    echo "  $(cat /other)"
    kill -0 $writer 2>/dev/null || end "failed: fio has ended before upgrade $upgrade has"
done
wait $writer || { cat /fio; end "failed: fio noticed an upgrade"; }
dmesg | grep "WARNING:\|BUG:" && end "failed: the kernel finds a fault"
stop
serve always
ok "handed over 3 times under fio, and taken back 3 times"

# Acknowledged, and never flushed by anyone: the page cache is dropped, so it comes from the device.
echo "not synced by the file system" | dd of=$mnt/tree/direct bs=4096 conv=sync oflag=direct 2>/dev/null || end "failed dd"
die
serve always
echo 3 >/proc/sys/vm/drop_caches
[ "$(head -n 1 $mnt/tree/direct | tr -d '\000')" = "not synced by the file system" ] || end "failed: acknowledged and lost"
(cd $mnt && md5sum -c -s /sums) || end "failed: files have changed"
ok "nothing acknowledged is lost"

# While nobody serves it, it is nobody else's.
die
ours format --cache /dev/vdd --origin /dev/vdc >/dev/null || end "failed format of another"
ours serve --cache /dev/vdd --origin /dev/vdc --control /run/other --state /run/other-state --ublk 0 --durability always >/other 2>&1 && end "failed: taken by another"
grep -q "is not this volume's" /other || { cat /other; end "failed: what it says to another"; }
ours serve --cache /dev/vda --origin /dev/vdb --control /run/control --state /run/state --ublk 0 >/other 2>&1 && end "failed: taken over without durability"
grep -q "durability always" /other || { cat /other; end "failed: what it says without durability"; }
serve always
ok "kept for its own daemon"

before=$(counter discards)
rm -rf $mnt/tree/a* && sync && on_host /sbin/fstrim /run/mnt || end "failed fstrim"
[ "$(counter discards)" -gt "$before" ] || end "failed: fstrim is no discard"
ok "fstrim"

# A clean stop under a mounted file system is a pause.
stop
grep -q "in use" /log || end "failed: it does not say so"
serve always
[ "$(head -n 1 $mnt/tree/direct | tr -d '\000')" = "not synced by the file system" ] || end "failed: after the pause"
umount $mnt || end "failed umount"
on_host /sbin/e2fsck -f -n $disk >/fsck 2>&1 || { cat /fsck; end "failed fsck"; }
stop
[ ! -e $disk ] || end "failed: the device is left"
ok "a restart is a pause, a stop takes the device away"

# Without durability always it ends with the daemon, and the next one begins anew.
serve flush
mount -t ext4 $disk $mnt || end "failed mount"
ours upgrade --control /run/control >/other 2>&1 && end "failed: handed over without durability"
grep -q "would end with this program" /other || { cat /other; end "failed: what it says of an upgrade without durability"; }
die
until_so "the device is gone" [ ! -e $disk ]
umount -l $mnt
serve flush
mount -t ext4 $disk $mnt && umount $mnt || end "failed mount after a death"
on_host /sbin/e2fsck -f -n $disk >/fsck 2>&1 || { cat /fsck; end "failed fsck after a death"; }
ok "not recoverable: gone and made anew"

ours drain --control /run/control >/dev/null 2>&1 || end "failed drain"
stop
ours check /dev/vda >/check 2>&1 || { cat /check; end "failed check"; }
on_host /sbin/e2fsck -f -n /dev/vdb >/fsck 2>&1 || { cat /fsck; end "failed fsck of the origin"; }
mount -t ext4 -o ro /dev/vdb $mnt || end "failed mount of the origin"
[ "$(head -n 1 $mnt/tree/direct | tr -d '\000')" = "not synced by the file system" ] || end "failed: the origin alone"
umount $mnt
grep -i "panicked" /log && end "failed: a panic"
ok "the origin alone"
echo down
poweroff -f
