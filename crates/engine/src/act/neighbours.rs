// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading around a miss: its neighbours come along, if that costs the origin little and the cache
//! has room.
//!
//! A disk takes 8 ms to get to a block, and half a millisecond for the 64 KiB around it. If each
//! block is read alone, a new cache is warm sixteen times later. dm-cache's blocks are 64 KiB. That
//! is better when all data fits, and worse when it doesn't: then most of each block is data that
//! nobody asks for. So here neighbours come into the cache only while there is room for them, or
//! while the blocks that they push out aren't missed. The policy decides that. They come only from
//! an origin that does few reads a second. Each neighbour is a block of its own from then on.
//! Otherwise neighbours come into the window, in RAM, as long as one in eight is asked for there
//! ([`crate::policy::Window`]).
//!
//! Whether neighbours in the cache pay is learnt. They don't pay if fewer than half of them had
//! been read when their segment was reclaimed. Then single blocks are read, until misses show that
//! neighbours would pay ([`crate::organ::locality`]). With data of 4 to 12 times the cache,
//! neighbours would otherwise halve the speed. They go round in the cache so fast that nothing
//! stays long enough to be read again. A cache that is full of neighbours has room: they leave with
//! the oldest segments, nearly all of them.
//!
//! Neighbours that came before a long pause say nothing of present requests, as other blocks are
//! asked for now. (Measured with the suite `lvmcache-2017` and a cache full of junk: 86,808
//! requests a second in the first half hour. Without this rule the figure was 73,917.)
//!
//! Neighbours aren't locked: a write of a neighbour must not wait for a disk. If a block is in the
//! index when the read begins, it isn't taken from the read, even if it was destaged and dropped
//! meanwhile. A block that a client has asked to change since isn't taken either (canary
//! `stale-neighbour`).

use crate::act::commit::append_promoted;
use crate::act::read::{read_origin, read_step};
use crate::act::under_way::{go_on, join, no_neighbours_of_its_own, share};
use crate::cx::{Cx, blocks_span};
use crate::fact::canary::Canary;
use crate::fact::io::{DeviceError, Op};
use crate::fact::memory::Buf;
use crate::fact::types::{BLOCK_BYTES, Mode};
use crate::lane::Lane;
use crate::organ::flying::{Into, LaneIo, WideRead};
use crate::organ::index::Flat;
use crate::organ::locality::begin_of_unit;
use crate::organ::measured::Measured;
use crate::organ::under_way::Reading;

/// Blocks of wide reads in flight in a lane: 16 of 64 KiB, enough for a disk's queue. More misses
/// than that go alone.
pub(crate) const IN_FLIGHT_BLOCKS_MAX: u64 = 256;
/// Reads blocks of a piece that missed from the origin, except blocks that another piece reads.
/// Their neighbours come along if that is likely to pay.
pub(crate) fn read_missed(lane: &mut Lane, piece: usize, block: u32, blocks: u32, cx: &mut Cx<'_>) {
    let (from, to) = join(lane, piece, block, blocks, cx);
    if from == to {
        return;
    }
    let (block, blocks) = (from, to - from);
    cx.delta.counters.read_misses += u64::from(blocks);
    let first = lane.pieces[piece].first + block;
    // A block that is asked for is no neighbour of another piece's miss.
    lane.under_way.make_void(first, first + blocks);
    match widened(lane, piece, block, blocks, cx) {
        Some((wide, into)) => read_wide(lane, piece, block, blocks, wide, into, cx),
        None => read_origin(lane, piece, block, blocks, cx),
    }
}

fn widened(lane: &mut Lane, piece: usize, block: u32, blocks: u32, cx: &Cx<'_>) -> Option<(Reading, Into)> {
    let it = &lane.pieces[piece];
    let from = it.first + block;
    let origin = cx.facts.origin_of(from);
    let unit = cx.facts.origins[origin].read_around_blocks;
    let to = from + blocks;
    // Memory comes in powers of two.
    let in_flight = (lane.under_way.wide() + 1) * cx.facts.widest_unit.next_power_of_two();
    if u64::from(blocks) >= unit || it.bypass || in_flight > IN_FLIGHT_BLOCKS_MAX {
        return None;
    }
    if !cx.delta.origins[origin].gauge.reads_are_dear(cx.now) {
        return None;
    }
    let into = goal_of_neighbours(lane, from, unit, cx)?;
    // A wide read stays in the lane's stripe, and takes no block that the origin's end cuts.
    let stripe = u64::from(cx.facts.superblock.stripe_blocks);
    let origin = &cx.facts.origins[origin];
    let whole = origin.base.0 + origin.size_bytes / BLOCK_BYTES;
    let begin = begin_of_unit(from.0, to.0, unit);
    let first = begin.max(from.0 / stripe * stripe);
    let end = (begin + unit).min((from.0 / stripe + 1) * stripe).min(whole);
    if to.0 > end {
        return None;
    }
    let wanted = |flat: &u64| {
        let flat = Flat(*flat);
        lane.store.get(flat).is_none() && !lane.window.holds(flat) && !lane.under_way.brings(flat)
    };
    let first = (first..from.0).find(wanted).unwrap_or(from.0);
    let end = (to.0..end).rev().find(wanted).map_or(to.0, |last| last + 1);
    let alone = end - first == u64::from(blocks);
    let (first, end) = (Flat(first), Flat(end));
    if alone || lane.under_way.any_wide(first, end) || lane.locks.any_exclusive(first, end) {
        return None;
    }
    let mut wide = Reading::wide(piece, first, end);
    (first.0..end.0).filter(|flat| !wanted(flat)).for_each(|flat| wide.make_void(Flat(flat)));
    Some((wide, into))
}

/// Where neighbours of that block would go, if anywhere.
fn goal_of_neighbours(lane: &mut Lane, flat: Flat, unit: u64, cx: &Cx<'_>) -> Option<Into> {
    let origin = &cx.facts.origins[cx.facts.origin_of(flat)];
    let next_seq = lane.log.next_seq;
    let pays = lane.neighbours.pays(flat.0 / unit, unit, next_seq);
    let come = pays && takes_neighbours(lane, flat, cx);
    lane.neighbours.note(come, lane.log.slots() / unit, next_seq);
    if come {
        return Some(Into::Log);
    }
    let wanted = origin.mode != Mode::Passthrough && lane.window.wants_neighbours(flat.0 / unit);
    wanted.then_some(Into::Window)
}

/// Whether the cache takes neighbours of that block now. A budget is for blocks that were asked
/// for.
fn takes_neighbours(lane: &Lane, flat: Flat, cx: &Cx<'_>) -> bool {
    let origin = cx.facts.origin_of(flat);
    let it = &cx.delta.origins[origin];
    let unfit = cx.cache_failed() || lane.log.saturated() || cx.delta.budget.is_some();
    let congested = cx.delta.gauge.reads_congested(&it.gauge, cx.now).is_some();
    let past = cx.facts.origins[origin].mode == Mode::Passthrough || it.flush.is_overdue() || congested;
    !unfit && !past && lane.policy.takes_neighbours(has_room(lane))
}

fn has_room(lane: &Lane) -> bool {
    // As long as no block had to be dropped, cleaning makes the room that is needed.
    !lane.reclaim.dropped || lane.log.free_segments() > lane.reclaim.watermark(&lane.log)
}

/// Whether missed blocks have room, also where neighbours were brought in vain.
pub(crate) fn has_room_for_missed(lane: &Lane) -> bool {
    has_room(lane) || lane.neighbours.in_vain(lane.log.slots())
}

fn read_wide(lane: &mut Lane, piece: usize, block: u32, blocks: u32, wide: Reading, into: Into, cx: &mut Cx<'_>) {
    let (device, offset, len) = cx.origin_range(wide.first(), u64::from(wide.blocks()));
    // All buffers have one size, whatever is read: the arena has chunks for each size.
    let unit = cx.facts.widest_unit as u32;
    let buf = cx.alloc(unit);
    let span = blocks_span(buf, 0, wide.blocks());
    debug_assert_eq!(len, u64::from(span.len), "neighbours are whole blocks of the origin");
    let origin = cx.facts.origin_of(wide.first());
    let (from, to) = (wide.first().0, wide.first().0 + u64::from(wide.blocks()));
    let read = lane.under_way.begin(wide);
    let io = lane.ios.insert(LaneIo::ReadWide(WideRead { block, blocks, read, buf, unit, into }));
    lane.pieces[piece].hold();
    cx.delta.measure(Measured::OriginReadBegan { origin, first: from, end: to }, cx.now);
    cx.io(lane.id, io, device, Op::Read, offset, Some(span));
}

/// A read with neighbours is over: its readers get their blocks, and the neighbours a place.
pub(crate) fn wide_done(lane: &mut Lane, read: &WideRead, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
    let &WideRead { block, blocks, read, buf, unit, into } = read;
    let (mut wide, waiting) = lane.under_way.end(read);
    let piece = wide.piece();
    let origin = cx.facts.origin_of(wide.first());
    cx.delta.origins[origin].client_read_ended(result.is_ok().then_some(wide.blocks()), cx.now);
    let it = &mut lane.pieces[piece];
    it.release();
    if let Err(error) = result {
        cx.origin_failed(Op::Read, wide.first(), u64::from(wide.blocks()), error);
        // Perhaps only a neighbour can't be read, and a disk may try for long.
        cx.delta.origins[origin].gauge.wide_read_failed(cx.now);
        cx.free(buf, unit);
        read_origin(lane, piece, block, blocks, cx);
        go_on(lane, &wide, waiting, false, cx);
        return;
    }
    let from = it.first + block;
    let to = from + blocks;
    let asked_for = blocks_span(buf, (from.0 - wide.first().0) as u32, blocks);
    let target = it.buf.expect("a read has a buffer");
    cx.mem.copy(asked_for, target, (it.buf_block + block) * BLOCK_BYTES as u32);
    share(lane, &wide, &waiting, buf, 0, cx);
    no_neighbours_of_its_own(lane, &mut wide, &waiting);
    // In order, so that they can be read by one I/O later.
    take_neighbours(lane, &wide, wide.first(), from, buf, into, cx);
    read_step(lane, piece, cx);
    take_neighbours(lane, &wide, to, wide.end(), buf, into, cx);
    cx.free(buf, unit);
    go_on(lane, &wide, waiting, true, cx);
}

fn take_neighbours(lane: &mut Lane, wide: &Reading, from: Flat, to: Flat, buf: Buf, into: Into, cx: &mut Cx<'_>) {
    for flat in from.to(to) {
        let void = wide.is_void(flat) && !cx.facts.planted(Canary::StaleNeighbour);
        if void || lane.store.get(flat).is_some() || lane.window.holds(flat) {
            continue;
        }
        let span = blocks_span(buf, (flat.0 - wide.first().0) as u32, 1);
        if into == Into::Window {
            cx.delta.counters.waiting_neighbour_blocks += 1;
            lane.window.put_neighbour(flat, span, &mut *lane.policy, cx);
            continue;
        }
        if !takes_neighbours(lane, flat, cx) || !append_promoted(lane, flat, 0, span, cx) {
            return;
        }
        cx.delta.counters.neighbour_blocks += 1;
        if let Some(found) = lane.store.get(flat) {
            lane.log.neighbour_came(found.slot);
            lane.neighbours.came();
        }
    }
}
