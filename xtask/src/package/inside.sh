#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# The life of the package, told from inside a clean root of Debian (see roots.rs).
#
#   inside.sh systemd   under a booted systemd, which runs the units
#   inside.sh plain     without: the commands of the units are run as they are
set -eu
how=$1
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
disks=/srv/disks
control=/run/flashfront/data/control.sock
nbd='nbd+unix:///?socket=/run/flashfront/data/nbd.sock'

the_end() {
    code=$?
    if [ "$code" -ne 0 ]; then
        if [ "$how" = systemd ]; then
            journalctl --no-pager --lines 60 || true
        else
            cat /test/*.err || true
        fi
        echo FAILED
    fi
}
trap the_end EXIT
step() { echo "-- $*"; }
fail() {
    echo "expected: $*"
    exit 1
}

if [ "$how" = plain ]; then
    mount -t proc proc /proc
    mount -t sysfs sysfs /sys
    mount -t tmpfs tmpfs /run
fi

# Starts a unit, and comes back when it is ready.
start() {
    if [ "$how" = systemd ]; then
        systemctl start "$1"
        return
    fi
    line=$(sed -n 's/^ExecStart=//p' "/usr/lib/systemd/system/${1%%@*}@.service" | sed "s,%i,${1#*@},g")
    mkdir -p "/run/flashfront/${1#*@}/files"
    rm -f /test/ready
    mkfifo /test/ready
    # shellcheck disable=SC2086 # a command line of plain words
    $line >/test/ready 2>"/test/$1.err" &
    echo $! >"/test/$1.pid"
    read -r said where </test/ready
    [ "$said" = ready ] || fail "ready, from $line"
    echo "$1 serves $where"
}
stop() {
    if [ "$how" = systemd ]; then
        systemctl stop "$1"
        [ "$(systemctl show --property Result --value "$1")" = success ] || fail "a clean stop of $1"
    else
        kill -TERM "$(cat "/test/$1.pid")"
        wait "$(cat "/test/$1.pid")"
    fi
}
pid_of() {
    if [ "$how" = systemd ]; then systemctl show --property MainPID --value "$1"; else cat "/test/$1.pid"; fi
}
# Asks until the answer is yes; a minute at most.
until_it_does() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || fail "$* works in a minute"
        sleep 0.2
    done
}
loop_device() {
    losetup --list --noheadings --raw --output NAME,BACK-FILE |
        sed -n 's, /run/flashfront/data/files/data$,,p' | head -n 1
}
bytes_are() { # FILE OCTAL FROM LENGTH
    count=$(tail -c +$(($3 + 1)) "$1" 2>/dev/null | head -c "$4" | tr -dc "\\$2" | wc -c)
    [ "$count" = "$4" ] || fail "bytes $2 in $1"
}

step "install"
dpkg -i /test/old.deb /test/debug.deb
flashfront --version
man -w flashfront flashfront-serve flashfront-mirror-add
man -w 5 flashfront.toml
[ -d /etc/flashfront ] || fail "the folder of configurations"
[ "$how" = plain ] || systemctl cat flashfront@data.service >/dev/null
# Debian 12's udevadm has no such verb yet.
if udevadm verify --help >/dev/null 2>&1; then
    udevadm verify /usr/lib/udev/rules.d/60-flashfront.rules
fi

step "serve files as devices, by the unit's command"
mkdir -p $disks
fallocate -l 128M $disks/cache
truncate -s 256M $disks/origin
cat >/etc/flashfront/data.toml <<EOF
cache = "$disks/cache"
[[volume]]
origin = "$disks/origin"
[[listen]]
nbd = "unix:/run/flashfront/data/nbd.sock"
EOF
if [ "$how" = systemd ]; then
    # As the guide says for devices that are files.
    mkdir -p /etc/systemd/system/flashfront@data.service.d
    printf '[Service]\nReadWritePaths=%s\n' $disks >/etc/systemd/system/flashfront@data.service.d/files.conf
    systemctl daemon-reload
    systemctl enable flashfront@data
    [ "$(systemctl is-enabled flashfront.target)" = enabled ] || fail "the target is enabled with its first service"
fi
flashfront format --cache $disks/cache --origin $disks/origin --mode writeback
start flashfront@data
# The verbs find the only service by themselves.
flashfront status | head -n 4
if [ "$how" = systemd ]; then
    echo "what the service may do: $(grep CapBnd "/proc/$(pid_of flashfront@data)/status")"
    journalctl --unit flashfront@data --no-pager --output cat
fi
qemu-io -f raw -c 'write -P 0xa5 0 4M' -c 'write -P 0x5a 64M 1M' -c flush "$nbd"
qemu-io -f raw -c 'read -P 0xa5 0 4M' "$nbd"

step "a removal is refused while a volume is served"
before=$(pid_of flashfront@data)
dpkg --remove flashfront-dbgsym
if dpkg --remove flashfront; then fail "a refusal"; fi
[ -x /usr/bin/flashfront ] || fail "the program is still there"

step "an upgrade leaves the volume alone"
# The refused removal is forgotten.
echo flashfront install | dpkg --set-selections
inode=$(stat -c %i /usr/bin/flashfront)
dpkg -i /test/new.deb 2>&1 | tee /test/said
if [ "$how" = systemd ]; then
    grep -q "flashfront upgrade --control $control" /test/said || fail "a word about the upgrade"
    grep -q 'systemctl restart flashfront@data.service' /test/said || fail "a word about the restart"
fi
[ "$(stat -c %i /usr/bin/flashfront)" != "$inode" ] || fail "another program"
[ "$(pid_of flashfront@data)" = "$before" ] || fail "the same process as before the upgrade"
readlink "/proc/$before/exe" | grep -q deleted || fail "the daemon runs the old program"
qemu-io -f raw -c 'read -P 0xa5 0 4M' -c 'write -P 0x11 128M 1M' -c flush "$nbd"
if dpkg --remove flashfront; then fail "a refusal, with the old program too"; fi

if [ "$how" = systemd ]; then
    step "the new program takes over, twice, and a client stays connected"
    mkfifo /test/commands
    qemu-io -f raw "$nbd" </test/commands >/test/client 2>&1 &
    client=$!
    exec 3>/test/commands
    echo 'write -P 0x22 192M 1M' >&3
    until_it_does grep 'wrote 1048576/1048576' /test/client
    flashfront upgrade --control $control
    flashfront upgrade --control $control
    printf 'read -P 0x22 192M 1M\nread -P 0xa5 0 4M\nflush\nquit\n' >&3
    exec 3>&-
    wait $client || fail "a client that stays connected: $(cat /test/client)"
    [ "$(grep -c ' read [0-9]*/' /test/client)" = 2 ] || fail "two reads: $(cat /test/client)"
    if grep -i -e failed -e error /test/client; then fail "reads of what was written"; fi
    after=$(pid_of flashfront@data)
    [ "$after" != "$before" ] || fail "another process"
    [ "$(readlink "/proc/$after/exe")" = /usr/bin/flashfront ] || fail "the new program"
    [ "$(systemctl show --property NRestarts --value flashfront@data)" = 0 ] || fail "no restart"

    step "a reload, and a start after kill -9"
    systemctl reload flashfront@data
    kill -KILL "$after"
    until_it_does flashfront status --control $control
    [ "$(pid_of flashfront@data)" != "$after" ] || fail "a new daemon"
    qemu-io -f raw -c 'read -P 0xa5 0 4M' -c 'read -P 0x5a 64M 1M' -c 'read -P 0x11 128M 1M' "$nbd"
fi

step "drain and stop"
flashfront drain --control $control
stop flashfront@data
bytes_are $disks/origin 245 0 4194304
bytes_are $disks/origin 021 134217728 1048576
if [ "$how" = systemd ]; then
    systemctl disable flashfront@data
fi

step "a loop device over the volume as a file"
[ -e /dev/fuse ] || mknod /dev/fuse c 10 229 || true
[ -e /dev/loop-control ] || mknod /dev/loop-control c 10 237 || true
n=0
while [ $n -lt 64 ]; do
    [ -e /dev/loop$n ] || mknod /dev/loop$n b 7 $n || true
    n=$((n + 1))
done
if (: <>/dev/fuse) 2>/dev/null && losetup --find >/dev/null 2>&1; then
    cat >>/etc/flashfront/data.toml <<EOF
[[listen]]
fuse = "/run/flashfront/data/files"
EOF
    start flashfront-local@data
    # Seen by all, and not only in a view of the service's own.
    [ "$(stat -c %s /run/flashfront/data/files/data)" = 268435456 ] || fail "the volume as a file"
    if [ "$how" = systemd ]; then
        journalctl --unit flashfront-local@data --no-pager --output cat
        systemctl start flashfront-loop@data
    else
        /usr/lib/flashfront/loop-devices attach data
    fi
    device=$(loop_device)
    [ "$(losetup --noheadings --output DIO "$device" | tr -d ' ')" = 1 ] || fail "direct I/O of $device"
    mkfs.ext4 -q "$device"
    mkdir -p /mnt/data
    mount "$device" /mnt/data
    head -c 3000000 /usr/bin/flashfront >/mnt/data/file
    umount /mnt/data
    if [ "$how" = systemd ]; then
        before=$(pid_of flashfront-local@data)
        kill -KILL "$before"
        until_it_does flashfront status --control $control
        # Made anew over the new daemon's file: the old one has errors for every read.
        until_it_does systemctl is-active flashfront-loop@data
        until_it_does head -c 1 "$(loop_device)"
        mount "$(loop_device)" /mnt/data
        head -c 3000000 /usr/bin/flashfront | cmp - /mnt/data/file
        umount /mnt/data
    fi
    flashfront drain --control $control
    if [ "$how" = systemd ]; then
        # The daemon goes, and the loop device goes before it.
        stop flashfront-local@data
        [ "$(systemctl is-active flashfront-loop@data)" = inactive ] || fail "no loop service without its daemon"
    else
        /usr/lib/flashfront/loop-devices detach data
        stop flashfront-local@data
    fi
    ! losetup --list --noheadings --output BACK-FILE | grep /run/flashfront/data || fail "no loop device any more"
    e2fsck -fn $disks/origin
    mount -o loop,ro $disks/origin /mnt/data
    head -c 3000000 /usr/bin/flashfront | cmp - /mnt/data/file
    umount /mnt/data
else
    echo "skipped: package: loop devices: /dev/fuse or loop devices can't be had in this root"
fi

if [ "$how" = systemd ] && losetup --find >/dev/null 2>&1; then
    step "a file that another daemon has is found by a service, below a loop device in another user's folder"
    mkdir -m 700 /home/somebody
    truncate -s 64M /home/somebody/origin
    chmod 600 /home/somebody/origin
    chown -R 1000:1000 /home/somebody
    truncate -s 32M $disks/one $disks/two
    device=$(losetup --find --show /home/somebody/origin)
    flashfront format --cache $disks/two --origin "$device" >/dev/null
    losetup --detach "$device"
    flashfront format --cache $disks/one --origin /home/somebody/origin >/dev/null
    mkfifo /test/ready
    flashfront serve --cache $disks/one --origin /home/somebody/origin --nbd unix:/run/one.sock \
        --control /run/one.control >/test/ready 2>/test/one.err &
    one=$!
    read -r said where </test/ready
    [ "$said" = ready ] || fail "ready, and not $said $where"
    device=$(losetup --find --show /home/somebody/origin)
    cat >/etc/flashfront/two.toml <<EOF
cache = "$disks/two"
[[volume]]
origin = "$device"
[[listen]]
nbd = "unix:/run/flashfront/two/nbd.sock"
EOF
    mkdir -p /etc/systemd/system/flashfront@two.service.d
    printf '[Service]\nReadWritePaths=%s\n' $disks >/etc/systemd/system/flashfront@two.service.d/files.conf
    systemctl daemon-reload
    if systemctl start flashfront@two; then fail "a refusal"; fi
    journalctl --unit flashfront@two --no-pager --output cat | grep "in use" || fail "words about who has it"
    systemctl stop flashfront@two
    losetup --detach "$device"
    kill -TERM $one
    wait $one
    rm $disks/one $disks/two
fi

step "remove"
cp /usr/share/doc/flashfront/examples/data.toml /etc/flashfront/other.toml
mkdir /etc/flashfront/pki
echo key >/etc/flashfront/pki/server-key.pem
echo mark >/var/lib/flashfront/mark
sums=$(sha256sum $disks/*)
dpkg --remove flashfront
[ ! -e /usr/bin/flashfront ] && [ -e /etc/flashfront/data.toml ] || fail "no program, and the configuration"

step "purge"
dpkg --purge flashfront
[ ! -e /etc/flashfront/data.toml ] && [ ! -e /etc/needrestart/conf.d/flashfront.conf ] || fail "no configuration any more"
[ -e /etc/flashfront/pki/server-key.pem ] && [ -e /var/lib/flashfront/mark ] || fail "what is not ours to remove"
[ "$(sha256sum $disks/*)" = "$sums" ] || fail "cache and origin as they were"
# Without those nothing is left.
rm -r /etc/flashfront/pki /var/lib/flashfront/*
dpkg -i /test/new.deb
dpkg --purge flashfront
left=$(find /etc /usr /var/lib /run -xdev -name '*flashfront*' -not -path '/var/lib/dpkg/*' -not -path '/etc/systemd/system/*.d')
[ -z "$left" ] || fail "nothing of ours, but there is: $left"

echo passed
