// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong with a real device: on opening, and per I/O.

use std::fmt;
use std::io;
use std::path::PathBuf;

use flashfront_engine::DeviceError;
use rustix::io::Errno;

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
                    _ => Ok(()),
                }
            }
            Self::Busy { path } => write!(
                f,
                "device busy: {} is in use by another process (a running flashfront, or mounted); stop or unmount it first",
                path.display()
            ),
            Self::Kind { path } => {
                write!(f, "{} is neither a regular file nor a block device; name one of those", path.display())
            }
            Self::ReadOnly { path } => write!(
                f,
                "{} is a read-only device; make it writable (blockdev --setrw DEVICE), or name another one",
                path.display()
            ),
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
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY => DeviceError::Unsupported,
        Errno::NODEV | Errno::NXIO | Errno::NOMEDIUM => DeviceError::Gone,
        _ => DeviceError::Io,
    }
}
