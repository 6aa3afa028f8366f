// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a daemon can't start, or ended: what, where, and what to do.
//!
//! Nothing was changed by a start that was refused; only [`ServeError::Io`],
//! [`ServeError::Doubtful`] and [`ServeError::Torn`] can come later.

mod devices;
mod disposable;
mod memory;
mod origins;

use std::io;
use std::path::PathBuf;

use flashfront_device::real::{OpenError as DeviceOpenError, ReactorError, is_uri};
use flashfront_engine::format::SuperblockError;
use flashfront_engine::{BLOCK_BYTES, OpenError};

pub use devices::DevicesError;
pub use disposable::DisposableError;
pub use memory::MemoryError;
pub use origins::OriginsError;

use super::limit::LimitError;
use crate::config::{ConfigError, Size};
use crate::failure::FailureReadError;
use crate::frontend::nbd::{BindError as NbdBindError, TlsError};
use crate::http::HttpError;
use crate::report::counted;
use crate::socket::BindError;
use crate::stale::ChangeError;
use crate::superblock::{CopyError, SuperblockReadError};

/// Why the daemon could not start, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The config can't be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// This program can't take over from a running daemon.
    #[error("upgrade: {0}")]
    Upgrade(String),
    /// The cache can't be made void, so that its origins may be written without it.
    #[error("the cache can't be detached: {0}")]
    Detach(String),
    /// A device can't be opened.
    #[error(transparent)]
    Device(#[from] DeviceOpenError),
    /// A device does not answer.
    #[error(
        "{path} does not answer: nothing came back for {limit}. {see}; start again when it answers, or give it more time with --device-timeout",
        path = path.display(), limit = humantime::format_duration(*limit), see = see(is_uri(path))
    )]
    Silent {
        /// The cache device.
        path: PathBuf,
        /// The time that it had.
        limit: std::time::Duration,
    },
    /// The folder for FUSE can't be used.
    #[cfg(feature = "fuse")]
    #[error(transparent)]
    Fuse(#[from] crate::frontend::fuse::PlaceError),
    /// The block device can't be made.
    #[cfg(feature = "ublk")]
    #[error(transparent)]
    Ublk(#[from] crate::frontend::ublk::UblkError),
    /// A cargo feature is not there.
    #[error(
        "this flashfront was built without {what}; build it with the cargo feature `{feature}`, or serve another way"
    )]
    NotBuilt {
        /// The flag.
        what: &'static str,
        /// The feature.
        feature: &'static str,
    },
    /// The kernel offers no way to do I/O.
    #[error(transparent)]
    Reactor(#[from] ReactorError),
    /// The superblock can't be used.
    #[error(transparent)]
    Superblock(#[from] SuperblockReadError),
    /// The cache device is missing, or nothing can be read of it.
    #[error("{0}{advice}", advice = missing_advice(.0))]
    CacheMissing(Box<ServeError>),
    /// A flush failed, and no client has been told until the end of the stop.
    #[error(
        "{0}: a flush failed, so what clients have written to it past the cache since their last FLUSH may be lost, whatever later flushes say; look at the device (the log has its error) and check what is on it (fsck)"
    )]
    Doubtful(String),
    /// A part of what an origin is to have as a whole was sent, and the rest was not taken.
    #[error(
        "{}: it has taken only a part of what goes to it as a whole, so it was not flushed; the next start replays the log, and sends all of it",
        path.display()
    )]
    Torn {
        /// The origin.
        path: PathBuf,
    },
    /// A cache device of two can't be used.
    #[error(
        "{error}; the other half of this mirrored cache, {other}, is there: if this one will not come back, `flashfront serve --cache {other} --without-mirror` serves that alone, and whatever only this one holds is lost",
        other = other.display()
    )]
    HalfMissing {
        /// The error of the other member.
        error: Box<ServeError>,
        /// The member that is there.
        other: PathBuf,
    },
    /// The state folder's record of changes can't be read.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// Whether the cache device failed can't be read.
    #[error(transparent)]
    FailureRead(#[from] FailureReadError),
    /// The last run ended with the cache device failing.
    #[error(
        "{path}: this cache device failed in the last run, so its log may hold dirty blocks that are older than the origin. {advice}",
        path = path.display(),
        advice = failed_advice(*dirty)
    )]
    CacheFailed {
        /// The cache device.
        path: PathBuf,
        /// Dirty blocks at the end.
        dirty: u64,
    },
    /// Replay is not possible.
    #[error("{path}: {error}", path = path.display())]
    Open {
        /// The cache device.
        path: PathBuf,
        /// Why.
        error: OpenError,
    },
    /// A dirty limit that the cache can't hold.
    #[error("{path}: {error}", path = path.display())]
    DirtyLimit {
        /// The cache device.
        path: PathBuf,
        /// Why.
        error: LimitError,
    },
    /// Ordered destage needs format version 2.
    #[error("{path}: ordered destage needs format version 2, and this cache has version 1; run `flashfront volume convert`", path = path.display())]
    OrderNeedsVersion2 {
        /// The cache device.
        path: PathBuf,
    },
    /// TLS can't be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A front-end can't listen.
    #[error(transparent)]
    Nbd(#[from] NbdBindError),
    /// The control socket can't be made.
    #[error(transparent)]
    Control(#[from] BindError),
    /// The HTTP port can't be opened.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// An unknown policy.
    #[error("no policy is named `{name}`; there are: {known}")]
    Policy {
        /// The policy that the config names.
        name: String,
        /// The policies that exist.
        known: String,
    },
    /// The kernel refuses.
    #[error("{what}: {source}")]
    Io {
        /// Doing what.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// The devices belong to different caches, or are not apart from each other.
    #[error(transparent)]
    Devices(#[from] DevicesError),
    /// No cache can be made of what lies on a disposable cache device.
    #[error(transparent)]
    Disposable(#[from] DisposableError),
    /// The origins are not what the cache was made for, or not as it left them.
    #[error(transparent)]
    Origins(#[from] OriginsError),
    /// Buffers and threads do not fit the machine or the cache.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

impl ServeError {
    /// Says what else can be done if the cache device is missing or unreadable.
    pub(super) fn of_cache_device(error: DeviceOpenError) -> Self {
        match error {
            DeviceOpenError::Io { .. } => Self::CacheMissing(Box::new(error.into())),
            other => other.into(),
        }
    }

    /// The error for a superblock that can't be read. A superblock of a newer format is there, and
    /// can.
    pub(super) fn of_superblock(error: SuperblockReadError) -> Self {
        match error {
            SuperblockReadError::Unusable { first: CopyError::Unusable(SuperblockError::Newer { .. }), .. } => {
                error.into()
            }
            SuperblockReadError::Read { .. } | SuperblockReadError::Unusable { .. } => {
                Self::CacheMissing(Box::new(error.into()))
            }
            other => other.into(),
        }
    }
}

/// Says where the reason stands when a device does not answer.
pub(super) const fn see(is_export: bool) -> &'static str {
    match is_export {
        true => "See whether the NBD server runs and can be reached (nbdinfo URI)",
        false => "See `dmesg`",
    }
}

/// Advises to serve the origin alone. The advice is empty if the device is there and only refused
/// to this user: its dirty data can be had.
fn missing_advice(error: &ServeError) -> &'static str {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    match error {
        ServeError::Device(DeviceOpenError::Io { error, .. })
            if matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem) =>
        {
            ""
        }
        _ => {
            "; if it can't be brought back, or the origin is needed before: `flashfront serve --without-cache` serves the origin without it, and says first what may be missing"
        }
    }
}

/// Says what was being done when the kernel refused.
pub(super) fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> ServeError {
    let what = what.into();
    move |source| ServeError::Io { what, source }
}

fn failed_advice(dirty: u64) -> String {
    let size = Size(dirty.saturating_mul(BLOCK_BYTES));
    match dirty {
        0 => "All data had reached the origin by then: take the cache off with `flashfront detach`, or make a new one with `flashfront format --force`; nothing is lost by either".to_owned(),
        _ => format!(
            "{} ({size}) had not reached the origin. `flashfront detach --force` or `flashfront format --force` gives that up; `flashfront repair --dry-run` lists it; --accept-changed-origin replays the log as it is, if the origin was not changed since",
            counted(dirty, "block")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_that_this_user_may_not_open_is_not_called_missing() {
        let said = |kind: io::ErrorKind| {
            let error = DeviceOpenError::Io { path: "/c".into(), doing: "open", error: kind.into() };
            ServeError::of_cache_device(error).to_string()
        };
        assert!(said(io::ErrorKind::NotFound).contains("--without-cache"));
        let refused = said(io::ErrorKind::PermissionDenied);
        assert!(refused.contains("read and write it") && !refused.contains("--without-cache"), "{refused}");
        assert!(!said(io::ErrorKind::ReadOnlyFilesystem).contains("--without-cache"));
    }
}
