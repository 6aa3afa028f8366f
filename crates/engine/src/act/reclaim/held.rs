// SPDX-License-Identifier: MIT OR Apache-2.0
//! Room for segments that are cleaned: clients leave some, and survivors wait for it.
//!
//! What the policy copies forward is dropped where the log takes no more at that moment: room is
//! needed at once then. Cleaning is to cost no block its place. So its survivors wait for a commit
//! in flight to end, or for a segment to become free. As many segments are cleaned at once as have
//! room.

use super::state::Victim;
use crate::act::commit::log::For;
use crate::cx::Cx;
use crate::format::Stream;
use crate::lane::Lane;
use crate::organ::flying::Survivor;

impl Lane {
    /// Whether a survivor that was read waits for room.
    pub(super) fn is_to_hold(&self, survivor: &Survivor, cx: &Cx<'_>) -> bool {
        let ending = cx.shared.cache_failed || cx.shared.stopping;
        !survivor.found.dirty
            && self.is_cleaned(survivor.segment)
            && !ending
            && !self.has_room_for_survivor()
            && self.room_comes()
    }

    fn has_room_for_survivor(&self) -> bool {
        self.log.takes(Stream::Survivors, For::Cleaning, 0)
    }

    /// Whether the log will take more survivors, whatever clients and origins do.
    fn room_comes(&self) -> bool {
        self.log.waits_for_commit(Stream::Survivors) || self.segment_comes()
    }

    /// Whether a segment will be free as soon as the log says so durably.
    fn segment_comes(&self) -> bool {
        self.reclaim.freeing.len() > self.reclaim.pinned.len()
    }

    /// Free segments that clients leave to cleaning: for each segment that is cleaned, and two
    /// more, as dirty blocks and "freed" entries begin segments of their own. None while that may
    /// wait for an origin that answers nothing.
    pub(super) fn left_to_cleaning(&self, cx: &Cx<'_>) -> usize {
        match self.reclaim.victims.values().filter(|victim| victim.cleaned).count() {
            _ if cx.shared.away || self.has_trouble(cx) => 0,
            0 if !self.reclaim.waits => 0,
            0 => 3,
            cleaned => cleaned + 2,
        }
    }

    /// Segments whose blocks are on their way.
    fn moving(&self) -> usize {
        self.reclaim.victims.values().filter(|victim| victim.cleaned && victim.known && victim.pending > 0).count()
    }

    /// Whether this victim waits for others to be clean: each may take as much room as it will give
    /// back.
    pub(super) fn waits_to_clean(&self, segment: u32, victim: &Victim) -> bool {
        let (moving, free) = (self.moving(), self.log.free_segments());
        let waits = match moving {
            0 => self.segment_comes() && !self.log.has_room_to_clean(&self.log.segment(segment)),
            moving => free < self.log.segments_to_clean(moving + 1),
        };
        victim.cleaned && !victim.chosen && waits
    }

    /// Parks a victim that has to wait for others. Where it can't be moved at all, what is live is
    /// the policy's to judge.
    pub(super) fn is_parked_to_clean(&mut self, segment: u32) -> bool {
        let Some(victim) = self.reclaim.victims.get(&segment).filter(|victim| victim.cleaned && !victim.chosen) else {
            return false;
        };
        let has_room = self.log.has_room_to_clean(&self.log.segment(segment));
        let parked = self.waits_to_clean(segment, victim);
        if let Some(victim) = self.reclaim.victims.get_mut(&segment) {
            victim.parked = parked;
            victim.cleaned = parked || has_room;
        }
        parked
    }

    /// Goes on with those that waited.
    pub(super) fn resume_held(&mut self, cx: &mut Cx<'_>) {
        if self.reclaim.held.is_empty() || !self.has_room_for_survivor() && self.room_comes() {
            return;
        }
        for (survivor, buf) in core::mem::take(&mut self.reclaim.held) {
            self.survivor_done(survivor, buf, Ok(()), cx);
        }
    }

    /// Nothing is moved any more: their blocks stay where they are.
    pub(super) fn let_go_of_held(&mut self, cx: &mut Cx<'_>) {
        for (survivor, buf) in core::mem::take(&mut self.reclaim.held) {
            self.reclaim.reading -= 1;
            self.log.unpin(survivor.found.slot);
            cx.free(buf, 1);
        }
    }
}
