// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which segment is reclaimed next: one of which little is live, or what the policy would give up;
//! first those that needn't wait for destage.

use core::cell::Cell;

use super::{COMPACTED_PART, MOVED_PART};
use crate::cx::Cx;
use crate::lane::Lane;
use crate::organ::segment::{Segment, State};
use crate::sparse::Sparse;
use crate::types::SegmentId;

impl Lane {
    /// Which segment is reclaimed next.
    pub(super) fn choose_victim(&mut self, cx: &Cx<'_>) -> Option<u32> {
        let chosen = self.sparse_victim(cx).or_else(|| self.ready_victim(cx)).or_else(|| self.compact(cx));
        if chosen.is_some() || self.reclaim.compacting.is_some() { chosen } else { self.dirty_victim(cx) }
    }

    /// How much of a segment may be dirty that is reclaimed at once.
    fn dirty_max(&self, cx: &Cx<'_>) -> u32 {
        let moves = self.log.has_room_to_move() && !self.has_trouble(cx);
        if moves { self.log.segment_slots() / MOVED_PART } else { 0 }
    }

    /// One of which little is live.
    fn sparse_victim(&mut self, cx: &Cx<'_>) -> Option<u32> {
        let (dirty_max, slots, covered) = (self.dirty_max(cx), self.log.segment_slots(), self.checkpoint.covers);
        let segments = self.log.segments();
        let sparse = |id: u32| {
            let segment = &segments[id as usize];
            let is_sparse = segment.state == State::Closed && Sparse::is(segment.live, slots);
            is_sparse.then_some(segment.last_seq < covered && segment.pins == 0 && segment.dirty <= dirty_max)
        };
        let id = self.reclaim.sparse.take(sparse)?;
        self.policy.forget(SegmentId(id));
        Some(id)
    }

    /// The one that the policy would give up first, of those that needn't wait for destage.
    fn ready_victim(&mut self, cx: &Cx<'_>) -> Option<u32> {
        let (dirty_max, covered) = (self.dirty_max(cx), self.checkpoint.covers);
        let segments = self.log.segments();
        let passed_over = Cell::new(false);
        let ready = |id: SegmentId| {
            let segment = &segments[id.0 as usize];
            let evictable = segment.is_evictable(covered);
            let ready = segment.dirty == 0 || segment.dirty <= dirty_max && segment.pins == 0;
            passed_over.set(passed_over.get() || evictable && !ready);
            evictable && ready
        };
        let victim = self.policy.victim(&ready);
        self.reclaim.behind = passed_over.get().then_some(cx.now);
        victim.map(|id| id.0)
    }

    /// The one that it would give up first. It has to wait for destage, in an order that is not the
    /// origin's: only where no other is left.
    fn dirty_victim(&mut self, cx: &Cx<'_>) -> Option<u32> {
        let (covered, slots) = (self.checkpoint.covers, self.log.segment_slots());
        let segments = self.log.segments();
        let victim = self.policy.victim(&|id: SegmentId| segments[id.0 as usize].is_evictable(covered));
        // A checkpoint helps only if full segments wait for one; and if destage can't be relied on,
        // with holes.
        let dirty_max = match victim {
            None => slots,
            Some(_) if cx.shared.away => slots / COMPACTED_PART,
            Some(SegmentId(id)) => return Some(id),
        };
        self.checkpoint.wanted |= self.checkpoint_helps(dirty_max);
        victim.map(|id| id.0)
    }

    /// Whether a full segment of which so much is dirty at most waits for a checkpoint.
    pub(super) fn checkpoint_helps(&self, dirty_max: u32) -> bool {
        let covered = self.checkpoint.covers;
        let helps = |it: &Segment| it.state == State::Closed && it.last_seq >= covered && it.dirty <= dirty_max;
        self.log.segments().iter().any(helps)
    }

    /// While an origin takes nothing, its dirty blocks can lie in all segments: then the holes
    /// between them are all the room there is. Chooses the segment that has the fewest of them, to
    /// move these; one at a time (tests: `a_log_full_of_scattered_dirty_blocks_has_room`,
    /// `a_power_cut_while_a_log_is_compacted`).
    pub(super) fn compact(&mut self, cx: &Cx<'_>) -> Option<u32> {
        let compacting = self.reclaim.compacting.is_some();
        if !cx.shared.away || compacting || self.trouble.reads_elsewhere() {
            return None;
        }
        let most = (self.log.segment_slots() / COMPACTED_PART).min(self.log.room_to_compact());
        let covered = self.checkpoint.covers;
        let fit = |it: &Segment| it.is_evictable(covered) && it.pins == 0 && it.dirty <= most;
        let tried = |id: &u32| self.reclaim.not_compacted.contains(id);
        let segments = (0..).zip(self.log.segments()).filter(|(id, it)| fit(it) && !tried(id));
        let (id, _) = segments.min_by_key(|(_, it)| it.dirty)?;
        self.reclaim.compacting = Some(id);
        self.policy.forget(SegmentId(id));
        Some(id)
    }
}
