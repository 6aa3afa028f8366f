// SPDX-License-Identifier: MIT OR Apache-2.0
//! A segment at run time: what it is, how much of it is live and dirty, who needs it to stay.

use crate::policy::Zone;

/// What a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentState {
    /// Empty and ready.
    Free,
    /// A stream's open or next segment.
    Open,
    /// Full, with a commit that is not proven yet.
    Unproven,
    /// Full.
    Closed,
    /// Under reclaim.
    Victim,
    /// Given up; the entry that says so is not durable yet, or a read of it is in flight.
    Freeing,
}

/// A segment at run time.
#[derive(Clone, Copy)]
pub(crate) struct Segment {
    /// Blocks of it in the index.
    pub(crate) live: u32,
    /// Dirty ones among them.
    pub(crate) dirty: u32,
    /// Reads and destage runs that need it to stay.
    pub(crate) pins: u32,
    /// All its blocks are on both members of a mirrored cache, also those that are clean by now.
    pub(crate) mirrored: bool,
    pub(crate) state: SegmentState,
    /// What it is filled with.
    pub(crate) zone: Zone,
    /// Its last commit.
    pub(crate) last_seq: u64,
    /// Blocks that were put in it because one beside them missed.
    pub(crate) neighbours: u32,
}

impl Segment {
    /// Whether most of its slots, of so many, were filled with neighbours.
    pub(crate) const fn is_of_neighbours(&self, slots: u32) -> bool {
        self.neighbours > slots / 2
    }

    /// Whether replay could do without it, after a checkpoint that covers the commits before this
    /// one.
    pub(crate) fn is_evictable(&self, covered: u64) -> bool {
        self.state == SegmentState::Closed && self.last_seq < covered
    }

    /// Whether it need not wait for destage, if so many dirty blocks can be moved, nor for who
    /// reads them.
    pub(crate) const fn is_ready(&self, dirty_max: u32) -> bool {
        self.dirty == 0 || self.dirty <= dirty_max && self.pins == 0
    }
}
