// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds out whether a file's discarded ranges read as zeroes, without touching it.
//!
//! A trial hole would tell for certain. But it would change the file's time even behind its end,
//! and the stale guard goes by that. So the file system's driver is asked for by name. A driver
//! that isn't known here counts as one without holes, which costs space and nothing else (test:
//! `holes_are_where_they_are_said_to_be`).

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
    /// Whether a range that was discarded reads as zeroes.
    ///
    /// Volumes in object stores do, and regular files where their file system makes holes. A block
    /// device can't promise it: where zeroing fails, it is discarded in another way.
    #[must_use]
    pub fn discard_zeroes(&self) -> bool {
        self.mark().is_some() || !self.is_block_device() && self.file().is_some_and(makes_holes)
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
    driver_of(&device, &String::from_utf8_lossy(&table)).map(str::to_owned)
}

fn driver_of<'a>(device: &str, table: &'a str) -> Option<&'a str> {
    // proc_pid_mountinfo(5): ID parent MAJOR:MINOR root place options [tags] - TYPE source options
    let line = table.lines().find(|line| line.split(' ').nth(2) == Some(device))?;
    let (_, rest) = line.split_once(" - ")?;
    rest.split(' ').next()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};

    use super::*;

    /// Whether holes are promised, and if so that they are made.
    fn assert_as_said(file: &File) -> bool {
        file.write_all_at(&[7; 12288], 0).unwrap();
        let before = file.metadata().unwrap();
        let said = makes_holes(file);
        let after = file.metadata().unwrap();
        let times = |metadata: &std::fs::Metadata| (metadata.mtime(), metadata.mtime_nsec(), metadata.ctime_nsec());
        assert_eq!(times(&before), times(&after), "found out without touching it");
        if said {
            fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096, 4096).unwrap();
            let mut read = [1; 12288];
            file.read_exact_at(&mut read, 0).unwrap();
            let parts = read.chunks(4096).map(|part| part.iter().all(|byte| *byte == part[0]).then_some(part[0]));
            assert!(parts.eq([Some(7), Some(0), Some(7)]), "said, and not so");
        }
        said
    }

    #[test]
    fn holes_are_where_they_are_said_to_be() {
        // On every machine, wherever its temporary files are.
        let memory = File::from(memfd_create("holes", MemfdFlags::CLOEXEC).unwrap());
        assert!(assert_as_said(&memory), "tmpfs");
        assert!(!makes_holes(&File::open("/proc/self/status").unwrap()), "nothing is known of procfs");
        let (pipe, _end) = std::io::pipe().unwrap();
        assert!(!makes_holes(&File::from(std::os::fd::OwnedFd::from(pipe))));

        let file = tempfile::tempfile().unwrap();
        let (said, name) = (assert_as_said(&file), driver(&file));
        match name.as_deref() {
            Some("ext4" | "ext3" | "xfs" | "btrfs" | "tmpfs") => assert!(said, "one of those that are known"),
            // A container's overlayfs, for one.
            other => eprintln!("SKIPPED: temporary files are on {other:?}, whose holes are not used"),
        }
    }

    #[test]
    fn drivers_are_found_in_the_table_of_mounts() {
        let table = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
                     30 22 0:26 / /run rw,nosuid shared:5 master:1 - tmpfs tmpfs rw,size=1024k\n\
                     41 22 254:16 / /old\\040disk rw - ext2 /dev/vdb rw\n\
                     52 22 0:45 / /merged rw,relatime shared:9 - overlay overlay rw,lowerdir=/a,upperdir=/b - c\n";
        for (device, expected) in [
            ("254:0", Some("ext4")),
            ("0:26", Some("tmpfs")),
            ("254:16", Some("ext2")),
            ("0:45", Some("overlay")),
            ("254:1", None),
        ] {
            assert_eq!(driver_of(device, table), expected, "{device}");
        }
        assert_eq!(driver_of("0:1", "1 0 0:1 / / rw"), None, "cut off");
    }
}
