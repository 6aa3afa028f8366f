// SPDX-License-Identifier: MIT OR Apache-2.0
//! The block device that is recorded: its numbers, and which sectors of its disk it has.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use crate::error::RecordError;

/// A disk, or a partition of one.
pub(super) struct Target {
    /// The path as it was named.
    pub(super) path: PathBuf,
    /// Open for reading.
    pub(super) file: fs::File,
    /// The number by which the kernel counts devices: `major << 20 | minor`.
    pub(super) device: u32,
    /// The numbers as text, `8:1`.
    pub(super) numbers: String,
    /// The place on its disk where a partition begins. The kernel tells places on the disk.
    start: u64,
    /// Behind its last sector.
    end: u64,
    /// Devices that its requests may name: itself, and the partitions of a disk, or the disk of a
    /// partition. The place tells requests of a partition from others.
    pub(super) devices: Vec<u32>,
}

impl Target {
    pub(super) fn of(path: &Path) -> Result<Self, RecordError> {
        let failed = |source: io::Error| RecordError::Device { path: path.to_owned(), source };
        let meta = fs::metadata(path).map_err(failed)?;
        if !meta.file_type().is_block_device() {
            return Err(RecordError::NotADevice(path.to_owned()));
        }
        let file = fs::File::open(path).map_err(failed)?;
        let numbers = format!("{}:{}", major(meta.rdev()), minor(meta.rdev()));
        let folder = PathBuf::from(format!("/sys/dev/block/{numbers}"));
        let sectors = number(&folder.join("size")).map_err(failed)?;
        // Only a partition has this file.
        let start = number(&folder.join("start")).unwrap_or(0);
        let device = device_of(&numbers).ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
        let mut devices = vec![device];
        if folder.join("partition").exists() {
            // The kernel names the disk in requests to a partition.
            let disk = fs::read_to_string(fs::canonicalize(&folder).map_err(failed)?.join("../dev"));
            devices.extend(device_of(disk.map_err(failed)?.trim()));
        }
        for entry in fs::read_dir(&folder).map_err(failed)?.flatten().filter(|it| it.path().join("partition").exists())
        {
            let text = fs::read_to_string(entry.path().join("dev")).unwrap_or_default();
            devices.extend(device_of(text.trim()));
        }
        Ok(Self { path: path.to_owned(), file, device, numbers, start, end: start + sectors, devices })
    }

    /// Converts a place on the disk to one on this device; `None` if it lies outside. Flushes have
    /// no place: those of all partitions count for each.
    pub(super) fn place(&self, sector: u64, bytes: u32) -> Option<u64> {
        match bytes {
            0 => Some(0),
            _ if (self.start..self.end).contains(&sector) => Some(sector - self.start),
            _ => None,
        }
    }
}

/// `8:1` as the kernel's number.
fn device_of(numbers: &str) -> Option<u32> {
    let (major, minor) = numbers.split_once(':')?;
    Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
}

fn number(path: &Path) -> io::Result<u64> {
    fs::read_to_string(path)?.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_has_its_own_places() {
        let target = Target {
            path: "x".into(),
            file: fs::File::open("/dev/null").unwrap(),
            device: 0,
            numbers: String::new(),
            start: 2048,
            end: 4096,
            devices: Vec::new(),
        };
        assert_eq!(target.place(2048, 512), Some(0));
        assert_eq!(target.place(4095, 512), Some(2047));
        assert_eq!(target.place(2047, 512), None);
        assert_eq!(target.place(4096, 512), None);
        assert_eq!(target.place(0, 0), Some(0));
    }

    #[test]
    fn numbers_are_as_the_kernel_has_them() {
        assert_eq!(device_of("259:1048575"), Some(259 << 20 | 1_048_575));
        assert_eq!(device_of("8"), None);
    }
}
