// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is brought into the cache before anybody asks for it.
//!
//! Blocks that are cached are left alone: they aren't read, and have no hit of it. The others are
//! read from the origin, and put where missed blocks go. The policy isn't asked, and what finds no
//! room is forgotten. The range is locked as by a read, so what is brought is the newest (test:
//! `what_is_brought_is_the_newest`).

use crate::act::commit::append_promoted;
use crate::act::read::{read_origin, read_step};
use crate::act::shares::max::is_near_max;
use crate::cx::{Cx, blocks_span};
use crate::lane::Lane;
use crate::organ::piece::{Piece, Warm};

/// Starts a piece that brings what is missing of its range into the cache.
pub(crate) fn start_warm(lane: &mut Lane, piece: usize, cx: &mut Cx<'_>) {
    let Piece { first, blocks, .. } = lane.pieces[piece];
    let missing = |lane: &Lane, block: &u32| lane.store.get(first + *block).is_none();
    let mut block = 0;
    while let Some(from) = (block..blocks).find(|block| missing(lane, block)) {
        block = (from..blocks).find(|block| !missing(lane, block)).unwrap_or(blocks);
        lane.pieces[piece].add_missed((from, block - from));
        // A block that is asked for is no neighbour of another piece's miss.
        lane.under_way.make_void(first + from, first + block);
        read_origin(lane, piece, from, block - from, cx);
    }
    read_step(lane, piece, cx);
}

/// Puts a block into the cache that nobody has asked for yet.
pub(crate) fn bring(lane: &mut Lane, piece: usize, block: u32, warm: Warm, cx: &mut Cx<'_>) {
    let it = &lane.pieces[piece];
    let flat = it.first + block;
    let span = blocks_span(it.buf.expect("a read has a buffer"), it.buf_block + block, 1);
    if lane.store.get(flat).is_some() {
        return;
    }
    let origin = &cx.delta.origins[cx.facts.origin_of(flat)];
    let congested = cx.delta.gauge.reads_congested(&origin.gauge, cx.now).is_some();
    let unfit = lane.log.saturated() || origin.flush.is_overdue() || congested;
    // Stricter than for blocks that were missed: for what comes now nothing makes room, neither
    // reclaim nor the hand of largest parts.
    let has_room = lane.log.free_segments() > lane.reclaim.watermark(&lane.log) && !is_near_max(flat, cx);
    let fits = warm == Warm::Replacing || has_room;
    let affordable = |cx: &mut Cx<'_>| cx.delta.budget.as_mut().is_none_or(|budget| budget.allows(cx.now));
    if fits && !unfit && affordable(cx) && append_promoted(lane, flat, 0, span, cx) {
        cx.delta.counters.warmed_blocks += 1;
    } else {
        cx.delta.counters.unwarmed_blocks += 1;
    }
}
