// SPDX-License-Identifier: MIT OR Apache-2.0
//! The identity of a device, and locks that keep others from using it.
//!
//! There are three guards. `O_EXCL` is for block devices: the kernel refuses if the device is
//! mounted, a swap area, or part of a device-mapper table. `flock` on everything stops a second
//! daemon, and udev honours it on block devices. A lock of all bytes of a file meets users of a
//! part of it through a loop device (`storage::guard`). All end with the process, however it ends.
#![expect(
    unsafe_code,
    reason = "a lock of a range that belongs to the open file; rustix has those of the process only"
)]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::storage::Store;

/// How a device is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read and write; no other process may have it open through Flashfront, or mounted.
    Exclusive,
    /// Read only; others may read too, but not while a process has exclusive access.
    ReadOnly,
}

/// Locks the file for as long as it is open; false if this file system has no locks. `WOULDBLOCK`
/// if another process has it.
pub(super) fn lock(file: &File, is_block: bool, access: Access) -> Result<bool, Errno> {
    let operation = match access {
        Access::Exclusive => FlockOperation::NonBlockingLockExclusive,
        Access::ReadOnly => FlockOperation::NonBlockingLockShared,
    };
    let flocked = flocked(file, operation)?;
    if !is_block {
        range_locked(file, access == Access::Exclusive, 0, u64::MAX)?;
    }
    Ok(flocked)
}

/// Takes a lock of the whole file; false if this file system has none.
pub(super) fn flocked(file: impl AsFd, operation: FlockOperation) -> Result<bool, Errno> {
    locked(flock(file, operation))
}

/// Locks bytes of a file for as long as it is open (fcntl(2), "open file description locks").
///
/// False if this file system has no such locks. `BADF` if the file isn't open for the kind of
/// access that the lock is for.
pub(super) fn range_locked(file: &File, exclusive: bool, from: u64, to: u64) -> Result<bool, Errno> {
    // SAFETY: all fields are numbers, for which zeroes are a value.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK } as _;
    range.l_whence = libc::SEEK_SET as _;
    range.l_start = libc::off_t::try_from(from).unwrap_or(libc::off_t::MAX);
    // 0: up to the end, wherever that will be.
    range.l_len = libc::off_t::try_from(to.saturating_sub(from)).unwrap_or(0);
    // SAFETY: the call reads a `struct flock` from the pointer.
    let status = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) };
    let errno = || Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
    match if status == 0 { Ok(()) } else { Err(errno()) } {
        Err(Errno::ACCESS) => Err(Errno::WOULDBLOCK),
        // The file system knows no locks of ranges.
        Err(Errno::INVAL | Errno::NOSYS) => Ok(false),
        result => locked(result),
    }
}

fn locked(result: Result<(), Errno>) -> Result<bool, Errno> {
    match result {
        // Network file systems without locks: nothing to guard with.
        Err(Errno::NOLCK | Errno::OPNOTSUPP) => Ok(false),
        result => result.map(|()| true),
    }
}

/// The identity of a device, whatever path it was opened by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The size.
    pub size_bytes: u64,
    /// The serial number or world-wide name of a block device, where the kernel knows it. Stays
    /// the same over reboots, and from machine to machine.
    pub serial: Option<String>,
    store: Store,
}

impl Identity {
    pub(super) fn of(file: &File, size_bytes: u64) -> std::io::Result<Self> {
        let meta = file.metadata()?;
        let serial = if meta.file_type().is_block_device() { serial(meta.rdev()) } else { None };
        Ok(Self { size_bytes, serial, store: Store::of_meta(&meta) })
    }

    /// Makes the identity of what is no file. Its store is its URI. The server of an export tells
    /// no serial number.
    pub(super) fn of_remote(storage: &super::storage::Storage, size_bytes: u64, serial: Option<String>) -> Self {
        Self { size_bytes, serial, store: storage.top() }
    }

    /// Whether both are one and the same device: also through symbolic and hard links, and through
    /// several nodes in /dev. Valid only while both are open.
    #[must_use]
    pub fn same_device(&self, other: &Self) -> bool {
        self.store == other.store
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
