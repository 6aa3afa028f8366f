// SPDX-License-Identifier: MIT OR Apache-2.0
//! The places of a file on the volume that holds its file system.
//!
//! A file system is known by its UUID, which ext4 and XFS have in their superblocks. The daemon
//! compares it with what the volume has there. So a file on another disk of the same size is
//! refused.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use flashfront_device::real::{places_of, uuid_of};
use flashfront_engine::SECTOR_BYTES;
use rustix::fs::{fstatfs, major, minor};

use super::of_file;

/// File systems whose extents are places of their own device, ext2 to ext4 and XFS, and where their
/// UUIDs stand on it. (Btrfs tells places of its own, which no device has.)
const FILE_SYSTEMS: [(u64, u64); 2] = [(0xef53, 1024 + 0x68), (0x5846_5342, 32)];

/// What is known of a file.
pub(super) struct Placed {
    pub(super) places: Vec<Range<u64>>,
    /// The UUID of the file system, and where the volume must have it; `None` if it is not known.
    pub(super) uuid: Option<(u64, [u8; 16])>,
}

/// A device with a file system, as the kernel shows it.
#[derive(Debug, PartialEq, Eq)]
struct Below {
    /// The file system's first byte on the disk.
    begin: u64,
    /// The size of the disk.
    disk_bytes: u64,
}

/// The places of a file on the volume, which has that size.
pub(super) fn places(path: &Path, volume_bytes: u64) -> anyhow::Result<Placed> {
    let failed = |error: io::Error| of_file(path, error);
    let file = File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        return Err(of_file(path, "not a regular file; choose one on the volume's file system"));
    }
    let kind = fstatfs(&file).map_err(|errno| failed(errno.into()))?.f_type as u64;
    let Some((_, uuid_at)) = FILE_SYSTEMS.iter().find(|(known, _)| *known == kind) else {
        return Err(of_file(
            path,
            "its file system is neither ext4 nor XFS, and does not tell where on the device a file lies; use --range or --recording",
        ));
    };
    let (of, to) = (major(meta.dev()), minor(meta.dev()));
    let folder = PathBuf::from(format!("/sys/dev/block/{of}:{to}"));
    let Below { begin, disk_bytes } = below(&folder).map_err(failed)?.ok_or_else(|| {
        of_file(path, "its file system lies on LVM, RAID or the like, so its place on the volume is not known; use --range or --recording")
    })?;
    if disk_bytes != volume_bytes {
        return Err(of_file(
            path,
            format_args!(
                "its file system lies on a disk of {disk_bytes} bytes, and the volume has {volume_bytes}; choose a file that lies on the volume"
            ),
        ));
    }
    let found = places_of(&file).map_err(failed)?;
    let places = found.into_iter().map(|it| begin.saturating_add(it.start)..begin.saturating_add(it.end)).collect();
    let uuid = uuid_of(&file).or_else(|| uuid_on(Path::new(&format!("/dev/block/{of}:{to}")), *uuid_at).ok());
    Ok(Placed { places, uuid: uuid.map(|uuid| (begin + uuid_at, uuid)) })
}

/// The UUID on a device with a file system, which root alone may read.
fn uuid_on(device: &Path, uuid_at: u64) -> io::Result<[u8; 16]> {
    let mut uuid = [0; 16];
    File::open(device)?.read_exact_at(&mut uuid, uuid_at)?;
    Ok(uuid)
}

/// What a device of sysfs is; `None`: it is made of others.
fn below(folder: &Path) -> io::Result<Option<Below>> {
    if ["dm", "md"].iter().any(|kind| folder.join(kind).exists()) {
        return Ok(None);
    }
    let sectors = |path: PathBuf| -> io::Result<u64> {
        fs::read_to_string(path)?.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
    };
    let begin = if folder.join("partition").exists() { Some(sectors(folder.join("start"))?) } else { None };
    let disk = match begin {
        Some(_) => fs::canonicalize(folder)?.join("../size"),
        None => folder.join("size"),
    };
    Ok(Some(Below { begin: begin.unwrap_or(0) * SECTOR_BYTES, disk_bytes: sectors(disk)? * SECTOR_BYTES }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_begins_somewhere_on_its_disk() {
        let place = tempfile::tempdir().unwrap();
        let disk = place.path().join("sdx");
        let part = disk.join("sdx1");
        fs::create_dir_all(&part).unwrap();
        fs::write(disk.join("size"), "2048\n").unwrap();
        fs::write(part.join("size"), "1000\n").unwrap();
        assert_eq!(below(&disk).unwrap(), Some(Below { begin: 0, disk_bytes: 1 << 20 }));
        fs::write(part.join("partition"), "1\n").unwrap();
        fs::write(part.join("start"), "64\n").unwrap();
        assert_eq!(below(&part).unwrap(), Some(Below { begin: 32768, disk_bytes: 1 << 20 }));
        fs::create_dir(disk.join("dm")).unwrap();
        assert_eq!(below(&disk).unwrap(), None);
        assert!(below(&place.path().join("gone")).is_err());
    }
    #[test]
    fn the_superblock_has_the_uuid_where_the_kernel_does_not_tell_it() {
        let place = tempfile::tempdir().unwrap();
        let device = place.path().join("sdx1");
        fs::write(&device, [[0; 32].as_slice(), b"0123456789abcdef", &[0; 1 << 10]].concat()).unwrap();
        assert_eq!(uuid_on(&device, FILE_SYSTEMS[1].1).unwrap(), *b"0123456789abcdef");
        assert!(uuid_on(&device, FILE_SYSTEMS[0].1).is_err(), "too short for ext4");
    }
}
