// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which segment is reclaimed next: one of which little is live, or what the policy would give up;
//! first those that needn't wait for destage.

use core::cell::Cell;

use super::state::CLEANING_WAIT_NS;
use super::{COMPACTED_PART, GAIN_MIN, MOVED_PART};
use crate::act::reclaim::has_trouble;
use crate::cx::Cx;
use crate::fact::types::SegmentId;
use crate::lane::Lane;
use crate::organ::segment::{Segment, State};
use crate::organ::sparse::Sparse;

/// Whether enough of a segment of so many slots is dead that there is more room when it is cleaned.
const fn gains(segment: &Segment, slots: u32) -> bool {
    segment.live + GAIN_MIN <= slots
}

/// Which segment is reclaimed next, and whether all that is live in it is moved. None, too,
/// while a segment that can be cleaned is waited for.
pub(crate) fn choose_victim(lane: &mut Lane, cx: &Cx<'_>) -> Option<(u32, bool)> {
    let cleans = Sparse::cleans(lane.store.index().len(), lane.log.slots());
    if cleans && let Some(id) = sparse_victim(lane, true, cx) {
        lane.reclaim.waits_since = None;
        return Some((id, true));
    }
    if waits_for_segment(lane, cx) {
        return None;
    }
    let chosen = sparse_victim(lane, false, cx).or_else(|| ready_victim(lane, cx)).or_else(|| compact(lane, cx));
    let chosen = if chosen.is_some() || lane.reclaim.compacting.is_some() { chosen } else { dirty_victim(lane, cx) };
    chosen.map(|id| (id, false))
}

/// How much of a segment may be dirty that is reclaimed at once.
fn dirty_max(lane: &Lane, cx: &Cx<'_>) -> u32 {
    let moves = lane.log.has_room_to_move() && !has_trouble(lane, cx);
    if moves { lane.log.segment_slots() / MOVED_PART } else { 0 }
}

/// The same where all that is live is moved: all of it may be dirty.
fn dirty_max_to_clean(lane: &Lane, cx: &Cx<'_>) -> u32 {
    if has_trouble(lane, cx) { 0 } else { lane.log.segment_slots() }
}

/// The segment of which least is live: little, or so much as is worth moving for its dead room.
fn sparse_victim(lane: &mut Lane, cleans: bool, cx: &Cx<'_>) -> Option<u32> {
    let dirty_max = if cleans { dirty_max_to_clean(lane, cx) } else { dirty_max(lane, cx) };
    let covered = lane.checkpoint.covers();
    let most = Sparse::most(cleans, lane.reclaim.dropped);
    let (log, segment_slots) = (&lane.log, lane.log.segment_slots());
    let sparse = |id: u32| {
        let segment = &log.segments()[id as usize];
        let is_full = segment.state == State::Closed;
        let has_room = || !cleans || gains(segment, segment_slots) && log.has_room_to_clean(segment);
        is_full.then(|| segment.last_seq < covered && segment.is_ready(dirty_max) && has_room())
    };
    let id = lane.reclaim.sparse.take(most, sparse)?;
    lane.policy.forget(SegmentId(id));
    Some(id)
}

/// Whether a segment can soon be cleaned: it waits for a checkpoint, or for the end of what
/// reads there. As long as nothing had to be dropped, waiting is better than what the policy
/// would give up.
pub(super) fn waits_for_segment(lane: &mut Lane, cx: &Cx<'_>) -> bool {
    if lane.reclaim.dropped || cx.facts.away || !Sparse::cleans(lane.store.index().len(), lane.log.slots()) {
        return false;
    }
    let since = *lane.reclaim.waits_since.get_or_insert(cx.now);
    let (most, dirty_max) = (Sparse::most(true, false), dirty_max_to_clean(lane, cx));
    let (segments, segment_slots) = (lane.log.segments(), lane.log.segment_slots());
    let fits = |id: u32| {
        let segment = &segments[id as usize];
        segment.state == State::Closed && segment.dirty <= dirty_max && gains(segment, segment_slots)
    };
    let covered = lane.checkpoint.covers();
    let sparse = &lane.reclaim.sparse;
    let uncovered = sparse.any(most, |id| fits(id) && segments[id as usize].last_seq >= covered);
    let waits = (uncovered || sparse.any(most, fits)) && cx.now.since_ns(since) < CLEANING_WAIT_NS;
    if uncovered && waits {
        lane.checkpoint.want();
    }
    lane.reclaim.waits = waits;
    waits
}

/// The one that the policy would give up first, of those that needn't wait for destage.
fn ready_victim(lane: &mut Lane, cx: &Cx<'_>) -> Option<u32> {
    let (dirty_max, covered) = (dirty_max(lane, cx), lane.checkpoint.covers());
    let segments = lane.log.segments();
    let passed_over = Cell::new(false);
    let ready = |id: SegmentId| {
        let segment = &segments[id.0 as usize];
        let evictable = segment.is_evictable(covered);
        let ready = segment.is_ready(dirty_max);
        passed_over.set(passed_over.get() || evictable && !ready);
        evictable && ready
    };
    let victim = lane.policy.victim(&ready);
    lane.reclaim.behind = passed_over.get().then_some(cx.now);
    victim.map(|id| id.0)
}

/// The one that it would give up first. It has to wait for destage, in an order that is not the
/// origin's: only where no other is left.
fn dirty_victim(lane: &mut Lane, cx: &Cx<'_>) -> Option<u32> {
    let (covered, slots) = (lane.checkpoint.covers(), lane.log.segment_slots());
    let segments = lane.log.segments();
    let victim = lane.policy.victim(&|id: SegmentId| segments[id.0 as usize].is_evictable(covered));
    // A checkpoint helps only if full segments wait for one; and if destage can't be relied on,
    // with holes.
    let dirty_max = match victim {
        None => slots,
        Some(_) if cx.facts.away => slots / COMPACTED_PART,
        Some(SegmentId(id)) => return Some(id),
    };
    if checkpoint_helps(lane, dirty_max) {
        lane.checkpoint.want();
    }
    victim.map(|id| id.0)
}

/// Whether a full segment of which so much is dirty at most waits for a checkpoint.
pub(crate) fn checkpoint_helps(lane: &Lane, dirty_max: u32) -> bool {
    let covered = lane.checkpoint.covers();
    let helps = |it: &Segment| it.state == State::Closed && it.last_seq >= covered && it.dirty <= dirty_max;
    lane.log.segments().iter().any(helps)
}

/// While an origin takes nothing, its dirty blocks can lie in all segments: then the holes
/// between them are all the room there is. Chooses the segment that has the fewest of them, to
/// move these; one at a time (tests: `a_log_full_of_scattered_dirty_blocks_has_room`,
/// `a_power_cut_while_a_log_is_compacted`).
pub(crate) fn compact(lane: &mut Lane, cx: &Cx<'_>) -> Option<u32> {
    let compacting = lane.reclaim.compacting.is_some();
    if !cx.facts.away || compacting || lane.trouble.reads_elsewhere() {
        return None;
    }
    let most = (lane.log.segment_slots() / COMPACTED_PART).min(lane.log.room_to_compact());
    let covered = lane.checkpoint.covers();
    let fit = |it: &Segment| it.is_evictable(covered) && it.pins == 0 && it.dirty <= most;
    let tried = |id: &u32| lane.reclaim.not_compacted.contains(id);
    let segments = (0..).zip(lane.log.segments()).filter(|(id, it)| fit(it) && !tried(id));
    let (id, _) = segments.min_by_key(|(_, it)| it.dirty)?;
    lane.reclaim.compacting = Some(id);
    lane.policy.forget(SegmentId(id));
    Some(id)
}
