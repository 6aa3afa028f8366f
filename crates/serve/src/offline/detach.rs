// SPDX-License-Identifier: MIT OR Apache-2.0
//! Takes a cache off its origin, so that what it holds can never come back.
//!
//! Dirty data is a refusal: it is counted by reading checkpoint and log, and not believed from the
//! superblock (but for a device that failed). Then both superblocks are wiped; the origin is opened
//! to be sure which one it is, and is not written (invariant 10).

use std::io;
use std::path::{Path, PathBuf};

use flashfront_device::real::{Access, DeviceFile, OpenError};
use flashfront_engine::format::{Mirror, PairingError, Superblock, choose};
use flashfront_engine::{BLOCK_BYTES, OriginId};
use serde::Serialize;

use super::format::make_void;
use super::reader::Reader;
use super::walk::looks;
use crate::config::Size;
use crate::failure::{self, FailureReadError};
use crate::report::counted;
use crate::stale::{self, Verdict};
use crate::superblock::{self, SuperblockReadError};
use crate::uuid::uuid_text;

/// The report of a detach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DetachReport {
    /// Named the cache.
    pub uuid: String,
    /// The cache device; it holds no cache any more.
    #[serde(serialize_with = "super::shown::shown")]
    pub cache: PathBuf,
    /// The second cache device, if it was given: it holds none either.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "super::shown::shown_if_any")]
    pub mirror: Option<PathBuf>,
    /// A second cache device was not given, and still holds what it held.
    pub other_remains: bool,
    /// The origin; it is complete by itself.
    #[serde(serialize_with = "super::shown::shown")]
    pub origin: PathBuf,
    /// Dirty blocks given up, with force.
    pub blocks_given_up: u64,
}

/// Why nothing was detached. Nothing was changed, but by [`DetachError::Write`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DetachError {
    /// Whether the cache failed can't be told.
    #[error(transparent)]
    Failure(#[from] FailureReadError),
    /// A device can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The device is no cache.
    #[error(transparent)]
    Superblock(#[from] SuperblockReadError),
    /// Half of a mirrored cache, or no pair.
    #[error("{cache}: {error}. Name both devices of a mirrored cache with --cache and --mirror; --force detaches the one named, and leaves the other", cache = cache.display())]
    Pairing {
        /// The cache device.
        cache: PathBuf,
        /// The fault of the pair.
        error: PairingError,
    },
    /// The cache belongs to another origin.
    #[error("{origin} is not the origin of the cache {cache} (that is volume `{expected}`, {size}); name the right one", origin = origin.display(), cache = cache.display())]
    OtherOrigin {
        /// The origin named.
        origin: PathBuf,
        /// The cache device.
        cache: PathBuf,
        /// The volume's name.
        expected: String,
        /// The size of the cache.
        size: Size,
    },
    /// The cache serves several origins.
    #[error("{cache} serves {count} origins; `detach` takes off a cache with one. Take off one of several with `flashfront volume remove`", cache = cache.display())]
    Several {
        /// The cache device.
        cache: PathBuf,
        /// How many.
        count: usize,
    },
    /// The cache holds what the origin does not have.
    #[error("{cache} holds {} ({}) that {origin} does not have; write that with `flashfront destage`, and detach then. --force gives it up for ever", counted(*dirty, "dirty block"), Size(*dirty * BLOCK_BYTES), cache = cache.display(), origin = origin.display())]
    Dirty {
        /// The cache device.
        cache: PathBuf,
        /// The origin.
        origin: PathBuf,
        /// How many.
        dirty: u64,
    },
    /// The cache device failed before everything had reached the origin.
    #[error("{cache} failed in its last run, when {} ({}) had not reached {origin}; --force gives that up for ever. To replay its log instead, older blocks and all: `flashfront serve --accept-changed-origin`", counted(*dirty, "block"), Size(*dirty * BLOCK_BYTES), cache = cache.display(), origin = origin.display())]
    CacheFailed {
        /// The cache device.
        cache: PathBuf,
        /// The origin.
        origin: PathBuf,
        /// How many.
        dirty: u64,
    },
    /// The cache can't be read as a whole, so it may hold dirty data.
    #[error("{cache} is damaged in {}, so it is not known whether it holds dirty data; see `flashfront check`, and `flashfront repair`, which keeps what it can. --force gives up whatever it holds", counted(*places as u64, "place"), cache = cache.display())]
    Damaged {
        /// The cache device.
        cache: PathBuf,
        /// How many.
        places: usize,
    },
    /// A device can't be read.
    #[error("{path}: can't be read: {source}", path = path.display())]
    Read {
        /// The device.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The cache device can't be written.
    #[error("{path}: can't be written: {source}; try again", path = path.display())]
    Write {
        /// The cache device.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Detaches; `force` gives up dirty data. `state`: the folder that remembers failures of caches
/// that could not be marked. `progress` hears of segments looked at, and of all segments, for each
/// of two devices.
///
/// # Errors
/// [`DetachError`].
pub fn detach(
    cache_path: &Path,
    mirror: Option<&Path>,
    origin_path: &Path,
    state: Option<&Path>,
    force: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<DetachReport, DetachError> {
    let mut members = Vec::new();
    for path in [Some(cache_path), mirror].into_iter().flatten() {
        let file = DeviceFile::open(path, Access::Exclusive)?;
        let superblock = superblock::read(&file)?.superblock;
        members.push((file, superblock));
    }
    let origin = DeviceFile::open(origin_path, Access::Exclusive)?;
    let second = members.get(1).map(|(_, superblock)| superblock);
    let mut superblock = choose(&members[0].1, second, force)
        .map_err(|error| DetachError::Pairing { cache: cache_path.to_owned(), error })?;
    failure::mark(state, &mut superblock)?;
    let other_remains = superblock.pairing.mirror != Mirror::None && second.is_none();
    let number = superblock.pairing.member;
    let [record] = &superblock.origins[..] else {
        return Err(DetachError::Several { cache: cache_path.to_owned(), count: superblock.origins.len() });
    };
    if origin.geometry().size_bytes > record.size_bytes {
        // The origin has grown. The volume still ends where it did.
        origin.use_bytes(record.size_bytes);
    }
    let verdict = stale::compare(&origin, record, superblock.clean)
        .map_err(|source| DetachError::Read { path: origin_path.to_owned(), source })?;
    if verdict == Verdict::Other || origin.geometry().size_bytes != record.size_bytes {
        return Err(DetachError::OtherOrigin {
            origin: origin_path.to_owned(),
            cache: cache_path.to_owned(),
            expected: record.name.clone(),
            size: Size(record.size_bytes),
        });
    }
    let whole = superblock.pairing.mirror == Mirror::Whole;
    let counting = members.iter().filter(|(_, it)| whole || it.pairing.member == number).map(|(file, _)| file);
    let (dirty, places) = dirty(counting, &superblock, progress);
    let (cache_path, origin_path) = (cache_path.to_owned(), origin_path.to_owned());
    if !force && places > 0 {
        return Err(DetachError::Damaged { cache: cache_path, places });
    }
    if !force && dirty > 0 {
        return Err(match superblock.failed {
            true => DetachError::CacheFailed { cache: cache_path, origin: origin_path, dirty },
            false => DetachError::Dirty { cache: cache_path, origin: origin_path, dirty },
        });
    }
    // The member that counts is wiped last: after a power cut the rest still says that it needs the
    // other.
    members.sort_by_key(|(_, it)| it.pairing.member == number);
    for (member, superblock) in &members {
        make_void(member, superblock)
            .map_err(|source| DetachError::Write { path: member.path().to_owned(), source })?;
    }
    // The other one is as old as the failure.
    if !other_remains {
        failure::forget(state, &superblock);
    }
    Ok(DetachReport {
        uuid: uuid_text(&superblock.uuid),
        cache: cache_path,
        mirror: mirror.map(Path::to_owned),
        other_remains,
        origin: origin_path,
        blocks_given_up: dirty,
    })
}

/// Counts dirty blocks, and damaged places that may hide more.
///
/// The log of a device that failed ends at the failure and doesn't know what was destaged after it.
/// There the last daemon's count is better.
///
/// Blocks are counted as a start would find them that drops clean data. Such a start goes on where
/// only clean data is torn. Both members of a mirrored cache are counted: where the log has decayed
/// on one, the other has it.
pub(crate) fn dirty<'a>(
    members: impl IntoIterator<Item = &'a DeviceFile>,
    superblock: &Superblock,
    progress: &mut dyn FnMut(u64, u64),
) -> (u64, usize) {
    dirty_of(members, superblock, None, progress)
}

/// Counts the dirty blocks of one volume, or of all, as [`dirty`] does.
pub(super) fn dirty_of<'a>(
    members: impl IntoIterator<Item = &'a DeviceFile>,
    superblock: &Superblock,
    of: Option<OriginId>,
    progress: &mut dyn FnMut(u64, u64),
) -> (u64, usize) {
    if superblock.failed {
        // What of it belongs to one volume is known only if that was recorded.
        let record = of.and_then(|id| superblock.origin(id)).filter(|record| record.dirty_blocks > 0);
        return (record.map_or(superblock.dirty_blocks, |record| record.dirty_blocks), 0);
    }
    let mut superblock = superblock.clone();
    superblock.pairing.clean_lost = true;
    let count = |device: &DeviceFile| {
        let mut reader = Reader { device, superblock: &superblock, damage: Vec::new() };
        let mut looked = looks(&superblock, 1, progress);
        let dirty = (0..superblock.lanes).map(|lane| {
            let live = reader.lane(lane, &mut looked).live;
            match of {
                Some(id) => live.iter().filter(|live| live.dirty && live.key.origin == id).count() as u64,
                None => live.dirty(),
            }
        });
        let dirty: u64 = dirty.sum();
        (dirty, reader.damage.len())
    };
    let counts = members.into_iter().map(count);
    counts.reduce(|one, other| (one.0.max(other.0), one.1.min(other.1))).unwrap_or_default()
}
