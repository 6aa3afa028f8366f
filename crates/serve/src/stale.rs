// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stale guard: was an origin changed behind the cache's back?
//!
//! Origins are never marked, so their size, serial number and a hash of samples are kept in the
//! superblock at a clean stop and compared at the next start. After a crash only size and serial
//! can be compared, because the daemon's own last writes are not in the hash. What is known of a change by
//! other means, [`Change`] remembers.

use std::io;
use std::os::unix::fs::MetadataExt;

use flashfront_device::real::{DeviceFile, fingerprint};
use flashfront_engine::format::OriginRecord;

mod change;

pub use change::{Change, ChangeError, How};
pub(crate) use change::{remember, remembered, settle};

/// What the guard found.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is as it was.
    Unchanged,
    /// The last stop wasn't clean; the content can't be compared.
    Unknown,
    /// The same device, with other content.
    Changed,
    /// Another device.
    Other,
}

/// What tells an origin from others and survives a restart: the serial number of a block device, the
/// inode of a file.
///
/// # Errors
/// When the device can't be asked.
pub fn identity(device: &DeviceFile) -> io::Result<String> {
    if let Some(serial) = &device.identity().serial {
        return Ok(serial.chars().take(64).collect());
    }
    if device.is_block_device() {
        return Ok(String::new());
    }
    Ok(format!("inode {}", device.file().metadata()?.ino()))
}

/// Writes what can be known of an origin now into its record.
///
/// # Errors
/// When the device can't be read.
pub fn record(device: &DeviceFile, record: &mut OriginRecord) -> io::Result<()> {
    let print = fingerprint(device)?;
    record.identity = identity(device)?;
    record.fingerprint = print.content;
    record.changed_ns = print.changed_ns.unwrap_or(0);
    Ok(())
}

/// Compares an origin with its record; `clean`: the last stop was.
///
/// # Errors
/// When the device can't be read.
pub fn compare(device: &DeviceFile, record: &OriginRecord, clean: bool) -> io::Result<Verdict> {
    let identity = identity(device)?;
    let same_place = identity.is_empty() || record.identity.is_empty() || identity == record.identity;
    if device.is_block_device() && !same_place {
        return Ok(Verdict::Other);
    }
    if !clean {
        // A file may have been moved or restored; without the hash nothing speaks for it.
        return Ok(if same_place { Verdict::Unknown } else { Verdict::Other });
    }
    let print = fingerprint(device)?;
    let same_content = print.content == record.fingerprint;
    let untouched = print.changed_ns.unwrap_or(0) == record.changed_ns;
    Ok(match (same_place, same_content) {
        // A copy or a restored backup has another inode, and its own time.
        (false, true) => Verdict::Unchanged,
        (false, false) => Verdict::Other,
        (true, true) if untouched => Verdict::Unchanged,
        (true, _) => Verdict::Changed,
    })
}
