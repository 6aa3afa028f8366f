// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who a device is, and that nobody else uses it.
//!
//! Two guards: `O_EXCL` on block devices (the kernel refuses if it is mounted, a swap area, or
//! part of a device-mapper table) and `flock` on everything, which stops a second daemon and is
//! what udev honours on block devices. Both end with the process, however it ends.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// How a device is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read and write; nobody else may have it open through Flashfront, nor mounted.
    Exclusive,
    /// Read only; others may read too, but not while somebody has exclusive access.
    ReadOnly,
}

/// Locks the file for as long as it is open; false if this file system has no locks. `WOULDBLOCK` if somebody else has it.
pub(super) fn lock(file: impl AsFd, access: Access) -> Result<bool, Errno> {
    let operation = match access {
        Access::Exclusive => FlockOperation::NonBlockingLockExclusive,
        Access::ReadOnly => FlockOperation::NonBlockingLockShared,
    };
    locked(flock(file, operation))
}

fn locked(result: Result<(), Errno>) -> Result<bool, Errno> {
    match result {
        // Network file systems without locks: nothing to guard with.
        Err(Errno::NOLCK | Errno::OPNOTSUPP) => Ok(false),
        result => result.map(|()| true),
    }
}

/// What tells one device from another, whatever path it was opened by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its size.
    pub size_bytes: u64,
    /// The serial number or world-wide name of a block device, where the kernel knows it. Stays
    /// the same over reboots, and from machine to machine.
    pub serial: Option<String>,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    File { dev: u64, ino: u64 },
    Block { rdev: u64 },
}

impl Identity {
    pub(super) fn of(file: &File, size_bytes: u64) -> std::io::Result<Self> {
        let meta = file.metadata()?;
        let (place, serial) = if meta.file_type().is_block_device() {
            (Place::Block { rdev: meta.rdev() }, serial(meta.rdev()))
        } else {
            (Place::File { dev: meta.dev(), ino: meta.ino() }, None)
        };
        Ok(Self { size_bytes, serial, place })
    }

    /// Whether both are one and the same device: also through symbolic and hard links, and through
    /// several nodes in /dev. Valid only while both are open.
    #[must_use]
    pub fn same_device(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

/// The sysfs folder of a block device.
pub(super) fn sysfs(rdev: u64) -> std::path::PathBuf {
    format!("/sys/dev/block/{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev)).into()
}

/// The first non-empty line among the places where drivers keep a name, and for a partition the
/// disk's name with the partition's number.
fn serial(rdev: u64) -> Option<String> {
    let folder = sysfs(rdev);
    let line = |path: &Path| {
        let text = std::fs::read_to_string(path).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    };
    if let Some(partition) = line(&folder.join("partition")) {
        let disk = name(&folder.join(".."), &line)?;
        return Some(format!("{disk}-part{partition}"));
    }
    name(&folder, &line)
}

fn name(folder: &Path, line: &dyn Fn(&Path) -> Option<String>) -> Option<String> {
    // NVMe and recent SCSI; SCSI; NVMe and virtio; device-mapper.
    ["wwid", "device/wwid", "serial", "device/serial", "dm/uuid"].iter().find_map(|place| line(&folder.join(place)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_locks_is_told_from_one_that_has_locked() {
        assert_eq!(locked(Ok(())), Ok(true));
        assert_eq!((locked(Err(Errno::NOLCK)), locked(Err(Errno::OPNOTSUPP))), (Ok(false), Ok(false)));
        assert_eq!(locked(Err(Errno::WOULDBLOCK)), Err(Errno::WOULDBLOCK));
    }
}
