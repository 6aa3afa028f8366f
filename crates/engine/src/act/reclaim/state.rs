// SPDX-License-Identifier: MIT OR Apache-2.0
//! What reclaim of a lane is at: its victims, and segments that are given up but not free yet.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::act::commit::log::Log;
use crate::fact::memory::Buf;
use crate::fact::types::Time;
use crate::organ::flying::Survivor;
use crate::organ::index::Flat;
use crate::organ::sparse::Sparse;

/// A victim of which nothing has become clean for so long gives its place to another one: its
/// origin is away, and the next may hold what others take, or what can be moved.
pub(super) const VICTIM_WAIT_NS: u64 = 3_000_000_000;
/// For so long reclaim waits for a segment that can be cleaned, as long as no block had to be
/// dropped: for a checkpoint, mostly, or a batch of destage.
pub(super) const CLEANING_WAIT_NS: u64 = 1_000_000_000;
/// Who has needed no room for so long needs none of what is dirty: then destage has no reason to
/// hurry. Without an end it took most of the disk's time until nothing was dirty, though nobody
/// wrote any more: a backup's stream had 136 MiB a second instead of 154
/// (`who_reads_from_the_disk_has_it_when_nobody_needs_room`; with 10 s 146, as the log's own notes
/// ask for a segment now and then; with 1 s 2 hits of a hundred fewer in
/// `the_engine_holds_what_the_model_says`).
pub(super) const BEHIND_FOR_NS: u64 = 3_000_000_000;

/// A segment under reclaim.
#[derive(Default)]
pub(crate) struct Victim {
    /// Blocks that were in the index at the last look: (block, slot).
    pub(super) blocks: Vec<(Flat, u32)>,
    /// Headers or survivors being read.
    pub(super) pending: u32,
    /// Survivors so far.
    pub(super) kept: u32,
    /// All that is live in it is moved: it is reclaimed for its dead room.
    pub(super) cleaned: bool,
    /// All headers were read.
    pub(super) known: bool,
    /// The survivors were chosen.
    pub(super) chosen: bool,
    /// Its dirty blocks are to be moved as soon as the log takes more.
    pub(super) parked: bool,
    /// How many of its blocks were dirty when one last became clean, or it began to wait for that;
    /// and when that was.
    pub(super) waits: Option<(u32, Time)>,
}

/// State of a lane's reclaim.
#[derive(Default)]
pub(crate) struct Reclaim {
    pub(super) victims: BTreeMap<u32, Victim>,
    /// Survivors that are to be read, and how many are being read.
    pub(super) survivors: VecDeque<Survivor>,
    pub(super) reading: usize,
    /// Survivors that were read and wait for room in the log: they count as being read.
    pub(super) held: Vec<(Survivor, Buf)>,
    /// Segments that are given up but not free yet, with the clean blocks that are still in them.
    pub(super) freeing: BTreeMap<u32, Vec<(Flat, u32)>>,
    /// Freed, and the entry that says so durable; waiting for readers to leave.
    pub(super) pinned: Vec<u32>,
    /// Full segments with little in them.
    pub(crate) sparse: Sparse,
    /// The victim that is reclaimed for its holes, though much of it is dirty.
    pub(super) compacting: Option<u32>,
    /// Free segments that clients leave to cleaning.
    pub(crate) left: usize,
    /// Whether room is needed that will come of a segment that can't be cleaned yet, and since when
    /// there was none that could.
    pub(super) waits: bool,
    pub(super) waits_since: Option<Time>,
    /// Blocks had to be dropped for want of room, since the cache was opened.
    pub(crate) dropped: bool,
    /// Those of which something had to stay, since an origin has been away.
    pub(super) not_compacted: Vec<u32>,
    /// When segments that the policy would have given up first were passed over, as too much of
    /// them is dirty still; nothing if the last time it was not so.
    pub(super) behind: Option<Time>,
}

impl Reclaim {
    /// Whether what the policy would give up is dirty still, as far as room was needed lately.
    pub(crate) fn is_behind(&self, now: Time) -> bool {
        self.behind.is_some_and(|at| now.since_ns(at) < BEHIND_FOR_NS)
    }

    /// When victims give their places to others.
    pub(crate) fn timers(&self) -> impl Iterator<Item = Time> {
        let victims = self.victims.values().filter_map(|victim| victim.waits);
        let victims = victims.map(|(_, since)| since.plus_ns(VICTIM_WAIT_NS));
        victims.chain(self.waits_since.filter(|_| self.waits).map(|since| since.plus_ns(CLEANING_WAIT_NS)))
    }

    /// Fewer free segments than this start reclaim: 1/64 of the lane, at least 8 (16
    /// if that is not more than 1/32), at most 64.
    pub(crate) fn watermark(&self, log: &Log) -> usize {
        watermark(log.segments().len())
    }
}

/// How many free segments a lane of that many segments keeps.
pub(crate) fn watermark(segments: usize) -> usize {
    (segments / 64).max(16.min(segments / 32)).clamp(8, 64)
}
