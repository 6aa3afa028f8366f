// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promoted blocks whose origin has not flushed yet what they hold: when they are proven, and what
//! happens if they never are.
//!
//! A block that was written through, or read from an origin that was written to, may be in the
//! origin's volatile cache only. After a power cut the origin may have an older version. If the
//! cache had the newer version clean, clients would read it until it is evicted, and then the older
//! one (ADR 0003).
//!
//! To wait for a flush before each commit of 1 MiB made bursts of writes slower than the disk
//! alone. So such blocks are committed at once. Every header says how many of the latest commits of
//! promoted blocks are not proven yet, and replay drops the blocks of those (ADR 0024). Commits are
//! proven by the next flush that somebody wants, in the order of their numbers.

use alloc::vec::Vec;

use super::proofs::Unproven;
use crate::act::commit::seal::seal_full;
use crate::cx::Cx;
use crate::fact::canary::Canary;
use crate::fact::io::DeviceError;
use crate::format::Stream;
use crate::lane::Lane;
use crate::organ::flush::FlushWaiter;
use crate::organ::index::Flat;
use crate::organ::piece::PieceKind;
use crate::organ::segment::SegmentState;

/// A commit of promoted blocks is sealed: is all that it holds durable on the origins?
pub(crate) fn await_proof(lane: &mut Lane, seq: u64, first: u32, blocks: Vec<Flat>, cx: &mut Cx<'_>) {
    if cx.facts.planted(Canary::FillNotFlushed) {
        return;
    }
    let waiter = FlushWaiter::Promoted(lane.id, seq);
    let mut of: Vec<usize> = blocks.iter().map(|flat| cx.facts.origin_of(*flat)).collect();
    of.sort_unstable();
    of.dedup();
    // What the commit held of one whose flush is overdue was dropped, and is dead in it.
    let waits = |origin: usize| {
        let flush = &mut cx.delta.origins[origin].flush;
        u32::from(!flush.is_overdue() && flush.await_durable(waiter))
    };
    let awaits = of.into_iter().map(waits).sum();
    if awaits > 0 || !lane.log.unproven.is_empty() {
        lane.log.unproven.push_back(Unproven { seq, first, blocks, awaits, failed: false });
    }
    if lane.log.unproven.len() > lane.log.unproven_most() / 2 {
        hurry_proof(lane, cx);
    }
}

/// Asks for what the first of them waits for: a flush, or if that failed a checkpoint.
pub(crate) fn hurry_proof(lane: &mut Lane, cx: &mut Cx<'_>) {
    cx.delta.want_proof();
    let failed = lane.log.unproven.front().is_some_and(|it| it.failed && it.awaits == 0);
    if failed && lane.checkpoint.resting() {
        lane.checkpoint.want();
    }
}

/// A flush of an origin that one waited for is over.
pub(crate) fn promoted_flushed(lane: &mut Lane, seq: u64, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
    if let Some(it) = lane.log.unproven.iter_mut().find(|it| it.seq == seq) {
        it.awaits -= 1;
        it.failed |= result.is_err();
    }
    take_proof(lane, cx);
}

/// Takes out commits that are proven, or of which replay won't hear any more.
pub(crate) fn take_proof(lane: &mut Lane, cx: &mut Cx<'_>) {
    let covers = lane.checkpoint.covers();
    while let Some(it) = lane.log.unproven.pop_front_if(|it| it.awaits == 0 && (!it.failed || it.seq < covers)) {
        let id = it.first / lane.log.segment_slots;
        let proven = !lane.log.is_unproven(id);
        let segment = lane.log.segment(id);
        if proven && segment.state == SegmentState::Unproven {
            lane.log.set_state(id, SegmentState::Closed);
            lane.reclaim.sparse.filled(id, segment.live, lane.log.segment_slots());
        }
    }
    seal_full(lane, Stream::Promoted, cx);
}

/// A flush of an origin failed that covered direct writes: it may have dropped them, and the
/// next flush says nothing of that. Or nothing waits for it any more. What was written through
/// and is not proven must not become clean in the log.
pub(crate) fn drop_doubtful(lane: &mut Lane, origin: usize, cx: &mut Cx<'_>) {
    let places = cx.facts.origins[origin].places();
    let log = &lane.log;
    let open = log.tails[Stream::Promoted as usize].open.iter();
    let open = open.flat_map(|open| (open.header_slot + 1..).zip(open.blocks.iter().map(|block| block.flat)));
    let sealed = log.unproven.iter().filter(|it| it.awaits > 0).flat_map(Unproven::blocks);
    let doubtful: Vec<(u32, Flat)> = open.chain(sealed).filter(|(_, flat)| places.contains(&flat.0)).collect();
    lane.window.forget(Flat(places.start), Flat(places.end));
    // What is being read may have been read before that.
    lane.under_way.make_all_void(Flat(places.start), Flat(places.end));
    for (_, piece) in lane.pieces.iter_mut().filter(|(_, piece)| places.contains(&piece.first.0)) {
        piece.bypass |= piece.kind == PieceKind::Read;
    }
    for (slot, flat) in doubtful {
        if lane.store.get(flat).is_some_and(|found| found.slot == slot) {
            lane.unmap(flat, cx);
            // An older copy may be in the log, of which a note that it was dropped was left out
            // since the block had come back.
            lane.record_dropped(flat, cx);
        }
    }
}
