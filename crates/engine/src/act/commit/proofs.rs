// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commits of promoted blocks of which no flush of their origin has proven yet what they hold.

use alloc::vec::Vec;

use super::log::Log;
use crate::organ::index::Flat;
use crate::organ::segment::SegmentState;

/// A lane has at most this many unproven commits: a power cut takes no more than these, 64 MiB,
/// from the cache. From half as many on the lane asks for a flush, so that reads hardly ever wait.
const UNPROVEN_MAX: usize = 64;
/// A lane has at most one unproven commit for this many segments: their segments can't be
/// reclaimed.
const UNPROVEN_PART: usize = 16;

/// A commit of promoted blocks that no flush has proven yet.
pub(super) struct Unproven {
    pub(super) seq: u64,
    /// The slot of its first block.
    pub(super) first: u32,
    pub(super) blocks: Vec<Flat>,
    /// Origins whose flush it waits for.
    pub(super) awaits: u32,
    /// A flush that the commit waits for failed, or is overdue, and its blocks of that origin were
    /// dropped. Replay must not take them until a checkpoint covers this commit.
    pub(super) failed: bool,
}

impl Unproven {
    /// Its blocks, with their slots.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (u32, Flat)> {
        (self.first..).zip(self.blocks.iter().copied())
    }

    fn holds(&self, slot: u32) -> bool {
        (self.first..self.first + self.blocks.len() as u32).contains(&slot)
    }
}

impl Log {
    pub(super) fn unproven_most(&self) -> usize {
        (self.segments.len() / UNPROVEN_PART).clamp(1, UNPROVEN_MAX)
    }

    /// Whether there are as many as may be.
    pub(super) fn takes_no_unproven(&self) -> bool {
        self.unproven.len() >= self.unproven_most()
    }

    pub(super) fn count_unproven(&self) -> u8 {
        self.unproven.len() as u8
    }

    /// Whether one keeps a full segment from being reclaimed.
    pub(crate) fn has_full_unproven(&self) -> bool {
        let state = |it: &Unproven| self.segments[(it.first / self.segment_slots) as usize].state;
        self.unproven.iter().any(|it| state(it) == SegmentState::Unproven)
    }

    /// Whether one is in this segment.
    pub(crate) fn is_unproven(&self, segment: u32) -> bool {
        self.unproven.iter().any(|it| it.first / self.segment_slots == segment)
    }

    /// Whether one waits for a flush.
    pub(crate) fn awaits_proof(&self) -> bool {
        self.unproven.iter().any(|it| it.awaits > 0)
    }

    /// Whether that in which this slot is does.
    pub(crate) fn awaits_proof_of(&self, slot: u32) -> bool {
        let state = self.segments[(slot / self.segment_slots) as usize].state;
        matches!(state, SegmentState::Open | SegmentState::Unproven)
            && self.unproven.iter().any(|it| it.awaits > 0 && it.holds(slot))
    }
}
