// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of the cache that volumes have for themselves: smallest ones (ADR 0062), and parts by
//! weight (ADR 0073). The largest are in [`max`].
//!
//! Reclaim drops no clean block of a volume that would have less than its smallest part then: the
//! block is copied forward, as in cleaning.
//!
//! Volumes with weights are due what they have together, divided by weight. A volume counts only
//! while its blocks have hits ([`crate::organ::demand`]). One that has less than its due keeps
//! blocks of the main zone in the same way as for a smallest part. If the policy would give up
//! blocks of such a volume, one that has more than its due keeps only blocks with two hits.
//!
//! If more than half of a victim would be copied, another one is taken instead. All parts together
//! are at most half of the cache, so some segment brings half of itself. If none does, since the
//! rest is dirty, the policy decides alone: writers must not wait for ever. The same if as many
//! blocks as half of the log were copied and nobody else got room.
//!
//! Blocks that were chosen to leave and are still in the index count as gone. So no two victims
//! take the same block of what a volume has above its part (torture looks: `oracle/parts` of the
//! proof).

use alloc::vec;
use alloc::vec::Vec;

use crate::cx::Cx;
use crate::fact::canary::Canary;
use crate::lane::Lane;
use crate::organ::index::Flat;
use crate::organ::origin::Origin;
use crate::policy::Zone;

pub(crate) mod max;

/// A volume has too much when it has one part in so many more than it is due.
const TOLERANCE: u64 = 16;

/// What may leave of each volume in a decision.
pub(crate) struct Spare(Vec<Above>);

/// What a volume has above its parts.
#[derive(Clone, Copy)]
struct Above {
    /// Above its smallest part.
    min: u64,
    /// Above what it is due by weight, too, as far as reclaim leaves it that.
    all: u64,
    /// The volume has more than it is due, and others want room.
    too_much: bool,
}

/// A volume's weight, as far as it counts now.
#[derive(Clone, Copy, Default)]
struct Due {
    /// Its weight, if it is used.
    weight: u64,
    /// Its blocks by weight, of all that such volumes have.
    blocks: u64,
    /// The volume has less.
    is_short: bool,
    /// The volume has less, and the policy would give up blocks of it.
    wants_room: bool,
}

impl Spare {
    /// What may leave as it is now.
    pub(crate) fn new(lane: &Lane, cx: &Cx<'_>) -> Self {
        let due = due(lane, cx);
        let weights_short: u64 = due.iter().filter(|it| it.is_short).map(|it| it.weight).sum();
        let any_wants = due.iter().any(|it| it.wants_room);
        let above = |(nth, origin): (usize, &Origin)| {
            if !origin.has_part() {
                return Above { min: u64::MAX, all: u64::MAX, too_much: false };
            }
            let (due, staying) = (due[nth], staying(nth, cx));
            let kept = if due.is_short {
                // Not more than half of the cache together.
                let kept = origin.min_blocks + cx.facts.weighed_blocks * due.weight / weights_short;
                kept.min(due.blocks).max(origin.min_blocks)
            } else {
                origin.min_blocks
            };
            let too_much = any_wants && due.weight > 0 && staying > due.blocks + due.blocks / TOLERANCE;
            Above { min: staying.saturating_sub(origin.min_blocks), all: staying.saturating_sub(kept), too_much }
        };
        Self(cx.facts.origins.iter().enumerate().map(above).collect())
    }

    /// Whether others want what the volume has above its due: its blocks count one hit less.
    pub(crate) fn has_too_much(&self, origin: usize) -> bool {
        self.0[origin].too_much
    }

    /// Whether a block of that zone may leave. What is shared by weight is for blocks that were
    /// read again, and those are in the main zone.
    pub(crate) fn has(&self, origin: usize, zone: Zone) -> bool {
        match zone {
            Zone::Writes => self.0[origin].min > 0,
            Zone::Main => self.0[origin].all > 0,
        }
    }

    /// Whether the volume has its smallest part without this block.
    pub(crate) fn is_above_min(&self, origin: usize) -> bool {
        self.0[origin].min > 0
    }

    /// A block leaves.
    pub(crate) fn take(&mut self, origin: usize) {
        let Above { min, all, .. } = &mut self.0[origin];
        (*min, *all) = (min.saturating_sub(1), all.saturating_sub(1));
    }
}

/// What volumes with weights are due. What they have together, above their smallest parts, is
/// divided by weight.
fn due(lane: &Lane, cx: &Cx<'_>) -> Vec<Due> {
    let (origins, demand, segments) = (&cx.facts.origins, lane.reclaim.demand(), lane.log.segments().len());
    let mut due = vec![Due::default(); origins.len()];
    let (mut weights, mut blocks) = (0, 0);
    if cx.facts.planted(Canary::WeightsIgnored) {
        return due;
    }
    for (nth, origin) in origins.iter().enumerate() {
        if origin.weight > 0 && demand.is_used(nth, segments) {
            due[nth].weight = origin.weight;
            weights += origin.weight;
            blocks += staying(nth, cx).saturating_sub(origin.min_blocks);
        }
    }
    for (nth, due) in due.iter_mut().enumerate().filter(|(_, due)| due.weight > 0) {
        let Origin { min_blocks, max_blocks, .. } = origins[nth];
        due.blocks = (min_blocks + blocks * due.weight / weights).min(max_blocks);
        due.is_short = staying(nth, cx) < due.blocks;
        due.wants_room = due.is_short && demand.wants_room(nth, segments);
    }
    due
}

/// Blocks of an origin that the cache has, without those that were chosen to leave.
fn staying(origin: usize, cx: &Cx<'_>) -> u64 {
    let delta = &cx.delta.origins[origin];
    delta.in_cache().saturating_sub(delta.leaving.get())
}

/// Whether too much of a segment with these blocks would have to stay for it to be a victim.
pub(crate) fn has_to_stay(lane: &Lane, blocks: &[(Flat, u32)], segment: u32, cx: &Cx<'_>) -> bool {
    let (mut spare, mut stay) = (Spare::new(lane, cx), 0);
    let it = lane.log.segment(segment);
    for (flat, _) in blocks {
        let origin = cx.facts.origin_of(*flat);
        if spare.has(origin, it.zone) {
            spare.take(origin);
        } else {
            stay += 1;
        }
    }
    stay > lane.log.segment_slots() / 2 || stay > 0 && !lane.log.has_room_to_clean(&it)
}

/// Whether a volume has its smallest part without one of its blocks.
pub(crate) fn is_above_min(origin: usize, cx: &Cx<'_>) -> bool {
    staying(origin, cx) > cx.facts.origins[origin].min_blocks
}

/// Whether a volume has less than its smallest part.
pub(crate) fn is_below_min(flat: Flat, cx: &Cx<'_>) -> bool {
    let origin = cx.facts.origin_of(flat);
    cx.delta.origins[origin].in_cache() < cx.facts.origins[origin].min_blocks
}
