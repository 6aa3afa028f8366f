// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a daemon can't start, or ended: what, where, and what to do.
//!
//! Nothing was changed by a start that was refused; only [`ServeError::Io`] and
//! [`ServeError::Doubtful`] can come later.

use std::io;
use std::path::PathBuf;

use flashfront_device::real::{OpenError as DeviceOpenError, ReactorError, Shared};
use flashfront_engine::format::{ORIGINS_MAX, PairingError, SuperblockError};
use flashfront_engine::{BLOCK_BYTES, OpenError};

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
    /// A device can't be opened.
    #[error(transparent)]
    Device(#[from] DeviceOpenError),
    /// A device does not answer.
    #[error(
        "{path} does not answer: nothing came back for {limit}. See `dmesg`; start again when it answers, or give it more time with --device-timeout",
        path = path.display(), limit = humantime::format_duration(*limit)
    )]
    Silent {
        /// Which.
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
    /// No way to do I/O.
    #[error(transparent)]
    Reactor(#[from] ReactorError),
    /// The superblock can't be used.
    #[error(transparent)]
    Superblock(#[from] SuperblockReadError),
    /// The cache device is missing, or nothing can be read of it.
    #[error("{0}{advice}", advice = missing_advice(.0))]
    CacheMissing(Box<ServeError>),
    /// Two cache devices that are no pair, or one that is no whole cache.
    #[error("{path}{and}: {error}. {advice}", path = path.display(), and = other.as_ref().map_or_else(String::new, |it| format!(", {}", it.display())))]
    Pairing {
        /// The cache device.
        path: PathBuf,
        /// The second one, if it was given.
        other: Option<PathBuf>,
        /// What is wrong.
        error: PairingError,
        /// What to do.
        advice: &'static str,
    },
    /// At the end of a stop: a flush failed, and nobody has been told.
    #[error(
        "{0}: a flush failed, so what clients have written to it past the cache since their last FLUSH may be lost, whatever later flushes say; look at the device (the log has its error) and check what is on it (fsck)"
    )]
    Doubtful(String),
    /// A mirror was named, but the cache has none.
    #[error("{path}: this cache has no mirror; serve it without --mirror, and make one with `flashfront mirror add`", path = path.display())]
    NotMirrored {
        /// The cache device that is there.
        path: PathBuf,
    },
    /// A cache device of two can't be used.
    #[error(
        "{error}; the other half of this mirrored cache, {other}, is there: if this one will not come back, `flashfront serve --cache {other} --without-mirror` serves that alone, and whatever only this one holds is lost",
        other = other.display()
    )]
    HalfMissing {
        /// What is wrong with it.
        error: Box<ServeError>,
        /// The one that is there.
        other: PathBuf,
    },
    /// Two of cache, mirror and origins are one, or use the same bytes.
    #[error("{one} and {other} are the same device{}; a cache needs a device of its own, and so does each origin", crate::storage::in_brackets(shared), one = one.display(), other = other.display())]
    SameDevice {
        /// A device.
        one: PathBuf,
        /// Another one.
        other: PathBuf,
        /// How both lead to the same bytes.
        shared: Shared,
    },
    /// The origin is a cache.
    #[error(
        "{origin} holds a Flashfront cache; are --cache and --origin swapped? If it is to be an origin, take that cache off first, with `flashfront detach`",
        origin = .0.display()
    )]
    OriginIsCache(PathBuf),
    /// The cache has no origins.
    #[error("{path}: this cache belongs to no origin (it was detached); make a new one with `flashfront format`", path = .0.display())]
    Detached(PathBuf),
    /// The volumes named are not those of the cache.
    #[error(
        "{cache}: the cache was formatted for {expected} origin(s), {given} given; name each origin that it was formatted for",
        cache = cache.display()
    )]
    VolumeCount {
        /// The cache device.
        cache: PathBuf,
        /// What the superblock says.
        expected: usize,
        /// What was given.
        given: usize,
    },
    /// Another size than the cache knows.
    #[error(
        "{origin}: the origin has {found}, but the cache {cache} was made for one of {expected}: it is another device, or it was resized. Name the right one, or give it its old size again ({advice}). Does its new size have to stay? Then drain and `detach` the cache at the old size first; or format the cache anew, which gives up what only the cache holds",
        origin = origin.display(), cache = cache.display(), found = Size(*found).told(), expected = Size(*expected).told(),
        advice = resize(*found, *expected)
    )]
    OriginSize {
        /// The origin.
        origin: PathBuf,
        /// The cache device.
        cache: PathBuf,
        /// What the superblock says.
        expected: u64,
        /// What the device has.
        found: u64,
    },
    /// Another device than the cache knows.
    #[error(
        "{origin} is not the origin that the cache {cache} was made for (that was {expected}); name the right one, or say --accept-changed-origin if you know that the content is the same",
        origin = origin.display(), cache = cache.display()
    )]
    OtherOrigin {
        /// The origin.
        origin: PathBuf,
        /// The cache device.
        cache: PathBuf,
        /// Its recorded identity.
        expected: String,
    },
    /// Changed behind our back, and the cache holds dirty data.
    #[error(
        "{origin} was changed since the last clean stop, and the cache {cache} holds {} ({size}) for its old content; writing that could destroy the new one. Restore the origin, or say --accept-changed-origin to keep what is dirty and write it over the origin",
        counted(*dirty, "dirty block"),
        origin = origin.display(), cache = cache.display(), size = Size(dirty * BLOCK_BYTES)
    )]
    OriginChanged {
        /// The origin.
        origin: PathBuf,
        /// The cache device.
        cache: PathBuf,
        /// Dirty blocks.
        dirty: u64,
    },
    /// The state folder remembers that the origin was changed, and the cache holds dirty data.
    #[error(
        "{origin} {how}, and the cache {cache} holds {} ({size}) from before{unsure}; writing that could destroy what is newer. Give it up with `flashfront detach --force`, or say --accept-changed-origin to keep it and write it over the origin",
        counted(*dirty, "dirty block"),
        origin = origin.display(), cache = cache.display(), size = Size(dirty * BLOCK_BYTES),
        unsure = if *damaged { ", or more, as it is damaged" } else { "" }
    )]
    OriginNewer {
        /// The origin.
        origin: PathBuf,
        /// What happened to it, and when.
        how: String,
        /// The cache device.
        cache: PathBuf,
        /// Dirty blocks.
        dirty: u64,
        /// The cache is damaged, so that there may be more.
        damaged: bool,
    },
    /// What is remembered of changes can't be read.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// Whether the cache device failed can't be read.
    #[error(transparent)]
    FailureRead(#[from] FailureReadError),
    /// The state folder can't remember that an origin changes, or has changed.
    #[error(
        "can't write into the state folder that {origin} {how} ({source}), so that its cache could bring old data back later; choose another folder with --state DIR, for all later starts too",
        origin = origin.display()
    )]
    Unremembered {
        /// The origin.
        origin: PathBuf,
        /// What happens to it, or has happened.
        how: &'static str,
        /// Why.
        source: io::Error,
    },
    /// More origins than a cache can have.
    #[error("{given} volumes are too many to be served by one daemon; at most {ORIGINS_MAX}")]
    Volumes {
        /// How many.
        given: usize,
    },
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
    /// Too little RAM for the lanes.
    #[error(
        "buffer_bytes is {given}, and must be at least {least} for a cache of {lanes} lane{s}, threads = {threads} and lane_threads = {lane_threads}; without it that much is taken", given = Size(*given), least = Size(*least), s = plural(*lanes as usize)
    )]
    BufferSmall {
        /// By the configuration.
        given: u64,
        /// Needed.
        least: u64,
        /// Lanes.
        lanes: u32,
        /// Threads.
        threads: usize,
        /// Threads of lanes.
        lane_threads: usize,
    },
    /// Threads that nobody would use.
    #[error(
        "lane_threads is {given}, but this cache has {lanes} lane{s}, of which each can use one; take at most {lanes}, or format with --lanes", s = plural(*lanes as usize)
    )]
    IdleLaneThreads {
        /// What was asked for.
        given: usize,
        /// Lanes.
        lanes: u32,
    },
    /// A lane's arena has numbers for so much.
    #[error(
        "ram_front_bytes is {given}, for lanes with threads of their own at most {most} with {lanes} lanes; take less, or leave lane_threads out"
    )]
    FrontOfLanes {
        /// What was asked for.
        given: Size,
        /// What is possible.
        most: Size,
        /// Lanes.
        lanes: u32,
    },
    /// The kernel has none.
    #[error(
        "huge_pages: this kernel gives none, {setting} says `never` or can't be read; write `madvise` to it, or leave huge_pages out"
    )]
    NoHugePages {
        /// Where the kernel says so.
        setting: &'static str,
    },
    /// More RAM than there is.
    #[error(
        "buffer_bytes and ram_front_bytes are {given} together, but this machine has {most} of RAM; choose less (160 MiB of buffers are enough for most), or fewer threads",
        most = most.told()
    )]
    BufferLarge {
        /// What was asked for.
        given: Size,
        /// What there is.
        most: Size,
    },
    /// A dirty limit that the cache can't hold.
    #[error("{path}: {error}", path = path.display())]
    DirtyLimit {
        /// The cache device.
        path: PathBuf,
        /// Why.
        error: LimitError,
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
    /// No metrics.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// An unknown policy.
    #[error("no policy is named `{name}`; there are: {known}")]
    Policy {
        /// What was asked for.
        name: String,
        /// What there is.
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

/// Not of a device that is there, and only not for this user: what is dirty on it can be had.
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

/// How an origin that is a file gets its old size back, and what that costs.
fn resize(found: u64, expected: u64) -> String {
    let cost = match found > expected {
        true => "if nothing was written behind that",
        false => "but what was cut off is gone, unless the cache has it",
    };
    format!("of a file: truncate -s {expected} FILE, {cost}")
}

const fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
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
    fn a_resized_origin_is_told_how_to_go_on() {
        let said = |found, expected| {
            ServeError::OriginSize { origin: "/o".into(), cache: "/c".into(), expected, found }.to_string()
        };
        let shrunk = said(1 << 20, 1 << 30);
        assert!(shrunk.contains("has 1 MiB") && shrunk.contains("truncate -s 1073741824"), "{shrunk}");
        assert!(shrunk.contains("cut off is gone") && !said(1 << 30, 1 << 20).contains("cut off"), "{shrunk}");
    }

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
