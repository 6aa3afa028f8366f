// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a log, which is emptied so that the cache can shrink to its beginning (ADR 0069).
//!
//! Free segments of the end are put aside, but for as many as reclaim wants to be free. While the
//! end is shut, they are a reserve: clients begin only segments before it. Nothing else of the log
//! changes: if the power is cut, the next opening knows of no end.

use alloc::collections::VecDeque;

use super::log::{For, Log};
use crate::organ::segment::{Segment, SegmentState};

/// The segments of a log that are to stay empty.
pub(super) struct End {
    /// The first one; above all segments if there is none.
    first: u32,
    /// The number of other segments that are to be free.
    keep: usize,
    /// Free ones of the end.
    aside: VecDeque<u32>,
    /// Clients begin no segment of it.
    shut: bool,
    /// A segment of the end became full since the last look.
    filled: bool,
    /// Since the last look a segment before the end became free, or a block there became clean.
    room_comes: bool,
    /// Segments that were taken since one of the end was begun to be emptied.
    taken: u32,
    /// How long a commit took to be written lately.
    write_ns: u64,
}

impl Default for End {
    fn default() -> Self {
        Self {
            first: u32::MAX,
            keep: 0,
            aside: VecDeque::new(),
            shut: false,
            filled: false,
            room_comes: false,
            taken: 0,
            write_ns: 0,
        }
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
        (self.end.shut, self.end.taken) = (false, 0);
        let free = self.free.drain(..).chain(self.end.aside.drain(..));
        let (others, end): (VecDeque<u32>, VecDeque<u32>) = free.partition(|id| *id < self.end.first);
        self.free = others;
        self.free.extend(end);
        self.balance();
    }

    /// From now on clients begin segments of the end, or begin none.
    pub(crate) const fn shut_end(&mut self, shut: bool) {
        self.end.shut = shut;
    }

    /// Whether clients begin no segment of the end.
    pub(crate) const fn is_end_shut(&self) -> bool {
        self.end.shut
    }

    /// Free segments of which clients may begin one, if they leave enough.
    pub(super) fn free_to_clients(&self) -> usize {
        if self.end.shut { self.free_before_end() } else { self.free.len() }
    }

    /// Whether too few segments are free before the end for clients to begin one of them.
    pub(crate) fn is_short_before_end(&self) -> bool {
        self.free_before_end() < For::Clients.needs(true)
    }

    /// Whether reclaim may move dirty blocks, and finds room for them where clients write.
    pub(crate) fn may_move(&self) -> bool {
        self.has_room_to_move() && !(self.end.shut && self.is_short_before_end())
    }

    /// Notes that a block became clean, or a segment free.
    pub(super) const fn note_room(&mut self, segment: u32) {
        self.end.room_comes |= segment < self.end.first;
    }

    /// Whether, since the last call, a segment before the end became free, or a block there clean.
    pub(crate) const fn take_room_comes(&mut self) -> bool {
        core::mem::replace(&mut self.end.room_comes, false)
    }

    /// A segment was taken.
    pub(super) const fn note_taken(&mut self) {
        self.end.taken = self.end.taken.saturating_add(1);
    }

    /// Segments that were taken since one of the end was begun to be emptied.
    pub(crate) const fn taken(&self) -> u32 {
        self.end.taken
    }

    /// A segment of the end is begun to be emptied.
    pub(crate) const fn end_begun(&mut self) {
        self.end.taken = 0;
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
        self.note_room(segment);
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

    /// Free segments of the end that were put aside.
    pub(crate) fn put_aside(&self) -> usize {
        self.end.aside.len()
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
