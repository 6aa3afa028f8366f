// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong with a real device: on opening, and per I/O.

use std::fmt;
use std::io;
use std::path::PathBuf;

use flashfront_engine::DeviceError;
use rustix::io::Errno;

use super::storage::Shared;

/// Why a device could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The system call failed.
    Io {
        /// Which file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// How it failed.
        error: io::Error,
    },
    /// Somebody else has it.
    Busy {
        /// Which file.
        path: PathBuf,
        /// How it leads to what is in use, if that lies behind it; else empty.
        way: String,
        /// What is in use: the file, or what lies behind it.
        place: PathBuf,
        /// The user of it, if that can be seen.
        by: Option<String>,
    },
    /// A loop device uses the same bytes.
    Attached {
        /// Which file.
        path: PathBuf,
        /// The loop device.
        device: PathBuf,
        /// How both lead to the same bytes.
        shared: Shared,
    },
    /// Neither a regular file nor a block device.
    Kind {
        /// Which file.
        path: PathBuf,
    },
    /// A block device that takes no writes, and that some drivers open for them all the same.
    ReadOnly {
        /// Which file.
        path: PathBuf,
    },
    /// A network block device that can't be reached, or can't be used as it is.
    Nbd {
        /// Its URI.
        path: PathBuf,
        /// What is wrong.
        what: String,
        /// What to do.
        todo: &'static str,
    },
    /// A volume in an object store that can't be opened.
    Objects {
        /// Why, and what to do.
        error: flashfront_bucket::Error,
    },
    /// The size can't be divided into sectors, or there is none.
    Size {
        /// Which file.
        path: PathBuf,
        /// Its size.
        size_bytes: u64,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, doing, error } => {
                write!(f, "cannot {doing} {}: {error}", path.display())?;
                match error.kind() {
                    // A read-only block device too is refused so.
                    io::ErrorKind::PermissionDenied => {
                        f.write_str("; it takes a user who may read and write it, and a device that is not read-only")
                    }
                    io::ErrorKind::NotFound => f.write_str(
                        "; is the device connected, or the file system of the file mounted, and is the name right?",
                    ),
                    _ => Ok(()),
                }
            }
            Self::Busy { path, way, place, by } => {
                let by = by.as_deref().unwrap_or("another process (a running flashfront, or mounted)");
                let (path, place) = (path.display(), place.display());
                if way.is_empty() {
                    write!(f, "device busy: {path} is in use by {by}; stop or unmount it first")
                } else {
                    write!(f, "device busy: {way}, and {place} is in use by {by}; stop or unmount it first")
                }
            }
            Self::Attached { path, device, shared } => {
                let (path, device) = (path.display(), device.display());
                let how = match shared.is_of_first() {
                    true => format!("{path} is attached to {device}"),
                    false => format!("{path} and {device} use the same bytes"),
                };
                write!(
                    f,
                    "{how}, through which others can change it ({shared}); use that device, or detach it first (losetup --detach {device})"
                )
            }
            Self::Kind { path } => {
                write!(f, "{} is neither a regular file nor a block device; name one of those", path.display())
            }
            Self::ReadOnly { path } => write!(
                f,
                "{} is a read-only device; make it writable (blockdev --setrw DEVICE), or name another one",
                path.display()
            ),
            Self::Nbd { path, what, todo } => write!(f, "cannot open {}: {what}; {todo}", path.display()),
            Self::Objects { error } => write!(f, "cannot open {error}"),
            Self::Size { path, size_bytes: 0 } => {
                write!(f, "{} is empty; give it a size first (truncate -s SIZE FILE)", path.display())
            }
            Self::Size { path, size_bytes } => write!(
                f,
                "the size of {} is {size_bytes} bytes, which is not a multiple of 512; extend it (truncate -s %512 FILE)",
                path.display()
            ),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// The engine's word for an error number.
pub(super) fn device_error(errno: Errno) -> DeviceError {
    match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => DeviceError::NoSpace,
        Errno::ROFS | Errno::PERM | Errno::ACCESS => DeviceError::ReadOnly,
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY => DeviceError::Unsupported,
        Errno::NODEV | Errno::NXIO | Errno::NOMEDIUM => DeviceError::Gone,
        _ => DeviceError::Io,
    }
}
