// SPDX-License-Identifier: MIT OR Apache-2.0
//! Room for segments that are cleaned: clients leave some room, and survivors wait for it.
//!
//! Blocks that the policy copies forward are dropped if the log takes no more at that moment,
//! because room is needed at once. But cleaning must not cost a block its place. So survivors of
//! cleaning wait until a commit in flight ends, or a segment becomes free. As many segments are
//! cleaned at once as have room.

use super::state::Victim;
use crate::act::commit::log::For;
use crate::act::reclaim::{has_trouble, is_cleaned, survivor_done};
use crate::cx::Cx;
use crate::format::Stream;
use crate::lane::Lane;
use crate::organ::flying::Survivor;

/// Whether a survivor that was read waits for room.
pub(crate) fn is_to_hold(lane: &Lane, survivor: &Survivor, cx: &Cx<'_>) -> bool {
    let ending = cx.cache_failed() || cx.facts.stopping;
    !survivor.found.dirty
        && (survivor.must || is_cleaned(lane, survivor.segment))
        && !ending
        && !has_room_for_survivor(lane)
        && room_comes(lane)
}

fn has_room_for_survivor(lane: &Lane) -> bool {
    lane.log.takes(Stream::Survivors, For::Cleaning, 0)
}

/// Whether the log will take more survivors, whatever clients and origins do.
fn room_comes(lane: &Lane) -> bool {
    lane.log.waits_for_commit(Stream::Survivors) || segment_comes(lane)
}

/// Whether a segment will be free as soon as the log says so durably.
fn segment_comes(lane: &Lane) -> bool {
    lane.reclaim.freeing.len() > lane.reclaim.pinned.len()
}

/// Free segments that clients leave to cleaning: one for each segment that is cleaned, and two
/// more. Dirty blocks and "freed" entries begin segments of their own. No segment is left while
/// cleaning may wait for an origin that doesn't answer, or has a reserve in the end of the log.
pub(crate) fn left_to_cleaning(lane: &Lane, cx: &Cx<'_>) -> usize {
    match lane.reclaim.victims.values().filter(|victim| victim.cleaned || victim.keeps).count() {
        _ if cx.facts.away || has_trouble(lane, cx) || lane.log.is_end_shut() => 0,
        0 if !lane.reclaim.waits => 0,
        0 => 3,
        cleaned => cleaned + 2,
    }
}

/// The number of segments whose blocks are being moved.
fn moving(lane: &Lane) -> usize {
    lane.reclaim.victims.values().filter(|victim| victim.cleaned && victim.known && victim.pending > 0).count()
}

/// Whether this victim waits for others to be cleaned. Each victim may take as much room as it will
/// give back.
pub(crate) fn waits_to_clean(lane: &Lane, segment: u32, victim: &Victim) -> bool {
    let (moving, free) = (moving(lane), lane.log.free_segments());
    let waits = match moving {
        0 => segment_comes(lane) && !lane.log.has_room_to_clean(&lane.log.segment(segment)),
        moving => free < lane.log.segments_to_clean(moving + 1),
    };
    victim.cleaned && !victim.chosen && waits
}

/// Parks a victim that has to wait for others. If its blocks can't be moved at all, the policy
/// judges its live blocks.
pub(crate) fn is_parked_to_clean(lane: &mut Lane, segment: u32) -> bool {
    let Some(victim) = lane.reclaim.victims.get(&segment).filter(|victim| victim.cleaned && !victim.chosen) else {
        return false;
    };
    let has_room = lane.log.has_room_to_clean(&lane.log.segment(segment));
    let parked = waits_to_clean(lane, segment, victim);
    if let Some(victim) = lane.reclaim.victims.get_mut(&segment) {
        victim.parked = parked;
        victim.cleaned = parked || has_room;
    }
    parked
}

/// Goes on with the survivors that waited for room.
pub(crate) fn resume_held(lane: &mut Lane, cx: &mut Cx<'_>) {
    if lane.reclaim.held.is_empty() || !has_room_for_survivor(lane) && room_comes(lane) {
        return;
    }
    for (survivor, buf) in core::mem::take(&mut lane.reclaim.held) {
        survivor_done(lane, survivor, buf, Ok(()), cx);
    }
}

/// Lets go of the survivors that wait. No block is moved any more: their blocks stay where they
/// are.
pub(crate) fn let_go_of_held(lane: &mut Lane, cx: &mut Cx<'_>) {
    for (survivor, buf) in core::mem::take(&mut lane.reclaim.held) {
        lane.reclaim.reading -= 1;
        lane.log.unpin(survivor.found.slot);
        cx.free(buf, 1);
    }
}
