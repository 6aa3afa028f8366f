#!/bin/busybox sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# The guest's only program. Reports to the second serial port, one line each; kernel messages go to the first.
#
# The whole database is a function of the number of commits, so that all of it can be checked:
# commit N inserts row N, with content made from N, and notes N in row N/2. "ack N" is said after COMMIT only.
#
# From the kernel's command line: job=make|use|look journal=wal|delete
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
export PATH=/bin:/usr/bin
exec </dev/null >/dev/ttyS1 2>&1
for module in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk; do
    insmod "/lib/modules/$module.ko" || echo "failed insmod $module"
done
disk=/dev/vda db=/mnt/db
cache=/sys/block/vda/queue/write_cache

content="replace(hex(zeroblob(1 + n % 40)), '00', hex(sha3(n)))"
top="(select max(n) from rows)"

end() { echo "$*"; poweroff -f; }
on() { mount -t ext4 -o discard "$disk" /mnt || end "failed mount"; }
off() { umount /mnt || end "failed umount"; }
sql() { sqlite3 -bail "$db"; }

make() {
    /usr/bin/mke2fs -q -F -t ext4 "$disk" || end "failed mke2fs"
    on
    echo "create table rows(n integer primary key, content text, touched integer not null default 0);" | sql ||
        end "failed create table"
    sync
}

# Everything that must be so after any crash. The first mount replays the journal of ext4.
check() {
    on
    echo mounted
    off
    /usr/bin/e2fsck -f -n "$disk" >/fsck 2>&1 || { cat /fsck; end "failed fsck"; }
    on
    echo "pragma integrity_check;" | sql >/integrity 2>&1
    [ "$(cat /integrity)" = ok ] || { cat /integrity; end "failed integrity_check"; }
    echo "select 'state', ifnull(max(n), 0), count(n), total(content is not $content or touched is not
            case when 2 * n + 1 <= $top then 2 * n + 1 when 2 * n <= $top then 2 * n else 0 end)
        from rows;" | sqlite3 -bail -separator ' ' "$db" ||
        end "failed select"
    if dmesg | grep 'EXT4-fs error'; then end "failed: ext4 found an error"; fi
}

# Files that nobody syncs, so that much is in flight at any moment, and discards.
noise() {
    i=0
    while :; do
        i=$((i + 1))
        cp /bin/busybox "/mnt/noise$((i % 16))"
        rm -f "/mnt/noise$(((i + 8) % 16))"
        usleep 300000 # pacing: the processor is slow, and the writer is to have most of it
    done
}

write() {
    last=$(echo "select ifnull(max(n), 0) from rows;" | sql) || end "failed select max"
    noise &
    awk -v n="$last" -v content="$content" -v journal="$journal" 'BEGIN {
        print ".output /dev/null"
        # Not full: in the mode delete a commit is the end of the journal file, and only extra makes that durable.
        print "pragma journal_mode=" journal "; pragma synchronous=extra; pragma wal_autocheckpoint=50;"
        print ".output stdout"
        while (++n) {
            print "begin immediate;"
            print "insert into rows(n, content) select n, " content " from (select " n " as n);"
            print "update rows set touched = " n " where n = " n " / 2;"
            print "commit; select '\''ack " n "'\'';"
        }
    }' | sql
    end "stopped"
}

echo booted
# Else the kernel sends no FLUSH, and nothing that it counts on is durable.
[ "$(cat $cache)" = "write back" ] || end "failed: the kernel was told that the disk has no write cache"
case $job in
make) make; echo writing; write ;;
use) check; echo writing; write ;;
look) check; off; end "down" ;;
esac
end "failed: no job"
