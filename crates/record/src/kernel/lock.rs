// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks a device for one recording at a time, and removes what a killed one has left.
//!
//! A file in /run is locked while a device is recorded, and removed by a recording that has taken
//! everything down. A file that is there and not locked is of a killed recording. Then the kernel's
//! objects under our name are ours to remove.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use super::target::Target;
use crate::error::RecordError;

/// Held while a device is recorded.
pub(super) struct Lock {
    path: PathBuf,
    _file: File,
    /// Whether a recording before this one was killed.
    pub(super) is_leftover: bool,
}

impl Lock {
    pub(super) fn take(target: &Target) -> Result<Self, RecordError> {
        let path = PathBuf::from(format!("/run/flashfront-record-{}.lock", target.numbers));
        let failed = |source: io::Error| RecordError::Device { path: path.clone(), source };
        loop {
            let is_leftover = path.exists();
            let file =
                File::options().create(true).truncate(false).write(true).mode(0o600).open(&path).map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(RecordError::Busy { path: target.path.clone() }),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
            // The one before may have removed it meanwhile: then this lock is on nothing.
            if is_same(&file, &path) {
                return Ok(Self { path, _file: file, is_leftover });
            }
        }
    }

    /// Everything is taken down.
    pub(super) fn done(self) {
        // A file that stays makes the next recording look for leftovers that are not there.
        let _ = fs::remove_file(&self.path);
    }
}

fn is_same(file: &File, path: &PathBuf) -> bool {
    let (Ok(one), Ok(other)) = (file.metadata(), fs::metadata(path)) else { return false };
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}
