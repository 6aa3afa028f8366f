// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes into the cache: merge what is written in part, append to the log, acknowledge.
//!
//! A block written in part is first completed from its newest copy, while the piece holds its
//! exclusive lock. A piece that finds no room in the log waits; it holds its lock, but nothing
//! that makes room (destage, reclaim) needs a lock.

use core::ops::Range;

use crate::act::commit::append_write;
use crate::act::commit::log::Bytes;
use crate::act::damage::{Damage, damaged, holder, try_other};
use crate::act::direct::clear_way;
use crate::act::reclaim::stuck::full_of_lost;
use crate::cx::{Cx, blocks_span};
use crate::fact::io::{DeviceError, DeviceId, Op, RequestError};
use crate::fact::memory::{Buf, Span};
use crate::fact::types::BLOCK_BYTES;
use crate::lane::Lane;
use crate::organ::flying::{LaneIo, Source};
use crate::organ::index::{Flat, Found};
use crate::organ::measured::Measured;
use crate::organ::piece::PieceKind;
use crate::organ::places::Places;
use crate::organ::trouble::Finding;
use crate::organ::waiter::{Wait, Waiter};

const BLOCK: u32 = BLOCK_BYTES as u32;
pub(crate) fn start_write(lane: &mut Lane, piece: usize, cx: &mut Cx<'_>) {
    merge(lane, piece, cx);
}

/// Completes the first and the last block from their old content.
pub(crate) fn merge(lane: &mut Lane, piece: usize, cx: &mut Cx<'_>) {
    let (head, tail, last) = {
        let it = &lane.pieces[piece];
        (it.head(), it.tail(), it.blocks - 1)
    };
    if head + tail > 0 {
        let first = lane.pieces[piece].first;
        let origin = cx.facts.origin_of(first);
        let in_part = [(head, first), (tail, (first + last))];
        let missed = in_part.iter().any(|(sectors, flat)| *sectors > 0 && lane.store.get(*flat).is_none());
        let merges = if missed { &mut lane.merges } else { &mut lane.cache_merges };
        if !merges.is_left(origin) {
            merges.wait(origin, piece);
            return;
        }
    }
    // One extra count, so that a merge from RAM doesn't end the phase before all are begun.
    lane.pieces[piece].hold();
    if head > 0 || (tail > 0 && last == 0) {
        merge_block(lane, piece, 0, cx);
    }
    if tail > 0 && last > 0 {
        merge_block(lane, piece, last, cx);
    }
    lane.pieces[piece].release();
    merge_step(lane, piece, cx);
}

fn merge_block(lane: &mut Lane, piece: usize, block: u32, cx: &mut Cx<'_>) {
    let flat = lane.pieces[piece].first + block;
    let found = lane.store.get(flat);
    if let Some(found) = found
        && let Bytes::Ram(from, offset) = lane.bytes_of(found.slot)
    {
        fill_around(lane, piece, block, from, offset, cx);
        return;
    }
    lane.pieces[piece].hold();
    let places = if found.is_some() { Source::Cache } else { Source::Origin };
    merges_of(lane, places).take(cx.facts.origin_of(flat));
    let buf = cx.alloc(1);
    let from = found.map(|found| (found, holder(lane, flat, cx)));
    let io = lane.ios.insert(LaneIo::Merge { piece, block, buf, from, places });
    if let Some((found, device)) = from {
        lane.log.pin(found.slot);
        let offset = lane.offset_of(found.slot, cx);
        cx.io(lane.id, io, device, Op::Read, offset, Some(blocks_span(buf, 0, 1)));
    } else {
        merge_from_origin(lane, flat, buf, io, cx);
    }
}

fn merges_of(lane: &mut Lane, places: Source) -> &mut Places<usize> {
    match places {
        Source::Origin => &mut lane.merges,
        Source::Cache => &mut lane.cache_merges,
    }
}

fn merge_from_origin(lane: &mut Lane, flat: Flat, buf: Buf, io: usize, cx: &mut Cx<'_>) {
    let (device, offset, len) = cx.origin_range(flat, 1);
    let origin = cx.facts.origin_of(flat);
    cx.delta.measure(Measured::OriginMergeBegan { origin }, cx.now);
    cx.mem.zero(blocks_span(buf, 0, 1));
    cx.io(lane.id, io, device, Op::Read, offset, Some(Span::new(buf, 0, len as u32)));
}

#[expect(clippy::too_many_arguments, reason = "it is the fields of an I/O")]
pub(crate) fn merge_done(
    lane: &mut Lane,
    piece: usize,
    block: u32,
    buf: Buf,
    from: Option<(Found, DeviceId)>,
    places: Source,
    result: Result<(), DeviceError>,
    cx: &mut Cx<'_>,
) {
    let flat = lane.pieces[piece].first + block;
    let mut failed = result.is_err();
    if from.is_none() {
        let origin = cx.facts.origin_of(flat);
        cx.delta.origins[origin].gauge.merges.ended(cx.now, 0);
    }
    if let Some((found, device)) = from {
        lane.log.unpin(found.slot);
        let sum = cx.facts.checksum(cx.mem, flat, blocks_span(buf, 0, 1));
        if failed || lane.store.kept(sum) != found.checksum {
            let finding = try_other(lane, flat, found.slot, device, result, cx);
            if finding == Finding::AskOther {
                lane.log.pin(found.slot);
                let device = holder(lane, flat, cx);
                let from = Some((found, device));
                let io = lane.ios.insert(LaneIo::Merge { piece, block, buf, from, places });
                let offset = lane.offset_of(found.slot, cx);
                cx.io(lane.id, io, device, Op::Read, offset, Some(blocks_span(buf, 0, 1)));
                return;
            }
            if damaged(lane, flat, found.slot, finding, cx) == Damage::OnOrigin {
                let io = lane.ios.insert(LaneIo::Merge { piece, block, buf, from: None, places });
                merge_from_origin(lane, flat, buf, io, cx);
                return;
            }
            failed = true;
        }
    } else if let Err(error) = result {
        cx.origin_failed(Op::Read, flat, 1, error);
    }
    if failed {
        lane.pieces[piece].fail(RequestError::Io);
    } else {
        fill_around(lane, piece, block, buf, 0, cx);
    }
    cx.free(buf, 1);
    merges_of(lane, places).give_back(cx.facts.origin_of(flat), 1);
    lane.pieces[piece].release();
    merge_step(lane, piece, cx);
    while let Some(next) = merges_of(lane, places).next() {
        merge(lane, next, cx);
    }
}

/// Copies the parts of a block that the piece does not write into the request's buffer.
fn fill_around(lane: &mut Lane, piece: usize, block: u32, from: Buf, offset: u32, cx: &mut Cx<'_>) {
    let it = &lane.pieces[piece];
    let (buf, start) = (it.buf.expect("a write has a buffer"), (it.buf_block + block) * BLOCK);
    let (head, tail, last) = (it.head(), it.tail(), it.blocks - 1);
    if block == 0 && head > 0 {
        cx.mem.copy(Span::new(from, offset, head), buf, start);
    }
    if block == last && tail > 0 {
        let kept = BLOCK - tail;
        cx.mem.copy(Span::new(from, offset + kept, tail), buf, start + kept);
    }
}

fn merge_step(lane: &mut Lane, piece: usize, cx: &mut Cx<'_>) {
    let it = &mut lane.pieces[piece];
    if it.pending > 0 {
        return;
    }
    if it.error.is_some() {
        lane.finish(piece, cx);
        return;
    }
    it.completed = true;
    match it.kind {
        PieceKind::Write => {
            if lane.awaiting_room.is_empty() {
                append_piece(lane, piece, cx);
            } else {
                lane.awaiting_room.push_back(piece);
            }
        }
        _ => clear_way(lane, piece, cx),
    }
}

/// Appends what is left of a piece; false if it has to wait for room.
fn append_piece(lane: &mut Lane, piece: usize, cx: &mut Cx<'_>) -> bool {
    if cx.cache_failed() {
        // To the origin, then; as a whole, though a part of it may be in the open commit
        // already.
        let it = &mut lane.pieces[piece];
        it.kind = PieceKind::Direct;
        let reserved = core::mem::take(&mut it.reserved);
        cx.give_back_reserved(it.first, reserved);
        clear_way(lane, piece, cx);
        return true;
    }
    while lane.pieces[piece].next < lane.pieces[piece].blocks {
        let it = &lane.pieces[piece];
        let flat = it.first + it.next;
        let span = blocks_span(it.buf.expect("a write has a buffer"), it.buf_block + it.next, 1);
        let found = lane.store.get(flat);
        if !append_write(lane, flat, found, span, cx) {
            if !lane.awaiting_room.contains(&piece) {
                lane.awaiting_room.push_back(piece);
            }
            return false;
        }
        let counters = &mut cx.delta.counters;
        *(if found.is_some() { &mut counters.write_hits } else { &mut counters.write_misses }) += 1;
        let it = &mut lane.pieces[piece];
        it.next += 1;
        if it.reserved > 0 {
            it.reserved -= 1;
            cx.give_back_reserved(flat, 1);
        }
    }
    // From here on the blocks are in the log's order: later requests need not wait for ours.
    lane.unlock(piece);
    if !lane.pieces[piece].durable || lane.await_durable(Waiter::Piece(piece), cx) == Wait::Durable {
        lane.finish(piece, cx);
    }
    true
}

/// An origin refuses what fills the log: its writes don't wait for room any more.
pub(crate) fn give_up_room(lane: &mut Lane, places: &Range<u64>, error: RequestError, cx: &mut Cx<'_>) {
    for piece in core::mem::take(&mut lane.awaiting_room) {
        if places.contains(&lane.pieces[piece].first.0) {
            lane.give_up(piece, error, cx);
        } else {
            lane.awaiting_room.push_back(piece);
        }
    }
}

/// Lets waiting pieces go on, as far as there is room.
pub(crate) fn resume_awaiting_room(lane: &mut Lane, cx: &mut Cx<'_>) {
    while let Some(&piece) = lane.awaiting_room.front() {
        let appended = append_piece(lane, piece, cx);
        if !appended && !full_of_lost(lane, cx) {
            return;
        }
        lane.awaiting_room.pop_front();
        if !appended {
            // An error is better than to wait for ever.
            lane.fail(piece, RequestError::Io, cx);
        }
    }
}
