// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of the log is emptied, while clients are served, so that the cache can shrink to its
//! beginning (ADR 0069).
//!
//! Segments of the end are reclaimed one after the other. If all that is live has room before the
//! end, it is moved there. Else the policy judges what is clean, as when room is needed. Dirty
//! blocks are moved, or destaged where there is no room for them. Beside clients blocks are read
//! one by one, with a pause after each commit. Clients begin no segment of the end, so those that
//! never pause keep no end full (ADR 0075; test: `writers_that_never_pause_keep_no_end`).

use alloc::vec::Vec;

use super::state::{SHORT_MAX_NS, VICTIM_WAIT_NS, Victim};
use super::{SURVIVORS_MAX, VICTIMS_MAX, begin_victim, has_trouble, note_freed, read_waiting_survivors};
use crate::act::sync::COPIES_MAX;
use crate::cx::Cx;
use crate::fact::canary::Canary;
use crate::fact::types::{SegmentId, Time};
use crate::format::{COMMIT_ENTRIES_MAX, STREAMS};
use crate::lane::Lane;
use crate::organ::segment::SegmentState;
use crate::organ::sparse::Sparse;

/// Segments of the end that are reclaimed at once.
const AT_ONCE: usize = 2;
/// Segments before the end that are free before one of the end is begun. What is dirty is moved
/// into one, and what is clean into another. Else blocks would only go through the end.
const FREE_BEFORE_END: usize = 2;
/// When the log has taken so many segments, one of the end is begun beside all that clients need.
/// So the end becomes empty however fast they write.
const TAKEN_FOR_ONE: u32 = 4;
/// Eighths of the slots before the end that may be dirty: as many as in a cache of that size
/// (`Engine::dirty_limits`).
const DIRTY_EIGHTHS: u64 = 7;
/// Clients that have asked for something in this time are considered.
const CLIENTS_NS: u64 = 100_000_000;
/// Survivors that are read at once beside clients.
const BESIDE_CLIENTS: usize = 1;
/// Readers wait for the write of a commit. Beside clients such writes take a hundredth of the time,
/// so that 99 of a hundred readers don't notice (`bench/scenarios/shrink.toml`).
const PART_OF_TIME: u64 = 100;
/// The longest pause between two such commits.
const PAUSE_MAX_NS: u64 = 1_000_000_000;
/// Segments that become free together, by one flush of the device.
const FREED_AT_ONCE: usize = 32;

/// The segments from this one on are to be empty; `None`: no segment is.
pub(crate) fn vacate(lane: &mut Lane, first: Option<u32>, cx: &mut Cx<'_>) {
    free_emptied(lane, cx);
    let keep = lane.reclaim.watermark(&lane.log);
    lane.log.set_end(first, keep);
    lane.reclaim.begin_end();
    (lane.reclaim.vacated, lane.reclaim.vacated_below) = (0, None);
    (lane.reclaim.vacates_in_vain, lane.reclaim.vacates_again) = (false, None);
    (lane.reclaim.pauses_until, lane.reclaim.short_since) = (None, None);
    read_waiting_survivors(lane, cx);
}

/// Shuts the end, as long as what clients write finds room before it.
pub(super) fn guard_end(lane: &mut Lane, cx: &Cx<'_>) {
    if !lane.log.has_end() {
        return;
    }
    let comes = lane.log.take_room_comes();
    let short = lane.log.is_short_before_end();
    lane.reclaim.short_since = lane.reclaim.short_since.filter(|_| short && !comes).or(short.then_some(cx.now));
    let in_vain = lane.reclaim.short_since.is_some_and(|since| cx.now.since_ns(since) >= SHORT_MAX_NS);
    let ending = cx.facts.stopping || cx.cache_failed();
    let has_room = lane.store.dirty() <= lane.log.slots_kept() * DIRTY_EIGHTHS / 8;
    let ending = ending || cx.facts.planted(Canary::EndRefilled);
    lane.log.shut_end(!ending && !in_vain && has_room && !cx.facts.away && !has_trouble(lane, cx));
}

/// Whether the end is being emptied, and nobody waits for room.
fn has_time(lane: &Lane) -> bool {
    lane.log.has_end() && lane.log.has_room_to_move() && !lacks_room(lane)
}

/// Whether clients wait until segments before the end are free.
fn lacks_room(lane: &Lane) -> bool {
    lane.log.is_end_shut() && lane.log.is_short_before_end() && !lane.awaiting_room.is_empty()
}

/// Whether that happens beside clients.
fn is_gentle(lane: &Lane, now: Time) -> bool {
    has_time(lane) && lane.reclaim.clients_at.is_some_and(|at| now.since_ns(at) < CLIENTS_NS)
}

/// Survivors that are read at once.
pub(super) fn survivors_at_once(lane: &Lane, now: Time) -> usize {
    match has_time(lane) {
        false => SURVIVORS_MAX,
        true if lane.reclaim.pauses_until.is_some_and(|until| now < until) => 0,
        true if is_gentle(lane, now) => BESIDE_CLIENTS,
        true => COPIES_MAX as usize,
    }
}

/// A survivor was appended: beside clients a pause follows each full commit.
pub(super) fn appended(lane: &mut Lane, now: Time) {
    let moved = lane.reclaim.moved_one();
    if moved.is_multiple_of(COMMIT_ENTRIES_MAX as u64) && is_gentle(lane, now) {
        let pause_ns = (PART_OF_TIME * lane.log.write_ns()).min(PAUSE_MAX_NS);
        lane.reclaim.pauses_until = Some(now.plus_ns(pause_ns));
    }
}

/// Which segments become free now, as this one is given up. They wait for others if there is time.
pub(super) fn freed_together(lane: &mut Lane, segment: u32) -> Vec<u32> {
    lane.reclaim.emptied.push(segment);
    if has_time(lane) && lane.reclaim.emptied.len() < FREED_AT_ONCE {
        return Vec::new();
    }
    core::mem::take(&mut lane.reclaim.emptied)
}

/// Segments before the end that reclaim is to free for that.
pub(super) fn wanted_before_end(lane: &Lane) -> usize {
    if !lane.log.has_end() {
        return 0;
    }
    let coming = lane.reclaim.victims.keys().chain(lane.reclaim.freeing.keys());
    let coming = coming.filter(|id| !lane.log.is_in_end(**id)).count();
    // Where clients begin no other segment, as many as in a cache without an end. But as long as
    // nobody waits for them, nothing is dropped for that.
    let most = lane.reclaim.watermark(&lane.log);
    let drops = fits_before_end(lane, FREE_BEFORE_END) && !fits_before_end(lane, most);
    let clients = lane.log.is_end_shut() && (!drops || lacks_room(lane));
    let wanted = if clients { most } else { FREE_BEFORE_END };
    wanted.saturating_sub(lane.log.free_before_end() + coming)
}

/// Begins to reclaim segments of the end.
pub(super) fn vacate_step(lane: &mut Lane, cx: &mut Cx<'_>) {
    if !lane.log.has_end() {
        return;
    }
    if !lane.pieces.is_empty() {
        lane.reclaim.clients_at = Some(cx.now);
    }
    if lane.reclaim.pauses_until.is_some_and(|until| until <= cx.now) {
        lane.reclaim.pauses_until = None;
    }
    read_waiting_survivors(lane, cx);
    lane.reclaim.note_free(lane.log.put_aside());
    let waits = is_to_wait(lane, cx.now);
    let has_room = lane.log.free_before_end() >= FREE_BEFORE_END;
    // A victim may wait for these segments: only one that is read brings more of them.
    if !has_time(lane) || lane.reclaim.victims.values().all(|victim| victim.pending == 0) {
        free_emptied(lane, cx);
    }
    if waits || !has_room || lane.reclaim.moves_in_vain(lane.log.slots()) {
        return;
    }
    while lane.reclaim.victims.len() < if is_due(lane) { VICTIMS_MAX } else { AT_ONCE } {
        let Some(id) = next(lane) else {
            lane.reclaim.vacated_below = Some(lane.checkpoint.covers());
            return;
        };
        let cleaned = is_moved(lane, id, cx);
        if !cleaned && fits_before_end(lane, FREE_BEFORE_END) && !has_trouble(lane, cx) {
            // Room to move all of it comes.
            return;
        }
        lane.policy.forget(SegmentId(id));
        lane.log.end_begun();
        begin_victim(lane, id, Victim { cleaned, ..Victim::default() }, cx);
    }
}

/// Whether a segment of the end is to be begun, however many others are under reclaim.
pub(super) fn is_due(lane: &Lane) -> bool {
    lane.log.is_end_shut()
        && lane.log.taken() >= TAKEN_FOR_ONE
        && !lane.reclaim.victims.keys().any(|id| lane.log.is_in_end(*id))
}

/// The segments that waited for others become free.
fn free_emptied(lane: &mut Lane, cx: &mut Cx<'_>) {
    for segment in core::mem::take(&mut lane.reclaim.emptied) {
        note_freed(lane, segment, cx);
    }
}

/// Whether there is nothing to do. No segment could be reclaimed at the last look, and none became
/// full since, nor was covered by a checkpoint. Or one was given back lately.
fn is_to_wait(lane: &mut Lane, now: Time) -> bool {
    if core::mem::take(&mut lane.reclaim.vacates_in_vain) {
        lane.reclaim.vacates_again = Some(now.plus_ns(VICTIM_WAIT_NS));
    }
    if lane.reclaim.vacates_again.is_some_and(|at| now < at) {
        return true;
    }
    lane.reclaim.vacates_again = None;
    if lane.log.take_end_filled() || lane.reclaim.vacated_below != Some(lane.checkpoint.covers()) {
        lane.reclaim.vacated_below = None;
    }
    lane.reclaim.vacated_below.is_some()
}

/// Finds the next segment that can be reclaimed. If there are only segments that wait for a
/// checkpoint, that is asked for.
fn next(lane: &mut Lane) -> Option<u32> {
    let covered = lane.checkpoint.covers();
    let from = lane.reclaim.vacated;
    let found =
        [from, 0].into_iter().find_map(|from| lane.log.end_segments(from).find(|it| it.1.is_evictable(covered)));
    if let Some((id, nth)) = found.map(|(id, _)| (id, lane.log.nth_of_end(id))) {
        lane.reclaim.vacated = nth + 1;
        return Some(id);
    }
    if lane.log.end_segments(0).any(|it| it.1.state == SegmentState::Closed) {
        lane.checkpoint.want();
    }
    None
}

/// Whether all that is live in a segment is moved: there is room for all that is live, or for all
/// that must stay.
fn is_moved(lane: &Lane, id: u32, cx: &Cx<'_>) -> bool {
    let (segment, room) = (lane.log.segment(id), room_before_end(lane, FREE_BEFORE_END));
    let fits = |blocks: u64| Sparse::cleans(blocks, room);
    let stays = segment.dirty > 0 && fits(lane.store.dirty()) || lane.reclaim.turned.contains(&id);
    (fits(lane.store.index().len()) || stays) && !has_trouble(lane, cx) && lane.log.has_room_to_clean(&segment)
}

/// Whether all that is live has room before the end, beside so many free segments.
fn fits_before_end(lane: &Lane, free: usize) -> bool {
    Sparse::cleans(lane.store.index().len(), room_before_end(lane, free))
}

/// Slots before the end that can be filled, beside so many free segments.
fn room_before_end(lane: &Lane, free: usize) -> u64 {
    // Each stream has two segments.
    let used = (free + 2 * STREAMS) as u64 * u64::from(lane.log.segment_slots());
    lane.log.slots_kept().saturating_sub(used)
}
