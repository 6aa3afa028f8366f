// SPDX-License-Identifier: MIT OR Apache-2.0
//! The segments of a log: what changes how much of them is live, dirty, pinned, or free.
//!
//! The numbers change by these verbs alone (`check` compares them with the index).

use super::log::Log;
use crate::format::Stream;
use crate::organ::segment::{Segment, SegmentState};
use crate::policy::Zone;

impl Log {
    /// What the segment of a slot is filled with.
    pub(crate) fn zone_of(&self, slot: u32) -> Zone {
        self.segments[(slot / self.segment_slots) as usize].zone
    }

    /// A segment, by its number.
    pub(crate) fn segment(&self, id: u32) -> Segment {
        self.segments[id as usize]
    }

    /// All segments, by their numbers.
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// A block is in this slot from now on; with `mirrored`, dirty blocks tell that both members of
    /// a mirrored cache have the segment.
    pub(crate) fn block_came(&mut self, slot: u32, dirty: bool, mirrored: bool) {
        let segment = self.segment_of(slot);
        segment.live += 1;
        if dirty {
            segment.dirty += 1;
            segment.mirrored |= mirrored;
        }
    }

    /// A block left this slot. Returns how many are left, if the segment is full.
    pub(crate) fn block_left(&mut self, slot: u32, dirty: bool) -> Option<u32> {
        let segment = self.segment_of(slot);
        segment.live -= 1;
        segment.dirty -= u32::from(dirty);
        (segment.state == SegmentState::Closed).then_some(segment.live)
    }

    /// The block in this slot is clean now.
    pub(crate) fn block_cleaned(&mut self, slot: u32) {
        self.segment_of(slot).dirty -= 1;
        self.note_room(slot / self.segment_slots);
    }

    /// The block in this slot was put there because one beside it missed.
    pub(crate) fn neighbour_came(&mut self, slot: u32) {
        self.segment_of(slot).neighbours += 1;
    }

    /// How many such blocks were put into a segment, which is to be free.
    pub(crate) fn take_neighbours(&mut self, id: u32) -> u32 {
        core::mem::take(&mut self.segments[id as usize].neighbours)
    }

    /// Replay found a commit whose header is in this slot.
    pub(crate) fn commit_found(&mut self, slot: u32, seq: u64) {
        self.segment_of(slot).last_seq = seq;
    }

    /// Replay found that a segment was freed. What is written there next may be clean blocks, which
    /// the lead alone has.
    pub(crate) fn freed_found(&mut self, id: u32) {
        if let Some(segment) = self.segments.get_mut(id as usize) {
            segment.mirrored = false;
        }
    }

    /// A checkpoint has the last commits of the segments from this one on.
    pub(crate) fn ages_found(&mut self, from: usize, ages: &[u64]) {
        self.segments[from..].iter_mut().zip(ages).for_each(|(segment, age)| segment.last_seq = *age);
    }

    /// A new member of a mirrored cache has no segment yet.
    pub(crate) fn mirror_is_empty(&mut self) {
        self.segments.iter_mut().for_each(|segment| segment.mirrored = false);
    }

    /// A segment is something else from now on.
    pub(crate) fn set_state(&mut self, id: u32, state: SegmentState) {
        self.segments[id as usize].state = state;
        if state == SegmentState::Closed {
            self.note_filled(id);
        }
    }

    /// A slot is read: its segment stays until it is no more.
    pub(crate) fn pin(&mut self, slot: u32) {
        self.segment_of(slot).pins += 1;
    }

    /// A slot that was pinned is read no more.
    pub(crate) fn unpin(&mut self, slot: u32) {
        self.segment_of(slot).pins -= 1;
    }

    pub(super) fn segment_of(&mut self, slot: u32) -> &mut Segment {
        &mut self.segments[(slot / self.segment_slots) as usize]
    }

    /// Whether a slot is in a segment that will be free soon.
    pub(crate) fn given_up(&self, slot: u32) -> bool {
        self.segments[(slot / self.segment_slots) as usize].state == SegmentState::Freeing
    }

    /// The last commit of the segments that these slots are in.
    pub(crate) fn last_seq_of(&self, slots: impl Iterator<Item = u32>) -> u64 {
        slots.map(|slot| self.segments[(slot / self.segment_slots) as usize].last_seq).max().unwrap_or(0)
    }

    pub(super) fn take_free(&mut self, stream: usize) -> Option<u32> {
        let segment = self.free.pop_front()?;
        let taken = &mut self.segments[segment as usize];
        let zone = if stream == Stream::Writes as usize { Zone::Writes } else { Zone::Main };
        (taken.state, taken.zone, taken.mirrored) = (SegmentState::Open, zone, false);
        if self.has_end() {
            self.note_taken();
            self.balance();
        }
        Some(segment)
    }

    pub(crate) fn slots(&self) -> u64 {
        self.segments.len() as u64 * u64::from(self.segment_slots)
    }

    pub(crate) fn segment_slots(&self) -> u32 {
        self.segment_slots
    }

    pub(crate) fn free_segments(&self) -> usize {
        self.free.len()
    }
}
