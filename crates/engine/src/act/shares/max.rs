// SPDX-License-Identifier: MIT OR Apache-2.0
//! Largest parts of the cache, which volumes may have (ADR 0062).
//!
//! A volume that has its largest part gets no more clean blocks. For its new blocks the policy
//! decides as if the cache was full. A hand sweeps over the index (CLOCK), and drops clean blocks
//! of the volume that had no hit since the hand came by. So there is mostly a margin for new
//! blocks, and what came first doesn't stay for ever.
//!
//! Each drop is an entry in the log. A direct write of a block that is not in the index records
//! nothing, and replay would bring the old block back. Dirty blocks are bounded by the volume's
//! dirty limit, which is not above its largest part. (Torture looks: `contract/parts` of the
//! proof.)

use alloc::vec;
use alloc::vec::Vec;

use crate::cx::Cx;
use crate::lane::Lane;
use crate::organ::index::Flat;

/// Parts of the index that the hand looks at in a step.
const PARTS_MAX: usize = 512;
/// Blocks that the hand drops in a step.
const DROPPED_MAX: usize = 256;

/// Whether a volume has its largest part.
pub(crate) fn is_at_max(flat: Flat, cx: &Cx<'_>) -> bool {
    let origin = cx.facts.origin_of(flat);
    cx.delta.origins[origin].in_cache() >= cx.facts.origins[origin].max_blocks
}

/// Whether a volume has its largest part, but for the margin.
pub(crate) fn is_near_max(flat: Flat, cx: &Cx<'_>) -> bool {
    let origin = cx.facts.origin_of(flat);
    let max = cx.facts.origins[origin].max_blocks;
    max < u64::MAX && cx.delta.origins[origin].in_cache() + margin(max) > max
}

/// Wakes the lane's hand if a volume is near its largest part.
pub(crate) fn wake_hand(lane: &mut Lane, flat: Flat, cx: &Cx<'_>) {
    if is_near_max(flat, cx) {
        lane.hand.wake();
    }
}

/// Blocks below its largest part that the hand keeps free of a volume, for what comes next.
fn margin(max_blocks: u64) -> u64 {
    (max_blocks / 32).max(64).min(max_blocks / 2)
}

/// Drops clean blocks of volumes that have nearly their largest part.
///
/// The hand begins when half of a margin is left, so that one flush of the cache device is for many
/// blocks.
pub(crate) fn shrink_step(lane: &mut Lane, cx: &mut Cx<'_>) {
    let number = cx.facts.parts_number;
    if lane.hand.is_idle(number, clean(lane)) {
        return;
    }
    let moves = lane.hand.moves();
    let above = |origin: &usize| {
        let (max, cached) = (cx.facts.origins[*origin].max_blocks, cx.delta.origins[*origin].in_cache());
        let kept_free = if moves { margin(max) } else { margin(max) / 2 };
        cached > max - kept_free
    };
    let moves = cx.facts.with_max.iter().any(above);
    lane.hand.set_moves(moves, number);
    if moves {
        sweep(lane, cx);
    }
}

/// Clean blocks of a lane.
fn clean(lane: &Lane) -> u64 {
    lane.store.index().len() - lane.store.dirty()
}

/// Moves the hand on.
fn sweep(lane: &mut Lane, cx: &mut Cx<'_>) {
    let mut over = vec![0; cx.facts.origins.len()];
    for origin in &cx.facts.with_max {
        let max = cx.facts.origins[*origin].max_blocks;
        let over_all = cx.delta.origins[*origin].in_cache().saturating_sub(max - margin(max));
        // Each lane gives its part, or the first one would give all.
        over[*origin] = over_all.div_ceil(u64::from(cx.facts.superblock.lanes));
    }
    let mut left: u64 = over.iter().sum();
    let (mut dropped, parts) = (Vec::new(), lane.store.index().parts());
    for _ in 0..PARTS_MAX.min(parts) {
        if dropped.len() >= DROPPED_MAX || left == 0 {
            break;
        }
        let part = lane.hand.next(parts);
        let mut cooled = Vec::new();
        let changing = |flat| lane.is_changing(flat);
        lane.store.index().scan(part, |flat, found| {
            let over = &mut over[cx.facts.origin_of(flat)];
            if *over == 0 || found.dirty || changing(flat) {
                return;
            }
            if found.hits > 0 {
                cooled.push(flat);
            } else {
                (*over, left) = (*over - 1, left - 1);
                dropped.push(flat);
            }
        });
        cooled.into_iter().for_each(|flat| lane.store.cool(flat));
    }
    lane.hand.stepped(!dropped.is_empty(), parts, clean(lane));
    for flat in dropped {
        lane.unmap(flat, cx);
        lane.record_dropped(flat, cx);
        cx.count_evicted(flat);
        cx.of_origin(flat).at_max.add(1);
    }
}
