// SPDX-License-Identifier: MIT OR Apache-2.0
//! Origins that are not what the cache was made for, or not as it left them.

use std::io;
use std::path::{Path, PathBuf};

use flashfront_device::real::OpenBy;
use flashfront_engine::format::ORIGINS_MAX;
use flashfront_engine::{BLOCK_BYTES, VolumeError};

use crate::config::Size;
use crate::report::counted;

/// Why origins can't be served with a cache.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OriginsError {
    /// More origins than a cache can have.
    #[error("{given} volumes are too many to be served by one daemon; at most {ORIGINS_MAX}")]
    Volumes {
        /// How many.
        given: usize,
    },
    /// The cache has no origins.
    #[error("{path}: this cache belongs to no origin (it was detached); make a new one with `flashfront format`", path = .0.display())]
    Detached(PathBuf),
    /// The volumes that were named are not those of the cache.
    #[error(
        "{cache}: the cache was formatted for {expected} origin(s), {given} given; name each origin that it was formatted for",
        cache = cache.display()
    )]
    VolumeCount {
        /// The cache device.
        cache: PathBuf,
        /// The number of volumes in the superblock.
        expected: usize,
        /// The number of volumes that were named.
        given: usize,
    },
    /// The configuration names a volume that the cache doesn't have.
    #[error(
        "{cache}: the cache has no volume `{name}`, which the configuration names; there are: {known}. The cache decides which volumes there are: add it with `flashfront volume add`, or take it out of the file",
        cache = cache.display()
    )]
    NoSuchVolume {
        /// The cache device.
        cache: PathBuf,
        /// The volume of the configuration.
        name: String,
        /// The volumes of the cache.
        known: String,
    },
    /// The configuration gives a volume limits that can't be kept.
    #[error("volume `{name}`: {error}")]
    Shares {
        /// The volume.
        name: String,
        /// Why not.
        error: VolumeError,
    },
    /// Another writer has a volume in an object store open.
    #[error(
        "{origin}: {who} has the volume open to write (opening {epoch}); stop the daemon there, or see that it is dead and take the volume over with `flashfront serve --take-over`: what it has not sent to the store is lost to the volume then",
        origin = origin.display()
    )]
    OpenElsewhere {
        /// The URL.
        origin: PathBuf,
        /// The other writer.
        who: String,
        /// The number of its opening.
        epoch: u32,
    },
    /// A cache that is not served has what a volume in an object store lacks.
    #[error(
        "{origin}: {who} holds writes that the store lacks (opening {epoch}, closed); start the daemon of that cache and drain it, or give them up and take the volume over with `flashfront serve --take-over`",
        origin = origin.display()
    )]
    OwedElsewhere {
        /// The URL.
        origin: PathBuf,
        /// The writer that has closed the volume.
        who: String,
        /// The number of its opening.
        epoch: u32,
    },
    /// Nobody knows where an origin is.
    #[error(
        "{cache}: the cache does not know where the origin of its volume `{name}` is; name it: --origin PATH, or a [[volume]] table with that name in the configuration file",
        cache = cache.display()
    )]
    NoPath {
        /// The cache device.
        cache: PathBuf,
        /// The volume.
        name: String,
    },
    /// Another size than the cache knows.
    #[error(
        "{origin}: the origin has {found}, but its volume in the cache {cache} has {expected}: it is another device, or it was made smaller, and the end of the volume is gone. Name the right one, or give it its size again (of a file: truncate -s {expected_bytes} FILE); what was cut off is lost, unless the cache has it",
        origin = origin.display(), cache = cache.display(), found = Size(*found).told(), expected = Size(*expected).told(),
        expected_bytes = expected
    )]
    OriginSize {
        /// The origin.
        origin: PathBuf,
        /// The cache device.
        cache: PathBuf,
        /// The size in the superblock.
        expected: u64,
        /// The size of the device.
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
        /// The identity in the superblock.
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
        /// The change of the origin, and when it happened.
        how: String,
        /// The cache device.
        cache: PathBuf,
        /// Dirty blocks.
        dirty: u64,
        /// The cache is damaged, so that there may be more.
        damaged: bool,
    },
    /// The state folder can't remember that an origin changes, or has changed.
    #[error(
        "can't write into the state folder that {origin} {how} ({source}), so that its cache could bring old data back later; choose another folder with --state DIR, for all later starts too",
        origin = origin.display()
    )]
    Unremembered {
        /// The origin.
        origin: PathBuf,
        /// The change of the origin that could not be remembered.
        how: &'static str,
        /// Why.
        source: io::Error,
    },
}

impl OriginsError {
    /// Refuses a volume in an object store that somebody else holds.
    pub(in crate::daemon) fn held(origin: &Path, by: OpenBy) -> Self {
        let (origin, OpenBy { who, epoch, owes, .. }) = (origin.to_owned(), by);
        if owes { Self::OwedElsewhere { origin, who, epoch } } else { Self::OpenElsewhere { origin, who, epoch } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_that_shrank_is_told_what_is_lost() {
        let (origin, cache) = ("/o".into(), "/c".into());
        let said = OriginsError::OriginSize { origin, cache, expected: 1 << 30, found: 1 << 20 }.to_string();
        assert!(said.contains("has 1 MiB") && said.contains("truncate -s 1073741824"), "{said}");
        assert!(said.contains("cut off is lost"), "{said}");
    }
}
