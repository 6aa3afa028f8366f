// SPDX-License-Identifier: MIT OR Apache-2.0
//! The beginning and the end of a lane's part in filling the other member.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::state::{Fill, Sync};
use crate::act::damage::take_for_found;
use crate::cx::Cx;
use crate::lane::Lane;
use crate::organ::index::Flat;
use crate::organ::segment::Segment;
use crate::organ::up::Up;

/// A lane begins to fill the other member.
pub(crate) fn fill(lane: &mut Lane, number: u64, what: Fill) {
    if what != Fill::Clean {
        lane.trouble.forget_copies();
        lane.log.mirror_is_empty();
    }
    let counted = |segment: &Segment| match what {
        // A lane has no set of dirty blocks while it opens.
        Fill::Dirty => segment.dirty,
        Fill::Clean => segment.live - segment.dirty,
        Fill::All => segment.live,
    };
    let of = lane.log.segments().iter().map(|segment| u64::from(counted(segment))).sum();
    // What is in flight for a filling that was given up ends as it would have.
    let flying = lane.sync.take().map_or(0, |sync| sync.flying);
    lane.sync = Some(Sync::new(number, what, of, flying));
}

/// All lanes are done. The lane may have given up meanwhile.
pub(crate) fn end_filling(lane: &mut Lane, number: u64, cx: &mut Cx<'_>) {
    let done = lane.sync.as_ref().is_some_and(|sync| sync.filled() == Some(number));
    let lacking = done.then(|| end_sync(lane, cx));
    cx.delta.tell(Up::Filled { number, lacking });
}

/// Ends a lane's sync. Returns how many dirty blocks the new member lacks.
fn end_sync(lane: &mut Lane, cx: &mut Cx<'_>) -> u64 {
    let Some(Sync { what, missed, .. }) = lane.sync.take() else { return 0 };
    if what == Fill::Clean {
        return 0;
    }
    if what == Fill::All {
        // Destage could read some blocks meanwhile, and the other member doesn't have them.
        for (flat, slot) in &missed {
            if lane.store.get(*flat).is_some_and(|found| !found.dirty && found.slot == *slot) {
                lane.unmap(*flat, cx);
                lane.record_dropped(*flat, cx);
            }
        }
    }
    let missed = missed.into_iter().filter(|(flat, slot)| holds_dirty(lane, *flat, *slot)).map(|(flat, _)| flat);
    let missed: BTreeSet<Flat> = missed.collect();
    lane.trouble.only_lead_has(missed.iter().copied());
    // The new member has blocks that were taken for lost after they were copied. It also has lost
    // blocks that are no longer being replaced.
    let has = |flat: &Flat| lane.store.get(*flat).is_some() && !missed.contains(flat) && !lane.is_changing(*flat);
    let found: Vec<Flat> = lane.trouble.lost().filter(has).collect();
    for flat in found {
        take_for_found(lane, flat, cx);
    }
    missed.len() as u64
}

/// Whether this slot has the newest version of a dirty block.
pub(super) fn holds_dirty(lane: &Lane, flat: Flat, slot: u32) -> bool {
    lane.store.get(flat).is_some_and(|found| found.dirty && found.slot == slot)
}
