// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads: from RAM, from the cache device, or from the origin. Then missed blocks are offered to
//! the policy.
//!
//! A hit is read straight into the request's buffer and verified there before the reply (invariant
//! 5: `corruption_never_leaves`). A corrupt clean block is dropped and read from the origin. A
//! corrupt dirty block is an error for that block, and is listed as lost.

use smallvec::smallvec;

use crate::act::commit::append_promoted;
use crate::act::commit::log::Bytes;
use crate::act::damage::{Damage, damaged, found_again, holder, try_other};
use crate::act::detour::{detour, read_detour};
use crate::act::expect::{expect_copies, expect_missed};
use crate::act::neighbours::{has_room_for_missed, read_missed};
use crate::act::shares::is_below_min;
use crate::act::shares::max::is_near_max;
use crate::act::under_way::{go_on, share};
use crate::act::warm::{bring, start_warm};
use crate::cx::{Cx, blocks_span};
use crate::fact::canary::Canary;
use crate::fact::io::{DeviceError, Op, RequestError};
use crate::fact::memory::Span;
use crate::fact::types::{BLOCK_BYTES, Mode};
use crate::lane::Lane;
use crate::organ::flying::{LaneIo, SlotsRead};
use crate::organ::index::{Flat, Found};
use crate::organ::measured::Measured;
use crate::organ::trouble::Finding;
use crate::organ::under_way::Reading;

/// The copy of a block in the window, and whether the block came as a neighbour and is asked for
/// for the first time.
fn waiting(lane: &mut Lane, flat: Flat, past: bool) -> Option<(Span, bool)> {
    if past { None } else { lane.window.read(flat, &mut *lane.policy) }
}

/// Starts a read piece that has its lock: each block from RAM, the cache device or the origin.
pub(crate) fn start_read(lane: &mut Lane, piece: usize, cx: &mut Cx<'_>) {
    if lane.pieces[piece].warm.is_some() {
        return start_warm(lane, piece, cx);
    }
    let (first, blocks, buf_block) =
        (lane.pieces[piece].first, lane.pieces[piece].blocks, lane.pieces[piece].buf_block);
    let buf = lane.pieces[piece].buf.expect("a read has a buffer");
    let past = cx.facts.origins[cx.facts.origin_of(first)].mode == Mode::Passthrough;
    // In passthrough mode a clean block is not read from the cache.
    let readable = |found: Found| found.dirty || !past;
    let (mut block, mut ahead) = (0, None);
    while block < blocks {
        let flat = first + block;
        let Some(found) = lane.store.hit(flat, readable) else {
            if let Some((copy, first)) = waiting(lane, flat, past) {
                cx.delta.counters.read_hits += 1;
                cx.delta.counters.ram_hits += 1;
                cx.mem.copy(copy, buf, (buf_block + block) * BLOCK_BYTES as u32);
                // A volume below its smallest part leaves nothing in the window.
                let asks = first || cx.facts.any_min && is_below_min(flat, cx);
                if asks && !lane.pieces[piece].bypass {
                    ask_about_neighbour(lane, flat, copy, cx);
                }
                block += 1;
                continue;
            }
            let from = block;
            block += 1;
            while block < blocks {
                let next = first + block;
                if lane.store.get(next).is_some_and(readable) || lane.window.holds(next) {
                    break;
                }
                block += 1;
            }
            lane.pieces[piece].add_missed((from, block - from));
            if !lane.pieces[piece].bypass {
                expect_missed(lane, first.0 + u64::from(from)..first.0 + u64::from(block), cx.mem);
            }
            read_missed(lane, piece, from, block - from, cx);
            continue;
        };
        if let Some(instead_of_ns) = detour(lane, found, flat, cx) {
            block += read_detour(lane, piece, block, found, blocks - block, instead_of_ns, cx);
            continue;
        }
        cx.delta.counters.read_hits += 1;
        if let Bytes::Ram(buffer, offset) = lane.bytes_of(found.slot) {
            cx.delta.counters.ram_hits += 1;
            if block + 1 < blocks && !lane.ram_front.is_none() {
                let after = (block + 2 < blocks).then_some(Flat(flat.0 + 2));
                expect_copies(lane, &mut ahead, Some(flat.next()), after, cx.mem);
            }
            let from = Span::new(buffer, offset, BLOCK_BYTES as u32);
            cx.mem.copy(from, buf, (buf_block + block) * BLOCK_BYTES as u32);
            block += 1;
            continue;
        }
        let (mut checksums, device) = (smallvec![found.checksum], holder(lane, flat, cx));
        let from = block;
        block += 1;
        while block < blocks {
            let flat = first + block;
            let next = lane.store.get(flat).filter(|next| readable(*next) && next.slot == found.slot + (block - from));
            let Some(next) = next.filter(|next| lane.on_device(next.slot)) else { break };
            if holder(lane, flat, cx) != device {
                break;
            }
            lane.store.touch(flat);
            cx.delta.counters.read_hits += 1;
            checksums.push(next.checksum);
            block += 1;
        }
        read_slots(lane, SlotsRead { piece, block: from, slot: found.slot, checksums, device }, cx);
    }
    read_step(lane, piece, cx);
}

/// Reads blocks of a piece from consecutive slots of the cache device.
pub(crate) fn read_slots(lane: &mut Lane, read: SlotsRead, cx: &mut Cx<'_>) {
    lane.log.pin(read.slot);
    let it = &mut lane.pieces[read.piece];
    it.hold();
    let buf = it.buf.expect("a read has a buffer");
    let read_blocks = read.checksums.len() as u64;
    let span = blocks_span(buf, it.buf_block + read.block, read_blocks as u32);
    let offset = lane.offset_of(read.slot, cx);
    let device = read.device;
    let io = lane.ios.insert(LaneIo::ReadCache(read));
    cx.delta.measure(Measured::CacheReadBegan { blocks: read_blocks }, cx.now);
    cx.io(lane.id, io, device, Op::Read, offset, Some(span));
}

/// Reads blocks of a piece from its origin, where other pieces may join the read.
pub(crate) fn read_origin(lane: &mut Lane, piece: usize, block: u32, blocks: u32, cx: &mut Cx<'_>) {
    let first = lane.pieces[piece].first + block;
    let read = lane.under_way.begin(Reading::new(piece, first, blocks));
    ask_origin(lane, piece, block, blocks, LaneIo::ReadOrigin { read }, cx);
}

/// Reads blocks of a piece from the origin. `what` tells what the I/O is for.
pub(crate) fn ask_origin(lane: &mut Lane, piece: usize, block: u32, blocks: u32, what: LaneIo, cx: &mut Cx<'_>) {
    let it = &mut lane.pieces[piece];
    it.hold();
    it.needs_origin();
    let first = it.first + block;
    let (device, offset, len) = cx.origin_range(first, u64::from(blocks));
    let buf = it.buf.expect("a read has a buffer");
    let whole = blocks_span(buf, it.buf_block + block, blocks);
    if len < u64::from(whole.len) {
        // The origin ends inside this block: the part behind its end reads as zeroes.
        cx.mem.zero(Span::new(buf, whole.offset() + len as u32, whole.len - len as u32));
    }
    let io = lane.ios.insert(what);
    let origin = cx.facts.origin_of(first);
    let end = first.0 + u64::from(blocks);
    cx.delta.measure(Measured::OriginReadBegan { origin, first: first.0, end }, cx.now);
    cx.io(lane.id, io, device, Op::Read, offset, Some(Span::new(buf, whole.offset(), len as u32)));
}

/// A read of the origin is over, for its piece and for those that joined it.
pub(crate) fn read_origin_done(lane: &mut Lane, read: usize, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
    let (read, waiting) = lane.under_way.end(read);
    let piece = read.piece();
    let it = &mut lane.pieces[piece];
    let origin = cx.facts.origin_of(it.first);
    let blocks = result.is_ok().then_some(read.blocks());
    cx.delta.measure(Measured::OriginReadEnded { origin, blocks }, cx.now);
    it.release();
    if let Err(error) = result {
        it.fail(RequestError::Io);
        cx.origin_failed(Op::Read, read.first(), u64::from(read.blocks()), error);
    } else if !waiting.is_empty() {
        // The blocks are shared before the piece ends, because its buffer goes with it.
        let ahead = (read.first().0 - it.first.0) as u32;
        let (buf, buf_block) = (it.buf.expect("a read has a buffer"), it.buf_block + ahead);
        share(lane, &read, &waiting, buf, buf_block, cx);
    }
    read_step(lane, piece, cx);
    go_on(lane, &read, waiting, result.is_ok(), cx);
}

/// A read of the cache device is over: each block is verified before it leaves.
pub(crate) fn read_cache_done(lane: &mut Lane, read: &SlotsRead, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
    let &SlotsRead { piece, block, slot, ref checksums, device } = read;
    lane.log.unpin(slot);
    cx.delta.measure(Measured::CacheReadEnded { sound: result.is_ok() }, cx.now);
    let it = &mut lane.pieces[piece];
    it.release();
    let (first, buf_block) = (it.first, it.buf_block);
    let buf = it.buf.expect("a read has a buffer");
    for (nth, &expected) in checksums.iter().enumerate() {
        let block = block + nth as u32;
        let flat = first + block;
        let span = blocks_span(buf, buf_block + block, 1);
        let same = lane.store.kept(cx.facts.checksum(cx.mem, flat, span)) == expected;
        if result.is_ok() && (same || cx.facts.planted(Canary::ChecksumIgnored)) {
            if lane.trouble.has_lost() {
                found_again(lane, flat, slot + nth as u32, cx);
            }
            if let Some((front, offset)) = lane.ram_front.take(slot + nth as u32, cx) {
                cx.mem.copy(span, front, offset);
            }
            continue;
        }
        let slot = slot + nth as u32;
        match try_other(lane, flat, slot, device, result, cx) {
            Finding::AskOther => {
                let (device, checksums) = (holder(lane, flat, cx), smallvec![expected]);
                read_slots(lane, SlotsRead { piece, block, slot, checksums, device }, cx);
            }
            finding => match damaged(lane, flat, slot, finding, cx) {
                Damage::Lost => lane.pieces[piece].fail(RequestError::Io),
                Damage::OnOrigin => read_origin(lane, piece, block, 1, cx),
            },
        }
    }
    read_step(lane, piece, cx);
}

/// Ends a read piece when none of its I/O is in flight; missed blocks are offered to the policy.
pub(crate) fn read_step(lane: &mut Lane, piece: usize, cx: &mut Cx<'_>) {
    if lane.pieces[piece].pending > 0 {
        return;
    }
    if lane.pieces[piece].error.is_none() && !lane.pieces[piece].bypass {
        for (block, blocks) in lane.pieces[piece].take_missed() {
            (block..block + blocks).for_each(|block| match lane.pieces[piece].warm {
                None => promote(lane, piece, block, cx),
                Some(warm) => bring(lane, piece, block, warm, cx),
            });
        }
    }
    lane.finish(piece, cx);
}

/// Puts a block that was read from the origin into the cache, if the policy wants it and it
/// doesn't have to wait.
fn promote(lane: &mut Lane, piece: usize, block: u32, cx: &mut Cx<'_>) {
    let it = &lane.pieces[piece];
    let flat = it.first + block;
    let span = blocks_span(it.buf.expect("a read has a buffer"), it.buf_block + block, 1);
    // Another piece may have missed the block, too, and been first.
    if lane.store.get(flat).is_some() && !cx.facts.planted(Canary::FillOverNewer) {
        lane.store.touch(flat);
        return;
    }
    match lane.window.read(flat, &mut *lane.policy) {
        None => offer(lane, flat, span, cx),
        Some((_, true)) => ask_about_neighbour(lane, flat, span, cx),
        Some((_, false)) => {}
    }
}

/// Asks the policy about a neighbour in the window, whose first reader has come.
fn ask_about_neighbour(lane: &mut Lane, flat: Flat, span: Span, cx: &mut Cx<'_>) {
    if let Err(seen) = admit(lane, flat, span, cx) {
        lane.window.stays(flat, seen);
    }
}

/// Offers the policy a clean block that is not in the cache; it doesn't wait for room.
pub(crate) fn offer(lane: &mut Lane, flat: Flat, span: Span, cx: &mut Cx<'_>) {
    if let Err(seen) = admit(lane, flat, span, cx) {
        lane.window.put(flat, seen, span, &mut *lane.policy, cx);
    }
}

/// Puts a block into the cache, if it is admitted. Else `Err` says how often the block was seen.
fn admit(lane: &mut Lane, flat: Flat, span: Span, cx: &mut Cx<'_>) -> Result<(), u8> {
    // A volume below its smallest part has room, and one that has its largest part has none.
    let may = !cx.facts.any_max || !is_near_max(flat, cx);
    let has_room = may && (has_room_for_missed(lane) || cx.facts.any_min && is_below_min(flat, cx));
    let verdict = lane.policy.missed(flat.0, has_room);
    let affordable = !verdict.admit || cx.delta.budget.as_mut().is_none_or(|budget| budget.allows(cx.now));
    cx.delta.counters.over_budget_blocks += u64::from(!affordable);
    let origin = &cx.delta.origins[cx.facts.origin_of(flat)];
    let unfit = origin.flush.is_overdue() || cx.delta.gauge.reads_congested(&origin.gauge, cx.now).is_some();
    if verdict.admit && affordable && !unfit && append_promoted(lane, flat, 0, span, cx) {
        cx.delta.counters.promoted_blocks += 1;
        return Ok(());
    }
    Err(if verdict.admit { lane.policy.refused(verdict.seen) } else { verdict.seen })
}
