// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a lane's reclaim: its victims, and segments that are given up but not free yet.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::act::commit::log::Log;
use crate::fact::memory::Buf;
use crate::fact::types::Time;
use crate::organ::demand::Demand;
use crate::organ::flying::Survivor;
use crate::organ::index::Flat;
use crate::organ::sparse::Sparse;

/// A victim gives its place to another one after this time, if no block of it became clean. Its
/// origin is away. The next victim may hold blocks that other origins take, or blocks that can be
/// moved.
pub(super) const VICTIM_WAIT_NS: u64 = 3_000_000_000;
/// How long reclaim waits for a segment that can be cleaned, as long as no block had to be dropped.
/// Reclaim mostly waits for a checkpoint, or for a batch of destage.
pub(super) const CLEANING_WAIT_NS: u64 = 1_000_000_000;
/// If nobody has needed room for this long, nobody needs the room of dirty blocks: destage has no
/// reason to hurry. Without this end destage took most of the disk's time until nothing was dirty,
/// though nobody wrote any more. A backup's stream then had 136 MiB a second instead of 154
/// (`who_reads_from_the_disk_has_it_when_nobody_needs_room`). With 10 s it has 146, as the log's
/// own notes ask for a segment now and then. With 1 s 2 hits of a hundred are lost in
/// `the_engine_holds_what_the_model_says`.
pub(super) const BEHIND_FOR_NS: u64 = 3_000_000_000;

/// While the end of the log is emptied, writers wait so long for room before it, where no segment
/// becomes free and no block clean. Then something keeps reclaim from that, and they get room in
/// the end.
pub(super) const SHORT_MAX_NS: u64 = 1_000_000_000;

/// A segment under reclaim.
#[derive(Default)]
pub(crate) struct Victim {
    /// Blocks that were in the index at the last look: (block, slot).
    pub(super) blocks: Vec<(Flat, u32)>,
    /// Headers or survivors being read.
    pub(super) pending: u32,
    /// Survivors so far.
    pub(super) kept: u32,
    /// All live blocks of the segment are moved: it is reclaimed for its dead room.
    pub(super) cleaned: bool,
    /// All headers were read.
    pub(super) known: bool,
    /// The survivors were chosen.
    pub(super) chosen: bool,
    /// Some of them are kept for a volume's part.
    pub(super) keeps: bool,
    /// No part of a volume is looked at: no other segment could be reclaimed.
    pub(super) forced: bool,
    /// Blocks of each origin that were chosen to leave, where the origin has a part.
    pub(super) leaving: Vec<(usize, u64)>,
    /// The dirty blocks of the victim are to be moved as soon as the log takes more.
    pub(super) parked: bool,
    /// How many blocks were dirty, and when, at the last change: a block became clean, or the
    /// victim began to wait for that.
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
    /// Blocks of each origin that leave with segments that are given up.
    pub(super) leaving: BTreeMap<u32, Vec<(usize, u64)>>,
    /// Segments that were victims and were given back, as too much of each would have had to stay.
    pub(super) turned: BTreeSet<u32>,
    /// A segment was given up since the last of them were tried again.
    pub(super) gave_up: bool,
    /// The next victim is reclaimed whatever it has.
    pub(super) forces: bool,
    /// What volumes do with their blocks; kept where some have a part of the cache.
    pub(super) demand: Demand,
    /// Blocks that were copied for volumes' parts since the log took one of a client.
    copied: u64,
    /// Freed, and the entry that says so durable; waiting for readers to leave.
    pub(super) pinned: Vec<u32>,
    /// Full segments with little in them.
    pub(crate) sparse: Sparse,
    /// The victim that is reclaimed for its holes, though much of it is dirty.
    pub(super) compacting: Option<u32>,
    /// The number of free segments that clients leave to cleaning.
    pub(crate) left: usize,
    /// Whether room is needed that can only come from a segment that can't be cleaned yet.
    pub(super) waits: bool,
    pub(super) waits_since: Option<Time>,
    /// Blocks had to be dropped for want of room, since the cache was opened.
    pub(crate) dropped: bool,
    /// Segments of which a block had to stay, since an origin has been away.
    pub(super) not_compacted: Vec<u32>,
    /// When segments were last passed over that the policy would have given up first, as too many
    /// of their blocks are still dirty. `None` if the last choice passed over no segment.
    pub(super) behind: Option<Time>,
    /// While the end of the log is emptied: where to look for the next segment, counted from the
    /// first one of the end.
    pub(super) vacated: u32,
    /// Blocks that were moved since the end had more free segments than ever before, and how many
    /// that were.
    moved: u64,
    most_free: usize,
    /// Until when no survivor is read, beside clients.
    pub(super) pauses_until: Option<Time>,
    /// When a client was last seen to ask for something while the end was emptied.
    pub(super) clients_at: Option<Time>,
    /// Segments of the end that are given up, and of which the log is not to say so yet.
    pub(super) emptied: Vec<u32>,
    /// A victim was given back: the end is not looked at until some time later.
    pub(super) vacates_in_vain: bool,
    pub(super) vacates_again: Option<Time>,
    /// Since when clients begin no segment before the end, and no room comes there.
    pub(super) short_since: Option<Time>,
    /// When the last look found no segment of the end that can be reclaimed: commits before this
    /// one were covered by a checkpoint.
    pub(super) vacated_below: Option<u64>,
}

impl Reclaim {
    /// A block was copied for a volume's part.
    pub(super) const fn copied_one(&mut self) {
        self.copied += 1;
    }

    /// The log took a client's block: copies have made room for somebody.
    pub(crate) const fn made_room(&mut self) {
        self.copied = 0;
    }

    /// Another end is to be emptied.
    pub(super) const fn begin_end(&mut self) {
        (self.moved, self.most_free) = (0, 0);
    }

    /// Notes how many segments of the end are free: moves that free one more are not in vain.
    pub(super) const fn note_free(&mut self, segments: usize) {
        if segments > self.most_free {
            (self.moved, self.most_free) = (0, segments);
        }
    }

    /// What volumes do with their blocks.
    pub(crate) const fn demand(&self) -> &Demand {
        &self.demand
    }

    /// Reclaim moved a block. Returns how many it moved in turn.
    pub(super) const fn moved_one(&mut self) -> u64 {
        self.moved += 1;
        self.moved
    }

    /// Whether moves empty no end: each block of the log was moved twice.
    pub(super) const fn moves_in_vain(&self, slots: u64) -> bool {
        self.moved > 2 * slots
    }

    /// Whether copies make no room. So many blocks were copied as all parts have together at most:
    /// half of the log. The copies fill segments that are reclaimed next, for ever, where
    /// a checkpoint seals each half full and all else is dirty (torture, seed 1795981488984).
    pub(super) const fn copies_in_vain(&self, slots: u64) -> bool {
        self.copied > slots / 2
    }

    /// Until when reclaim waits for destage: blocks that the policy would give up are still dirty,
    /// and room was needed lately.
    pub(crate) fn behind_until(&self) -> Option<Time> {
        self.behind.map(|since| since.plus_ns(BEHIND_FOR_NS))
    }

    /// When victims give their places to others.
    pub(crate) fn timers(&self) -> impl Iterator<Item = Time> {
        let victims = self.victims.values().filter_map(|victim| victim.waits);
        let victims = victims.map(|(_, since)| since.plus_ns(VICTIM_WAIT_NS));
        let waits = self.waits_since.filter(|_| self.waits).map(|since| since.plus_ns(CLEANING_WAIT_NS));
        let short = self.short_since.map(|since| since.plus_ns(SHORT_MAX_NS));
        victims.chain(waits).chain(self.vacates_again).chain(self.pauses_until).chain(short)
    }

    /// With fewer free segments than this reclaim starts. The number is 1/64 of the lane's
    /// segments, at most 64 and at least 8. It is at least 16 if that is no more than 1/32 of them.
    pub(crate) fn watermark(&self, log: &Log) -> usize {
        watermark(log.segments().len())
    }
}

/// How many free segments a lane of `segments` segments keeps.
pub(crate) fn watermark(segments: usize) -> usize {
    (segments / 64).max(16.min(segments / 32)).clamp(8, 64)
}
