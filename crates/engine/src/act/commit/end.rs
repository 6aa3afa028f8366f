// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a log, which is emptied so that the cache can shrink to its beginning (ADR 0069).
//!
//! Free segments of the end are put aside, but for as many as reclaim wants to be free. Nothing
//! else of the log changes: if the power is cut, the next opening knows of no end.

use alloc::collections::VecDeque;

use super::log::Log;
use crate::organ::segment::{Segment, SegmentState};

/// The segments of a log that are to stay empty.
pub(super) struct End {
    /// The first one; above all segments if there is none.
    first: u32,
    /// The number of other segments that are to be free.
    keep: usize,
    /// Free ones of the end.
    aside: VecDeque<u32>,
    /// A segment of the end became full since the last look.
    filled: bool,
    /// How long a commit took to be written lately.
    write_ns: u64,
}

impl Default for End {
    fn default() -> Self {
        Self { first: u32::MAX, keep: 0, aside: VecDeque::new(), filled: false, write_ns: 0 }
    }
}

impl Log {
    /// Whether the end of the log is being emptied.
    pub(crate) const fn has_end(&self) -> bool {
        self.end.first < u32::MAX
    }

    /// The segments from this one on are to stay empty from now on, while `keep` others are free;
    /// `None`: no segment is.
    pub(crate) fn set_end(&mut self, first: Option<u32>, keep: usize) {
        (self.end.first, self.end.keep, self.end.filled) = (first.unwrap_or(u32::MAX), keep, true);
        let free = self.free.drain(..).chain(self.end.aside.drain(..));
        let (others, end): (VecDeque<u32>, VecDeque<u32>) = free.partition(|id| *id < self.end.first);
        self.free = others;
        self.free.extend(end);
        self.balance();
    }

    /// A commit took so long to be written.
    pub(super) fn note_write(&mut self, took_ns: u64) {
        self.end.write_ns = took_ns.max(self.end.write_ns / 8 * 7);
    }

    /// How long a commit took to be written lately: the longest ones count.
    pub(crate) const fn write_ns(&self) -> u64 {
        self.end.write_ns
    }

    /// Notes that a segment is full.
    pub(super) const fn note_filled(&mut self, segment: u32) {
        self.end.filled |= segment >= self.end.first;
    }

    /// Whether a segment of the end became full since the last call.
    pub(crate) const fn take_end_filled(&mut self) -> bool {
        core::mem::replace(&mut self.end.filled, false)
    }

    /// Puts free segments of the end aside, or takes some back: so many are free as reclaim wants.
    /// What writes takes those of the end last.
    pub(super) fn balance(&mut self) {
        while self.free.len() > self.end.keep
            && let Some(segment) = self.free.pop_back_if(|id| *id >= self.end.first)
        {
            self.end.aside.push_back(segment);
        }
        while self.free.len() < self.end.keep
            && let Some(segment) = self.end.aside.pop_front()
        {
            self.free.push_back(segment);
        }
    }

    /// Makes a segment ready to be written anew.
    pub(crate) fn give_free(&mut self, segment: u32) {
        debug_assert_eq!(self.segments[segment as usize].live, 0);
        self.segments[segment as usize].state = SegmentState::Free;
        let at = if segment < self.end.first {
            self.free.partition_point(|id| *id < self.end.first)
        } else {
            self.free.len()
        };
        self.free.insert(at, segment);
        if self.has_end() {
            self.balance();
        }
    }

    /// The segments of the end, but for so many first ones.
    pub(crate) fn end_segments(&self, but: u32) -> impl Iterator<Item = (u32, &Segment)> {
        let first = self.end.first.saturating_add(but);
        (first..).zip(self.segments.get(first as usize..).unwrap_or_default())
    }

    /// Whether a segment is to stay empty.
    pub(crate) const fn is_in_end(&self, segment: u32) -> bool {
        segment >= self.end.first
    }

    /// Free segments that are not to stay empty.
    pub(crate) fn free_before_end(&self) -> usize {
        self.free.partition_point(|id| *id < self.end.first)
    }

    /// The place of a segment in the end.
    pub(crate) const fn nth_of_end(&self, segment: u32) -> u32 {
        segment - self.end.first
    }

    /// Blocks in full segments of the end; `None` if the end is not being emptied.
    pub(crate) fn left_in_end(&self) -> Option<u64> {
        let full = |it: &&Segment| !matches!(it.state, SegmentState::Free | SegmentState::Open);
        let left = || self.end_segments(0).map(|it| it.1).filter(full).map(|it| u64::from(it.live)).sum();
        self.has_end().then(left)
    }

    /// Slots of the segments before the end.
    pub(crate) fn slots_kept(&self) -> u64 {
        self.slots().min(u64::from(self.end.first) * u64::from(self.segment_slots))
    }
}
