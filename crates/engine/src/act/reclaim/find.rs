// SPDX-License-Identifier: MIT OR Apache-2.0
//! The blocks of a segment whose headers don't tell them.

use alloc::vec::Vec;

use crate::act::destage::versions::is_held;
use crate::lane::Lane;

/// All blocks of a segment, by a walk over the whole index.
pub(super) fn find_blocks(lane: &mut Lane, segment: u32) {
    let slots = lane.log.segment_slots();
    let mut blocks = Vec::new();
    lane.store.index().for_each(|flat, found| {
        if found.slot / slots == segment {
            blocks.push((flat, found.slot));
        }
    });
    let older = lane.eras.iter().flat_map(|eras| eras.all()).map(|(flat, _, version)| (flat, version.slot));
    blocks.extend(older.filter(|(flat, slot)| slot / slots == segment && is_held(lane, *flat, *slot)));
    if let Some(victim) = lane.reclaim.victims.get_mut(&segment) {
        (victim.blocks, victim.known) = (blocks, true);
    }
}
