// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a stopped cache smaller, with what it holds of dirty data, and of clean data as fits.
//!
//! What stays is moved to the first segments, while the cache is as large as before. Clean segments
//! are dropped, others are copied into their room, and then a checkpoint says so. Checkpoints of
//! the smaller cache follow, behind its last segment. Its superblocks come last, the first copy at
//! the very end. So a power cut leaves the cache of before or the smaller one, with all dirty data.
//! Then the command can be run again (test:
//! `a_power_cut_leaves_the_cache_of_before_or_the_smaller_one`).
//!
//! The segments of several lanes lie back to back, and can't stay where they are. Such a cache has
//! to be destaged first, and loses its clean data.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use flashfront_device::real::{Access, DeviceFile, OpenError};
use flashfront_engine::format::{STREAMS, Superblock};
use flashfront_engine::{BLOCK_BYTES, OpenError as IndexError};

use super::blocks::{Live, Slots};
use super::format::index_bytes;
use super::reader::{Reader, lacks_clean_data};
use super::walk::{LaneWalk, looks};
use crate::config::Size;
use crate::failure::{self, FailureReadError};
use crate::report::counted;
use crate::superblock::{self, SuperblockReadError};

mod write;

#[cfg(test)]
mod tests;

use write::{Put, Writer};

/// Segments of each lane that are left empty: an opening needs two for each stream, and reclaim
/// begins with two.
const FREE_SEGMENTS: u32 = 2 * STREAMS as u32 + 2;
/// The fewest segments of a lane, as of a cache that is made.
const SEGMENTS_LEAST: u32 = 24;

/// Why a cache did not shrink. Nothing was changed, but by [`CacheShrinkError::Write`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheShrinkError {
    /// Whether the cache failed can't be told.
    #[error(transparent)]
    Failure(#[from] FailureReadError),
    /// The device can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The device is no cache.
    #[error(transparent)]
    Superblock(#[from] SuperblockReadError),
    /// The last stop was not clean.
    #[error("{cache}: the last stop was not clean, or its device failed; serve the cache once, stop it, and shrink it then", cache = .0.display())]
    Unclean(PathBuf),
    /// Mirrored caches don't shrink.
    #[error(
        "{cache}: it is one of two cache devices, and a mirrored cache does not shrink; serve it with --without-mirror and stop it, shrink it, then `flashfront mirror add`", cache = .0.display()
    )]
    Mirrored(PathBuf),
    /// The format is too old.
    #[error("{cache}: the cache has format version 1, or had it once, and does not shrink; `flashfront destage`, then `flashfront format --force` makes a new one", cache = .0.display())]
    Version1(PathBuf),
    /// The cache is not larger.
    #[error("{cache}: the cache has {}, and can't shrink to {}", Size(*has).told(), Size(*wanted).told(), cache = cache.display())]
    NotSmaller {
        /// The cache device.
        cache: PathBuf,
        /// Its size.
        has: u64,
        /// The size that was asked for.
        wanted: u64,
    },
    /// Too little would be left.
    #[error("{cache}: it can't shrink to {}; the smallest that it can have now is {}{}", Size(*wanted).told(), Size(*least).told(), dirty_hint(*dirty), cache = cache.display())]
    TooSmall {
        /// The cache device.
        cache: PathBuf,
        /// The size that was asked for.
        wanted: u64,
        /// The smallest one that is possible.
        least: u64,
        /// Dirty blocks.
        dirty: u64,
    },
    /// Volumes have parts that must stay.
    #[error("{cache}: it can't shrink to {}: the smallest parts of the volumes, {}, would be more than half of it; say less first (`flashfront volume set NAME --share-min SIZE`)", Size(*wanted).told(), Size(*parts_bytes), cache = cache.display())]
    Parts {
        /// The cache device.
        cache: PathBuf,
        /// The size that was asked for.
        wanted: u64,
        /// All smallest parts together.
        parts_bytes: u64,
    },
    /// Dirty data can't be moved.
    #[error("{cache}: it holds {} ({}), which can't be moved {}; `flashfront destage` first", counted(*dirty, "dirty block"), Size(*dirty * BLOCK_BYTES), if *lanes > 1 { "between its lanes" } else { "while destage is ordered" }, cache = cache.display())]
    Dirty {
        /// The cache device.
        cache: PathBuf,
        /// How many.
        dirty: u64,
        /// Lanes of the cache.
        lanes: u32,
    },
    /// The cache is damaged.
    #[error("{cache} is damaged in {}; see `flashfront check`, and `flashfront repair`", counted(*places as u64, "place"), cache = cache.display())]
    Damaged {
        /// The cache device.
        cache: PathBuf,
        /// How many.
        places: usize,
    },
    /// The index would be too large.
    #[error("{cache}: it can't be opened with that size: {why}", cache = cache.display())]
    Index {
        /// The cache device.
        cache: PathBuf,
        /// Why.
        why: IndexError,
    },
    /// A block that is to be moved can't be read.
    #[error("{cache}: can't be read: {source}", cache = cache.display())]
    Read {
        /// The cache device.
        cache: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The device can't be written.
    #[error("{cache}: can't be written: {source}; the cache has shrunk or not, and holds all dirty data in both cases", cache = cache.display())]
    Write {
        /// The cache device.
        cache: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn dirty_hint(dirty: u64) -> String {
    match dirty {
        0 => String::new(),
        dirty => {
            format!(", with {} in it; `flashfront destage` makes room", counted(dirty, "dirty block"))
        }
    }
}

/// How a cache has shrunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShrunk {
    /// The size of the cache before.
    pub from_bytes: u64,
    /// Its size now.
    pub to_bytes: u64,
    /// Memory of its index from the next start on.
    pub index_bytes: u64,
    /// Dirty blocks: all of them are still there.
    pub dirty_blocks: u64,
    /// Clean blocks that are still there.
    pub clean_kept: u64,
    /// Clean blocks that were dropped.
    pub clean_dropped: u64,
}

/// What becomes of a lane.
struct LanePlan {
    lane: u32,
    /// What it holds now, without clean data that is to be dropped.
    held: Slots,
    /// The last commit of each segment.
    ages: Vec<u64>,
    /// Segments that move, and where to.
    moves: Vec<(u32, u32)>,
    /// The area and the generation of its checkpoint; its log ends before the commit of this
    /// number.
    area: u32,
    generation: u64,
    seq: u64,
    checksum_bits: u8,
}

/// Makes a stopped cache smaller. `state` is the folder that remembers failures of caches that
/// could not be marked. `progress` hears of steps done and all steps.
///
/// # Errors
/// [`CacheShrinkError`]
pub fn shrink(
    cache: &Path,
    state: Option<&Path>,
    to_bytes: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<CacheShrunk, CacheShrinkError> {
    let device = DeviceFile::open(cache, Access::Exclusive)?;
    shrink_by(&device, state, (to_bytes, Closed::Once), progress, &mut |put| put.carry_out(&device))
}

/// As [`shrink`], of a cache that this process has just closed: nothing looks for a decayed log,
/// which takes long where the cache is large.
///
/// # Errors
/// [`CacheShrinkError`]
pub(crate) fn shrink_closed(
    cache: &Path,
    state: Option<&Path>,
    to_bytes: u64,
) -> Result<CacheShrunk, CacheShrinkError> {
    let device = DeviceFile::open(cache, Access::Exclusive)?;
    shrink_by(&device, state, (to_bytes, Closed::Now), &mut |_, _| {}, &mut |put| put.carry_out(&device))
}

/// When a cache was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closed {
    /// Some time ago. Since then the device may have decayed.
    Once,
    /// A moment ago.
    Now,
}

fn shrink_by(
    device: &DeviceFile,
    state: Option<&Path>,
    (to_bytes, closed): (u64, Closed),
    progress: &mut dyn FnMut(u64, u64),
    put: &mut dyn FnMut(Put<'_>) -> io::Result<()>,
) -> Result<CacheShrunk, CacheShrinkError> {
    let mut before = superblock::read(device)?.superblock;
    failure::mark(state, &mut before)?;
    let cache = || device.path().to_owned();
    let write = |source| CacheShrinkError::Write { cache: cache(), source };
    refuse(device.path(), &before, to_bytes)?;
    if !before.pairing.is_the_one() {
        return Err(CacheShrinkError::Mirrored(cache()));
    }
    if !before.clean || before.failed {
        return Err(CacheShrinkError::Unclean(cache()));
    }
    if to_bytes == before.cache_bytes {
        // An earlier shrink to this size was cut off before its last step, or there was none.
        forget_end(device, &before, put).map_err(write)?;
        let index_bytes = index_bytes(&before).map_err(|why| CacheShrinkError::Index { cache: cache(), why })?;
        let dirty_blocks = before.dirty_blocks;
        return Ok(CacheShrunk {
            from_bytes: to_bytes,
            to_bytes,
            index_bytes,
            dirty_blocks,
            clean_kept: 0,
            clean_dropped: 0,
        });
    }
    let Found { walks, dirty, clean, fullest, eras } = look(device, &before, closed, progress)?;
    if dirty > 0 && (eras || before.lanes > 1) {
        return Err(CacheShrinkError::Dirty { cache: cache(), dirty, lanes: before.lanes });
    }
    let (next, kept_segments) = fit(device.path(), &before, to_bytes, (fullest, dirty))?;
    let index_bytes = index_bytes(&next).map_err(|why| CacheShrinkError::Index { cache: cache(), why })?;
    let room = kept_segments.min(next.segments_per_lane - FREE_SEGMENTS);
    let plans: Vec<LanePlan> = walks.into_iter().map(|walk| plan(walk, &before, room, kept_segments)).collect();
    let clean_kept = plans.iter().flat_map(|plan| plan.held.iter()).filter(|held| !held.dirty).count() as u64;

    let mut writer = Writer { device, before, put, failed_read: false };
    let done = writer.write_all(plans, next, progress);
    let (from_bytes, to_bytes) = match done {
        Ok(sizes) => sizes,
        Err(source) if writer.failed_read => return Err(CacheShrinkError::Read { cache: cache(), source }),
        Err(source) => return Err(write(source)),
    };
    let clean_dropped = clean - clean_kept;
    Ok(CacheShrunk { from_bytes, to_bytes, index_bytes, dirty_blocks: dirty, clean_kept, clean_dropped })
}

/// The superblock of a cache that has shrunk to `to_bytes`, with nothing dirty in it. The number
/// says how many of a lane's first segments can be kept as they are.
///
/// # Errors
/// [`CacheShrinkError`]
pub(crate) fn shrunk(cache: &Path, before: &Superblock, to_bytes: u64) -> Result<(Superblock, u32), CacheShrinkError> {
    refuse(cache, before, to_bytes)?;
    if to_bytes == before.cache_bytes {
        return Ok((before.clone(), before.segments_per_lane));
    }
    let (next, stay) = fit(cache, before, to_bytes, (0, 0))?;
    let kept = stay.min(next.segments_per_lane - FREE_SEGMENTS);
    Ok((next, kept))
}

/// The superblock of the smaller cache, and how many of a lane's first segments stay where they
/// are. `fullest`: the most segments of a lane in which something dirty is.
fn fit(
    cache: &Path,
    before: &Superblock,
    to_bytes: u64,
    (fullest, dirty): (u32, u64),
) -> Result<(Superblock, u32), CacheShrinkError> {
    let too_small = || CacheShrinkError::TooSmall {
        cache: cache.to_owned(),
        wanted: to_bytes,
        least: least(before, fullest).unwrap_or(before.cache_bytes),
        dirty,
    };
    let (next, kept_segments) = before.shrunk_to(to_bytes).ok_or_else(too_small)?;
    if next.segments_per_lane < fullest + FREE_SEGMENTS
        || next.segments_per_lane < SEGMENTS_LEAST
        || (dirty > 0 && kept_segments < fullest)
    {
        return Err(too_small());
    }
    // A start would refuse the smaller cache.
    let parts_bytes = next.origins.iter().map(|record| record.shares.min_bytes).sum();
    if parts_bytes > next.cache_blocks() * BLOCK_BYTES / 2 {
        return Err(CacheShrinkError::Parts { cache: cache.to_owned(), wanted: to_bytes, parts_bytes });
    }
    Ok((next, kept_segments))
}

/// What the lanes hold.
#[derive(Default)]
struct Found {
    walks: Vec<LaneWalk>,
    dirty: u64,
    clean: u64,
    /// The most segments of a lane in which something dirty is.
    fullest: u32,
    /// Destage was ordered.
    eras: bool,
}

/// Looks at all lanes. Of several lanes only numbers are kept in RAM: what they hold is dropped.
fn look(
    device: &DeviceFile,
    before: &Superblock,
    closed: Closed,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Found, CacheShrinkError> {
    let (mut found, mut looked) = (Found::default(), looks(before, 1, progress));
    for lane in 0..before.lanes {
        let mut reader = Reader { device, superblock: before, damage: Vec::new() };
        let mut walk = match closed {
            Closed::Once => reader.lane(lane, &mut looked),
            Closed::Now => reader.closed_lane(lane),
        };
        let places = reader.damage.len() + walk.live.displaced().count();
        if places > 0 || walk.checkpoint.is_none() {
            return Err(CacheShrinkError::Damaged { cache: device.path().to_owned(), places: places.max(1) });
        }
        found.dirty += walk.live.dirty();
        found.clean += walk.live.len() - walk.live.dirty();
        found.fullest = found.fullest.max(dirty_segments(&walk, before).len() as u32);
        found.eras |= walk.checkpoint.is_some_and(|(_, head)| head.eras_blocks > 0);
        if before.lanes > 1 {
            walk.live = Default::default();
        }
        found.walks.push(walk);
    }
    Ok(found)
}

/// What can be told without a look at the lanes.
fn refuse(cache: &Path, before: &Superblock, wanted: u64) -> Result<(), CacheShrinkError> {
    let cache = || cache.to_owned();
    if !before.pairing.is_on_one() {
        return Err(CacheShrinkError::Mirrored(cache()));
    }
    // A cache of version 1 that was converted has its table behind the lanes.
    if before.table.is_none_or(|table| table.first_block >= before.first_block) {
        return Err(CacheShrinkError::Version1(cache()));
    }
    if wanted > before.cache_bytes {
        return Err(CacheShrinkError::NotSmaller { cache: cache(), has: before.cache_bytes, wanted });
    }
    Ok(())
}

/// Makes the last superblock of what the cache was void, if it is still at the end of the device.
fn forget_end(device: &DeviceFile, now: &Superblock, put: &mut dyn FnMut(Put<'_>) -> io::Result<()>) -> io::Result<()> {
    let [_, end] = Superblock::offsets(device.geometry().size_bytes);
    let mut block = vec![0; BLOCK_BYTES as usize];
    device.read_at(end, &mut block)?;
    if Superblock::decode(&block).is_ok_and(|it| it.uuid == now.uuid && it.cache_bytes > now.cache_bytes) {
        put(Put::Write(end, &vec![0; BLOCK_BYTES as usize]))?;
        put(Put::Sync)?;
    }
    Ok(())
}

/// The size of the smallest cache that has room for so many segments with dirty data.
fn least(before: &Superblock, dirty_segments: u32) -> Option<u64> {
    let least = SEGMENTS_LEAST.max(dirty_segments + FREE_SEGMENTS);
    let mut sizes = (least..before.segments_per_lane).filter_map(|segments| before.shrunk_with(segments));
    let fits = |kept: u32| before.lanes > 1 || kept >= dirty_segments;
    let size = sizes.find(|(it, kept)| fits(*kept) && it.cache_bytes < before.cache_bytes)?.0.cache_bytes;
    // Sizes are typed in whole MiB.
    Some(size.next_multiple_of(1 << 20).min(before.cache_bytes))
}

/// The segments in which something dirty is.
fn dirty_segments(walk: &LaneWalk, superblock: &Superblock) -> BTreeSet<u32> {
    walk.live.iter().filter(|live| live.dirty).map(|live| live.slot / superblock.segment_blocks).collect()
}

/// What is kept of a lane: what is dirty, and of segments of clean data those with the most blocks,
/// the newest first. `room`: so many segments. They go where the first `stay` segments are.
fn plan(walk: LaneWalk, before: &Superblock, room: u32, stay: u32) -> LanePlan {
    let slots = before.segment_blocks;
    let dirty = dirty_segments(&walk, before);
    let head = walk.checkpoint.map(|(_, head)| head);
    let checksum_bits = head.filter(|head| head.seq > 0).map_or(32, |head| head.checksum_bits);
    let last = walk.commits.iter().map(|(seq, ..)| *seq).chain(walk.last_seq.iter().copied()).max();
    let no_clean = lacks_clean_data(before);
    let count = |segment: u32| walk.live.range(segment * slots..(segment + 1) * slots).count();
    let mut clean: Vec<(usize, u64, u32)> = (0..before.segments_per_lane)
        .filter(|segment| !no_clean && !dirty.contains(segment))
        .map(|segment| (count(segment), walk.last_seq[segment as usize], segment))
        .filter(|(blocks, ..)| *blocks > 0)
        .collect();
    clean.sort_unstable_by(|one, other| other.cmp(one));
    let mut kept = dirty;
    let left = (room as usize).saturating_sub(kept.len());
    kept.extend(clean.into_iter().take(left).map(|(.., segment)| segment));
    let mut held = Slots::new(before.slots());
    let mask = (u64::MAX >> (64 - u32::from(checksum_bits))) as u32;
    for live in walk.live.iter().filter(|live| kept.contains(&(live.slot / slots)) && (live.dirty || !no_clean)) {
        held.put(Live { checksum: live.checksum & mask, checksum_mask: mask, ..live });
    }
    let mut ages = walk.last_seq;
    (0..before.segments_per_lane).filter(|it| !kept.contains(it)).for_each(|segment| ages[segment as usize] = 0);
    let free = (0..stay).filter(|segment| !kept.contains(segment));
    let moves = kept.iter().copied().filter(|segment| *segment >= stay).zip(free).collect();
    let (area, generation, seq) = walk.checkpoint.map_or((0, 0, 0), |(area, head)| (area, head.generation, head.seq));
    let seq = last.unwrap_or(0).max(seq) + 1;
    LanePlan { lane: walk.lane, held, ages, moves, area, generation, seq, checksum_bits }
}
