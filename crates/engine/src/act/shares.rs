// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of the cache that volumes have for themselves (ADR 0062): smallest ones; the largest are
//! in [`max`].
//!
//! Reclaim drops no clean block of a volume that would have less than its smallest part then: the
//! block is copied forward, as in cleaning. If more than half of a victim would be copied, another
//! one is taken instead. All smallest parts together are at most half of the cache, so some segment
//! brings half of itself. If none does, since the rest is dirty, the policy decides alone: writers
//! must not wait for ever. The same if as many blocks as half of the log were copied and nobody
//! else got room.
//!
//! Blocks that were chosen to leave and are still in the index count as gone. So no two victims
//! take the same block of what a volume has above its part (torture looks: `oracle/parts` of the
//! proof).

use alloc::vec;
use alloc::vec::Vec;

use crate::cx::Cx;
use crate::lane::Lane;
use crate::organ::index::Flat;

pub(crate) mod max;

/// What may leave of each volume in a decision.
pub(crate) struct Spare(Vec<u64>);

impl Spare {
    /// What may leave as it is now.
    pub(crate) fn new(cx: &Cx<'_>) -> Self {
        let mut spare = vec![u64::MAX; cx.facts.origins.len()];
        for ((spare, is), origin) in spare.iter_mut().zip(&cx.facts.origins).zip(&cx.delta.origins) {
            if is.min_blocks > 0 {
                let staying = origin.in_cache().saturating_sub(origin.leaving.get());
                *spare = staying.saturating_sub(is.min_blocks);
            }
        }
        Self(spare)
    }

    /// Whether a block may leave.
    pub(crate) fn has(&self, origin: usize) -> bool {
        self.0[origin] > 0
    }

    /// Whether a block may leave; then there is one less that may.
    pub(crate) fn take(&mut self, origin: usize) -> bool {
        let may = self.has(origin);
        self.0[origin] = self.0[origin].saturating_sub(u64::from(may && self.0[origin] < u64::MAX));
        may
    }
}

/// Whether too much of a segment with these blocks would have to stay for it to be a victim.
pub(crate) fn has_to_stay(lane: &Lane, blocks: &[(Flat, u32)], segment: u32, cx: &Cx<'_>) -> bool {
    let mut spare = Spare::new(cx);
    let stay = blocks.iter().filter(|(flat, _)| !spare.take(cx.facts.origin_of(*flat))).count() as u32;
    let room = lane.log.has_room_to_clean(&lane.log.segment(segment));
    stay > lane.log.segment_slots() / 2 || stay > 0 && !room
}

/// Whether a volume has less than its smallest part.
pub(crate) fn is_below_min(flat: Flat, cx: &Cx<'_>) -> bool {
    let origin = cx.facts.origin_of(flat);
    cx.delta.origins[origin].in_cache() < cx.facts.origins[origin].min_blocks
}
