// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a file's discarded ranges read as zeroes, found out without touching it.
//!
//! A trial hole would tell for certain, and would change the file's time even behind its end: the stale guard
//! goes by that. So the file system's driver is asked for by name; one that isn't known here counts as one
//! without holes, which costs space and nothing else (test: `holes_are_where_they_are_said_to_be`).

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use super::file::DeviceFile;

/// statfs(2): drivers that make holes in any file.
const XFS: u64 = 0x5846_5342;
const BTRFS: u64 = 0x9123_683e;
const TMPFS: u64 = 0x0102_1994;
/// ext2, ext3 and ext4 share a number; the driver of the last two makes holes.
const EXT: u64 = 0xef53;

impl DeviceFile {
    /// Whether a range that was discarded reads as zeroes: of regular files, where their file system makes
    /// holes. Of a block device nobody can promise it: where zeroing fails, it is discarded in another way.
    #[must_use]
    pub fn discard_zeroes(&self) -> bool {
        !self.is_block_device() && makes_holes(self.file())
    }
}

fn makes_holes(file: &File) -> bool {
    let Ok(stat) = rustix::fs::fstatfs(file) else {
        return false;
    };
    match stat.f_type as u64 & 0xffff_ffff {
        XFS | BTRFS | TMPFS => true,
        EXT => driver(file).is_some_and(|name| name == "ext4" || name == "ext3"),
        _ => false,
    }
}

/// The name of the driver, from the table of mounts.
fn driver(file: &File) -> Option<String> {
    let device = file.metadata().ok()?.dev();
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    let table = String::from_utf8_lossy(&table);
    // proc_pid_mountinfo(5): ID parent MAJOR:MINOR root place options [tags] - TYPE source options
    let line = table.lines().find(|line| line.split(' ').nth(2) == Some(&device))?;
    let (_, rest) = line.split_once(" - ")?;
    rest.split(' ').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use rustix::fs::{FallocateFlags, fallocate};

    use super::*;

    #[test]
    fn holes_are_where_they_are_said_to_be() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 8192], 0).unwrap();
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let made = fallocate(&file, mode, 0, 4096).is_ok();
        if makes_holes(&file) {
            assert!(made, "said, and not so");
            let mut read = [1; 8192];
            file.read_exact_at(&mut read, 0).unwrap();
            assert_eq!((&read[..4096], &read[4096..]), (&[0; 4096][..], &[7; 4096][..]));
        }
        let known = [Some("ext4"), Some("xfs"), Some("btrfs"), Some("tmpfs")];
        if known.contains(&driver(&file).as_deref()) {
            assert!(makes_holes(&file), "one of those that are known");
        }
    }
}
