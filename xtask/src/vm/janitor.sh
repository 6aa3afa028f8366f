#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Cleans up after `cargo x vm`, however that ends: it reads from a pipe which closes with its writer.
#
#   janitor.sh DIR MOUNT...
#
# Lines: "start PID" and "end PID" of each process; "keep" leaves the folder.
dir=$1 pids=' ' keep=
shift
while read -r word pid; do
    case $word in
    start) pids="$pids$pid " ;;
    end) pids="${pids%% "$pid" *} ${pids#* "$pid" }" ;;
    keep) keep=1 ;;
    esac
done
for pid in $pids; do kill -9 "$pid"; done 2>/dev/null
for mount; do fusermount3 -uzq "$mount"; done 2>/dev/null
[ -n "$keep" ] || rm -rf "$dir"
