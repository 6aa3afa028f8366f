// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which segment is reclaimed next, and which of its blocks are copied forward.
//!
//! A policy sees segment numbers, hits, and whether a segment may be reclaimed now; no I/O, no
//! clock, not the cache.

use alloc::boxed::Box;

use crate::policy::registry;
use crate::types::SegmentId;

#[cfg(test)]
mod tests;

/// A replacement policy, one per lane.
pub trait Replacement: Send {
    /// This segment is full. Called again for a segment only after [`Replacement::freed`].
    fn sealed(&mut self, segment: SegmentId);

    /// This segment is empty and will be written anew.
    fn freed(&mut self, segment: SegmentId);

    /// The segment to reclaim next, of those for which `evictable` says yes; it stays known until
    /// [`Replacement::freed`].
    fn victim(&mut self, evictable: &dyn Fn(SegmentId) -> bool) -> Option<SegmentId>;

    /// Whether a clean block of a segment under reclaim, seen `hits` times since it was written
    /// (at most 3), is copied forward; `kept` of the segment's `slots` have been so far.
    fn survives(&self, hits: u8, kept: u32, slots: u32) -> bool;
}

/// Makes a policy for a lane of that many segments.
pub type Build = fn(segments: u32) -> Box<dyn Replacement>;

registry! { Build: fifo_reinsert, fifo }
