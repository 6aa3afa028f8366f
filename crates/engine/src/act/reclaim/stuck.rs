// SPDX-License-Identifier: MIT OR Apache-2.0
//! Victims that can't become free: their blocks are lost, or the origin refuses them.
//!
//! There are only a few victims at once. So a victim that waits for ever must not keep its place
//! (tests: `reclaim_goes_on_beside_what_is_refused`, and torture, where blocks are lost).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::state::VICTIM_WAIT_NS;
use crate::cx::Cx;
use crate::fact::types::{SegmentId, Time};
use crate::lane::Lane;
use crate::organ::segment::SegmentState;

/// Counts victims in which only lost blocks are left. They wait until those blocks are written
/// anew, and must not keep others from being reclaimed.
pub(crate) fn stuck_victims(lane: &Lane, cx: &Cx<'_>) -> usize {
    if cx.delta.lost() == 0 {
        return 0;
    }
    // A victim whose headers are being read counts as any other. Many at once would need more
    // buffers than there are.
    let stuck = |id: &&u32| lane.reclaim.victims.get(id).is_some_and(|victim| victim.pending == 0);
    held_by_lost(lane).iter().filter(stuck).count()
}

/// Segments whose dirty blocks are all lost.
fn held_by_lost(lane: &Lane) -> Vec<u32> {
    let slots = lane.log.segment_slots();
    let mut lost_in: BTreeMap<u32, u32> = BTreeMap::new();
    for found in lane.trouble.lost().filter_map(|flat| lane.store.get(flat)) {
        *lost_in.entry(found.slot / slots).or_default() += 1;
    }
    lost_in.retain(|id, lost| lane.log.segment(*id).dirty == *lost);
    lost_in.into_keys().collect()
}

/// Whether there will be no room until lost blocks are written anew. Then every segment that is
/// neither free nor open holds only lost dirty blocks, and nothing is under way that could change
/// that.
pub(crate) fn full_of_lost(lane: &Lane, cx: &Cx<'_>) -> bool {
    if cx.delta.lost() == 0 || !lane.runs.is_empty() {
        return false;
    }
    let held = held_by_lost(lane);
    (0..).zip(lane.log.segments()).all(|(id, segment)| match segment.state {
        SegmentState::Free | SegmentState::Open => true,
        SegmentState::Closed | SegmentState::Victim => held.binary_search(&id).is_ok(),
        SegmentState::Unproven | SegmentState::Freeing => false,
    })
}

/// Counts victims that wait for destage while an origin is away.
pub(crate) fn waiting_victims(lane: &Lane, cx: &Cx<'_>) -> usize {
    if cx.facts.away { lane.reclaim.victims.values().filter(|victim| victim.waits.is_some()).count() } else { 0 }
}

/// Gives back victims, because the origin has refused the blocks in these slots. These blocks
/// needn't be tried before all others any more. Their segments come up again when the policy has
/// offered all others. Those may hold blocks that the origin takes.
pub(crate) fn give_back(lane: &mut Lane, slots: impl Iterator<Item = u32>) {
    let segment_slots = lane.log.segment_slots();
    for slot in slots {
        let id = slot / segment_slots;
        let segment = lane.log.segment(id);
        if lane.reclaim.victims.get(&id).is_some_and(|victim| victim.pending == 0 && segment.dirty > 0) {
            give_back_victim(lane, id);
        }
    }
}

/// Gives back victims of which no block has become clean for long: their origin gives no answer.
pub(crate) fn give_back_waiting(lane: &mut Lane, now: Time) {
    let mut given_back = Vec::new();
    for (&id, victim) in &mut lane.reclaim.victims {
        let dirty = lane.log.segment(id).dirty;
        let Some((last, since)) = &mut victim.waits else { continue };
        if dirty < *last {
            (*last, *since) = (dirty, now);
        } else if victim.pending == 0 && dirty > 0 && now.since_ns(*since) >= VICTIM_WAIT_NS {
            given_back.push(id);
        }
    }
    for id in given_back {
        give_back_victim(lane, id);
    }
}

pub(crate) fn give_back_victim(lane: &mut Lane, id: u32) {
    let Some(victim) = lane.reclaim.victims.remove(&id) else { return };
    lane.reclaim.compacting = lane.reclaim.compacting.filter(|compacting| *compacting != id);
    lane.reclaim.vacates_in_vain = true;
    debug_assert!(victim.leaving.is_empty(), "blocks were chosen to leave, and stay");
    for (flat, _) in victim.blocks {
        // A block may be urgent for another reason: a client replaces it, or only one of its copies
        // is sound.
        if lane.trouble.is_urgent(flat) && !lane.is_changing(flat) {
            lane.trouble.calm(flat);
        }
    }
    let (segment, segment_slots) = (lane.log.segment(id), lane.log.segment_slots());
    lane.log.set_state(id, SegmentState::Closed);
    lane.policy.sealed(SegmentId(id), segment.zone);
    lane.reclaim.sparse.filled(id, segment.live, segment_slots);
}
