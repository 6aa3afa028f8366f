// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a sound cache of a damaged one: it holds what can be trusted. Says what is lost.
//!
//! Repair has two steps, with the operator's decision between them. [`Repair::plan`] reads and
//! verifies, and changes nothing; [`Repair::write`] does what the plan says. A sound cache is left
//! alone.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use flashfront_device::real::{Access, DeviceFile, OpenError};
use flashfront_engine::format::{Mirror, STREAMS, Superblock};
use flashfront_engine::{BLOCK_BYTES, Key, OriginId};
use serde::Serialize;

use super::blocks::{Live, Slots};
use super::check::{self, CheckError, Checked};
use super::damage::{Damage, DamageKind};
use super::reader::{Reader, checksum_of};
use super::salvage::Salvage;
use super::walk::looks;
use crate::failure::{self, FailureReadError};
use crate::report::{LostRange, lost_ranges};
use crate::stale::{self, Change, ChangeError};
use crate::superblock::{self, SuperblockReadError};

mod write;

#[cfg(test)]
mod tests;

/// An opening needs two segments for each stream.
const FREE_SEGMENTS_MIN: usize = 2 * STREAMS;
/// Segments that repair makes free: two more than the least, to begin reclaim with.
const FREE_SEGMENTS_WANTED: usize = FREE_SEGMENTS_MIN + 2;

/// The operator's decision about dirty blocks that are older than something lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Older {
    /// The blocks stay dirty, and will be written to the origin.
    Keep,
    /// The blocks are given up.
    Drop,
}

/// Commits that are gone, or that nothing speaks for any more: their headers are lost, and the
/// checkpoint's entries of their blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UnknownLoss {
    /// The lane.
    pub lane: u32,
    /// The first of them.
    pub first_commit: u64,
    /// The last of them.
    pub last_commit: u64,
    /// The most blocks whose newest version was in them. The blocks themselves are not known.
    pub blocks_at_most: u64,
}

/// The report of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RepairReport {
    /// The cache device.
    #[serde(serialize_with = "super::shown::shown")]
    pub cache: PathBuf,
    /// Names the cache.
    pub uuid: String,
    /// Something is to be repaired.
    pub needed: bool,
    /// Whether the cache has been repaired.
    pub repaired: bool,
    /// Damage, as `check` finds it.
    pub damage: Vec<Damage>,
    /// The cache device failed in the last run.
    pub cache_failed: bool,
    /// Clean blocks that stay in the cache.
    pub clean_kept: u64,
    /// Clean blocks that are dropped: damaged, doubtful, or in the way. They are on the origin.
    pub clean_dropped: u64,
    /// Dirty blocks that are sound and current; they stay.
    pub dirty_kept: u64,
    /// Dirty blocks whose data is gone.
    pub lost_blocks: u64,
    /// The lost blocks by place.
    pub lost: Vec<LostRange>,
    /// Dirty blocks that are sound, but older than something that is lost.
    pub older_blocks: u64,
    /// The older blocks by place.
    pub older: Vec<LostRange>,
    /// The decision about them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_decision: Option<Older>,
    /// Commits that are gone, with blocks that are not known.
    pub unknown: Vec<UnknownLoss>,
    /// Origins that were changed without this cache, as far as it was looked up: all that is dirty
    /// is older.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub origins_changed: Vec<Change>,
    /// Entries of a checkpoint that are gone. Their dirty blocks are among the older ones. Where
    /// their commit's header is gone too, they are counted as unknown.
    pub unknown_entries: u64,
}

/// Why there is no repair.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// Whether the cache failed can't be told.
    #[error(transparent)]
    Failure(#[from] FailureReadError),
    /// The device can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The device holds no cache, or a cache of another program or another size.
    #[error(transparent)]
    Superblock(#[from] SuperblockReadError),
    /// Neither superblock is left.
    #[error("{cache}: neither copy of the superblock is sound, so nothing on the device can be placed, and it can't be repaired. The origin can be used by itself, but lacks what was dirty here. A copy of the device, if there is one, may be better; `flashfront format --force` makes a new cache", cache = .0.display())]
    NoSuperblock(PathBuf),
    /// The damage may be on one device of a mirrored cache only.
    #[error("{path}: it is half of a mirrored cache and damaged, and can't be repaired by itself. Serve both (`flashfront serve --cache A --mirror B`), or write what is dirty with `flashfront destage`: what can't be read from one is read from the other", path = .0.display())]
    Mirrored(PathBuf),
    /// The other one would bring back what is given up on this one.
    #[error("{path}: both devices of this mirrored cache failed in the last run, and one can't be repaired by itself: the other one would bring back what is given up here. `flashfront detach --cache A --mirror B` takes both off (--force gives up what is dirty); `flashfront destage --cache A --mirror B --accept-changed-origin` writes what is dirty in the log as it is, if the origin was not changed since", path = .0.display())]
    BothFailed(PathBuf),
    /// The device can't be read.
    #[error("{path}: can't be read: {source}", path = path.display())]
    Read {
        /// The cache device.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Dirty data in almost all segments.
    #[error("{cache}: lane {lane} would have {free} free segments and needs {FREE_SEGMENTS_MIN}, so it can't be opened with all dirty data in it; nothing was changed", cache = cache.display())]
    NoRoom {
        /// The cache device.
        cache: PathBuf,
        /// The lane.
        lane: u32,
        /// Segments that would be free.
        free: usize,
    },
    /// The operator has not decided on the older blocks.
    #[error("{blocks} dirty blocks are older than something that is lost: say whether to keep or to drop them")]
    Undecided {
        /// How many.
        blocks: u64,
    },
    /// The device can't be written.
    #[error("{path}: can't be written: {source}; run repair again", path = path.display())]
    Write {
        /// The cache device.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl From<CheckError> for RepairError {
    fn from(error: CheckError) -> Self {
        match error {
            CheckError::Open(error) => Self::Open(error),
            CheckError::Superblock(error) => Self::Superblock(error),
            CheckError::Read { path, source } => Self::Read { path, source },
        }
    }
}

/// The kept blocks of a lane.
#[derive(Debug)]
struct Lane {
    lane: u32,
    epoch: u64,
    seq: u64,
    generation: u64,
    /// The area of the checkpoint that all this is known from.
    area: Option<u32>,
    held: Slots,
}

/// A plan; the cache device stays locked until it is dropped or written.
#[derive(Debug)]
pub struct Repair {
    device: DeviceFile,
    superblock: Superblock,
    /// The folder that remembers failures of caches that could not be marked.
    state: Option<PathBuf>,
    /// Empty if only a superblock is to be mended.
    lanes: Vec<Lane>,
    report: RepairReport,
}

impl Repair {
    /// Reads and verifies a stopped cache, and says what a repair would do. `writable`: it may be
    /// written later. `state` is the folder that remembers failures of caches that could not be
    /// marked. `progress` hears of steps done and all steps, twice: of the check, and of the
    /// salvage.
    ///
    /// # Errors
    /// [`RepairError`]; nothing is changed.
    pub fn plan(
        path: &Path,
        state: Option<&Path>,
        writable: bool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, RepairError> {
        let access = if writable { Access::Exclusive } else { Access::ReadOnly };
        let device = DeviceFile::open(path, access)?;
        let Checked { report: checked, open } = check::check_open(&device, progress)?;
        let Some(uuid) = checked.uuid.clone() else { return Err(RepairError::NoSuperblock(path.to_owned())) };
        let mut superblock = superblock::read(&device)?.superblock;
        failure::mark(state, &mut superblock)?;
        let cache_failed = superblock.failed;
        let pairing = &superblock.pairing;
        let by_itself = pairing.mirror == Mirror::Alone && pairing.paired == 0 && !pairing.clean_lost;
        if !checked.ok && pairing.mirror != Mirror::None && !by_itself {
            return Err(RepairError::Mirrored(path.to_owned()));
        }
        if cache_failed && pairing.mirror == Mirror::Whole {
            return Err(RepairError::BothFailed(path.to_owned()));
        }
        let (state, report) = (state.map(Path::to_owned), RepairReport::default());
        let mut it = Self { device, superblock, state, lanes: Vec::new(), report };
        it.report = RepairReport { cache: path.to_owned(), uuid, cache_failed, ..it.report };
        let in_lanes = checked.damage.iter().any(|damage| damage.kind != DamageKind::Superblock);
        it.report.needed = !checked.ok || cache_failed;
        if in_lanes || cache_failed {
            it.salvage(&open, progress);
        } else {
            it.report.clean_kept = checked.blocks_cached - checked.blocks_dirty;
            it.report.dirty_kept = checked.blocks_dirty;
        }
        it.report.damage = checked.damage;
        Ok(it)
    }

    /// Looks up whether an origin of this cache was changed without it;
    /// [`RepairReport::origins_changed`] tells. Nothing that is repaired depends on it: the next
    /// start asks again.
    ///
    /// # Errors
    /// When what is remembered can't be read.
    pub fn look_up_changes(&mut self, state: Option<&Path>) -> Result<(), ChangeError> {
        for record in &self.superblock.origins {
            let changes = stale::remembered(state, &record.identity, None, record, &self.report.uuid)?;
            self.report.origins_changed.extend(changes);
        }
        Ok(())
    }

    /// The findings.
    #[must_use]
    pub fn report(&self) -> &RepairReport {
        &self.report
    }

    /// `open`: of each lane the segments in which the log was to go on.
    fn salvage(&mut self, open: &[Vec<u32>], progress: &mut dyn FnMut(u64, u64)) {
        let (mut lost, mut older) = (Vec::new(), Vec::new());
        let mut looked = looks(&self.superblock, 2, progress);
        for (lane, open) in (0..self.superblock.lanes).zip(open) {
            let mut reader = Reader { device: &self.device, superblock: &self.superblock, damage: Vec::new() };
            let mut salvage = reader.salvage(lane, open, &mut looked);
            for gap in salvage.gaps.iter().filter(|gap| gap.blocks_at_most > 0) {
                let (first_commit, last_commit, blocks_at_most) = (gap.first, gap.last, gap.blocks_at_most);
                self.report.unknown.push(UnknownLoss { lane, first_commit, last_commit, blocks_at_most });
            }
            self.report.unknown_entries += salvage.unknown_entries;
            if self.superblock.failed {
                // The log doesn't know which blocks were destaged after the failure.
                salvage.clean_doubtful = true;
                salvage.walk.live.make_older();
            }
            let mut held = verified(&reader, &salvage, &mut lost, &mut looked);
            if self.superblock.failed && self.superblock.dirty_blocks == 0 {
                // All that was dirty had reached the origin.
                held = Slots::new(self.superblock.slots());
                lost.clear();
            }
            make_room(&mut held, &self.superblock);
            let report = &mut self.report;
            let clean = held.iter().filter(|held| !held.dirty).count() as u64;
            report.clean_kept += clean;
            report.clean_dropped += salvage.walk.live.len() - salvage.walk.live.dirty() - clean;
            report.dirty_kept += held.iter().filter(|held| held.dirty && !held.older).count() as u64;
            older.extend(held.iter().filter(|held| held.older).map(|held| held.key));
            let Salvage { epoch, seq, generation, .. } = salvage;
            let area = salvage.walk.checkpoint.map(|(area, _)| area);
            self.lanes.push(Lane { lane, epoch, seq, generation, area, held });
        }
        let name = |id: OriginId| {
            let record = self.superblock.origins.iter().find(|record| record.id == id);
            record.map_or_else(|| format!("origin-{}", id.0), |record| record.name.clone())
        };
        (self.report.lost_blocks, self.report.lost) = (lost.len() as u64, lost_ranges(&lost, name));
        (self.report.older_blocks, self.report.older) = (older.len() as u64, lost_ranges(&older, name));
    }
}

/// Returns the blocks of a lane that are worth keeping and whose data is right. Dirty blocks with
/// wrong data go to `lost`.
fn verified(reader: &Reader<'_>, salvage: &Salvage, lost: &mut Vec<Key>, looked: &mut dyn FnMut()) -> Slots {
    let walk = &salvage.walk;
    let slots = reader.superblock.segment_blocks;
    let exists = |live: &Live| {
        let record = reader.superblock.origins.iter().find(|record| record.id == live.key.origin);
        record.is_some_and(|it| live.key.block.0 < it.size_bytes.div_ceil(BLOCK_BYTES))
    };
    let wanted = |live: &Live| exists(live) && (live.dirty || !salvage.clean_doubtful);
    let mut displaced: Vec<Live> = walk.live.displaced().collect();
    displaced.sort_unstable_by_key(|live| live.slot);
    let mut held = Slots::new(reader.superblock.slots());
    for segment in 0..reader.superblock.segments_per_lane {
        let (first, end) = (segment * slots, (segment + 1) * slots);
        let displaced = &displaced[displaced.partition_point(|live| live.slot < first)..];
        let displaced = displaced.iter().take_while(|live| live.slot < end).copied();
        let live: Vec<Live> = walk.live.range(first..end).chain(displaced).filter(wanted).collect();
        let bytes = (!live.is_empty()).then(|| reader.segment(walk.lane, segment));
        for live in live {
            let block = bytes.as_ref().and_then(|bytes| bytes.block(live.slot).ok());
            let found = block.map(|block| checksum_of(block, live.key, reader.superblock));
            match found.filter(|found| found & live.checksum_mask == live.checksum) {
                // The first slot of a segment is a header's. Of two blocks with the same data the
                // one that is known to be there comes first.
                Some(checksum) if live.slot != first && held.get(live.slot).is_none() => {
                    held.put(Live { checksum, checksum_mask: u32::MAX, ..live });
                }
                _ if live.dirty => lost.push(live.key),
                _ => {}
            }
        }
        looked();
    }
    held
}

/// Drops clean blocks, a segment's at a time and the fewest first, until there is room to open the
/// lane.
fn make_room(held: &mut Slots, superblock: &Superblock) {
    let slots = superblock.segment_blocks;
    let mut used = 0;
    // Segments without dirty blocks, with the number of their blocks.
    let mut clean: Vec<(usize, u32)> = Vec::new();
    for segment in 0..superblock.segments_per_lane {
        let all = || held.range(segment * slots..(segment + 1) * slots);
        let count = all().count();
        used += usize::from(count > 0);
        if count > 0 && !all().any(|held| held.dirty) {
            clean.push((count, segment));
        }
    }
    clean.sort_unstable();
    let missing = (used + FREE_SEGMENTS_WANTED).saturating_sub(superblock.segments_per_lane as usize);
    let dropped: BTreeSet<u32> = clean.into_iter().take(missing).map(|(_, segment)| segment).collect();
    held.update(|held| (!dropped.contains(&(held.slot / slots))).then_some(held));
}
