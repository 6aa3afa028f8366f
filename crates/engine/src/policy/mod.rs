// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policies decide which blocks are cached, and which leave.
//!
//! A policy sees keys as numbers, segment numbers, hits, and whether there is room. A policy sees
//! no I/O, no clock, and not the cache. What clients write in writeback mode is always absorbed; a
//! policy only learns of it.

use alloc::boxed::Box;

use crate::fact::types::SegmentId;

mod ghost;
mod share;
mod spec;
#[cfg(test)]
mod tests;
mod window;

pub(crate) use ghost::mix;
pub use spec::Spec;
pub(crate) use spec::registry;
pub use window::Window;

/// What a segment is filled with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Zone {
    /// What clients write.
    Writes,
    /// What was admitted, and what was copied forward.
    #[default]
    Main,
}

/// What becomes of a block that was missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Into the cache if it has room now; else into the window, which is in RAM.
    pub admit: bool,
    /// How often the block was seen so far, at least once.
    pub seen: u8,
}

/// Whether a policy's gate is held open (see [`crate::shadow::Duel`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The policy decides.
    No,
    /// What is missed is admitted: an LRU does better.
    Open,
    /// The gate is held open, and what was hot is so no longer: all that is asked for has changed.
    Shifted,
}

/// The most hits that the index counts for a block.
pub const HITS_MAX: u8 = 3;

/// A policy, one per lane.
pub trait Policy: Send {
    /// This block was read, or written through, and is not in the cache. `room`: more segments are
    /// free than reclaim keeps, or many hold only what nobody asked for.
    fn missed(&mut self, key: u64, room: bool) -> Verdict;

    /// A block that was to be admitted is not, for want of room or of budget. Returns what to keep
    /// as its count.
    fn refused(&mut self, seen: u8) -> u8 {
        seen
    }

    /// A block of the window was read that was seen `seen` times; returns the new count.
    fn seen_waiting(&mut self, seen: u8) -> u8 {
        seen
    }

    /// A block left the window, and is not in the cache.
    fn left_window(&mut self, _key: u64, _seen: u8) {}

    /// A word of the table's cache line that [`Policy::write_missed`] would look at, if the table
    /// is large. The word may be asked for ahead.
    fn looks_at(&self, _key: u64) -> Option<&u64> {
        None
    }

    /// A block is written that is not in the cache; returns the hits that it starts with.
    fn write_missed(&mut self, _key: u64) -> u8 {
        0
    }

    /// A block is written anew that was in this zone; returns its hits in [`Zone::Writes`].
    fn rewritten(&self, _zone: Zone, hits: u8) -> u8 {
        (hits + 1).min(HITS_MAX)
    }

    /// Whether blocks that nobody asked for are put in the cache, because a block beside them
    /// missed. `room`: more segments are free than reclaim keeps.
    fn takes_neighbours(&self, room: bool) -> bool {
        room
    }

    /// The gate, of a policy that has one, is held open, or let go.
    fn hold_gate(&mut self, _hold: Hold) {}

    /// A segment is full. Called again for a segment only after [`Policy::victim`] gave it away.
    fn sealed(&mut self, segment: SegmentId, zone: Zone);

    /// The segment to reclaim next, of those for which `evictable` says yes, if there is one among
    /// those that the policy would choose soon. The policy forgets it.
    fn victim(&mut self, evictable: &dyn Fn(SegmentId) -> bool) -> Option<SegmentId>;

    /// A segment is reclaimed that [`Policy::victim`] has not given away: little of it is live.
    fn forget(&mut self, segment: SegmentId);

    /// Whether a clean block of a segment under reclaim is copied forward to [`Zone::Main`], and
    /// with how many hits. `kept` of the segment's `slots` have been copied so far.
    fn survives(&mut self, zone: Zone, hits: u8, kept: u32, slots: u32) -> Option<u8>;

    /// A block was dropped at reclaim.
    fn dropped(&mut self, _key: u64, _zone: Zone, _hits: u8) {}

    /// Memory it takes.
    fn bytes(&self) -> u64 {
        0
    }
}

/// The size of a lane's log.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Segments.
    pub segments: u32,
    /// Blocks of each.
    pub segment_blocks: u32,
    /// For how many blocks each stands: 1, but in a model that sees a sample.
    pub stands_for: u32,
}

impl Capacity {
    /// All blocks.
    #[must_use]
    pub fn blocks(self) -> u64 {
        u64::from(self.segments) * u64::from(self.segment_blocks)
    }
}

/// Makes a policy for a lane of that size.
pub type Build = fn(Capacity) -> Box<dyn Policy>;

registry! { Build: gated, reinsert, fifo }
