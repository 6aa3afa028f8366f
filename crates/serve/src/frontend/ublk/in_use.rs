// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds out whether a block device is in use: by a file system, swap, or another block device.
//!
//! It reads what the kernel says of itself: opening the device would make us wait for ourselves.

use std::fs;
use std::path::{Path, PathBuf};

/// Whether /dev/NAME or a partition of it is mounted (in this mount namespace), swapped to, or part
/// of another block device.
pub(super) fn in_use(name: &str) -> bool {
    let table = |path: &str| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let (mounts, swaps) = (table("/proc/self/mountinfo"), table("/proc/swaps"));
    let used = |folder: &Path| {
        let held = fs::read_dir(folder.join("holders")).is_ok_and(|mut holders| holders.next().is_some());
        let number = fs::read_to_string(folder.join("dev")).unwrap_or_default();
        held || is_mounted(&mounts, number.trim(), name)
    };
    parts(Path::new("/sys/block"), name).iter().any(|folder| used(folder))
        || swaps.lines().any(|line| is_first(line, name))
}

/// Lists the kernel's folders of a device and of its partitions.
fn parts(devices: &Path, name: &str) -> Vec<PathBuf> {
    let device = devices.join(name);
    let partitions = fs::read_dir(&device).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut all: Vec<PathBuf> = partitions.filter(|path| path.join("partition").exists()).collect();
    all.push(device);
    all
}

/// Whether a device is mounted: by its number, or by its source if a file system has several
/// devices; with its partitions.
fn is_mounted(table: &str, number: &str, name: &str) -> bool {
    table.lines().any(|line| {
        let source = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').nth(1));
        line.split(' ').nth(2) == Some(number) || source.is_some_and(|source| is_first(source, name))
    })
}

/// Whether the line begins with /dev/NAME, or a partition of it.
fn is_first(line: &str, name: &str) -> bool {
    let rest = line.strip_prefix("/dev/").and_then(|line| line.strip_prefix(name));
    let partition = |rest: &str| {
        rest.strip_prefix('p').unwrap_or(rest).trim_start_matches(|it: char| it.is_ascii_digit()).to_owned()
    };
    rest.is_some_and(|rest| {
        let has_own_digits = rest.starts_with(|it: char| it.is_ascii_digit());
        !has_own_digits && partition(rest).chars().next().is_none_or(char::is_whitespace)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_belong_to_it() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["ublkb0/holders", "ublkb0/ublkb0p1/holders", "ublkb0/queue"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        fs::write(dir.path().join("ublkb0/ublkb0p1/partition"), "1").unwrap();
        let device = dir.path().join("ublkb0");
        assert_eq!(parts(dir.path(), "ublkb0"), [device.join("ublkb0p1"), device]);
    }

    #[test]
    fn mounts_are_found_by_number_and_by_source() {
        let table = "30 1 259:3 / / rw - ext4 /dev/root rw\n31 30 0:44 / /b rw - btrfs /dev/ublkb1 rw\n\
                     32 30 259:9 / /p rw - ext4 /dev/ublkb3p2 rw\n";
        assert!(is_mounted(table, "259:3", "ublkb7"));
        assert!(!is_mounted(table, "259:4", "ublkb7"));
        assert!(is_mounted(table, "259:5", "ublkb1"));
        assert!(is_mounted(table, "259:8", "ublkb3"), "a partition of it");
        assert!(!is_mounted("1 1 0:4 / /b rw - btrfs /dev/ublkb12 rw\n", "259:5", "ublkb1"), "another one");
        assert!(is_first("/dev/ublkb0\tpartition\t1024", "ublkb0"));
    }
}
