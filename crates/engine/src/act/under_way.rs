// SPDX-License-Identifier: MIT OR Apache-2.0
//! Joins reads of an origin under way: a piece waits for a block that is being read for another
//! piece. It doesn't read the block once more.
//!
//! Requests that aren't aligned share a block with the next request, and programs ask twice for
//! blocks that they miss. With 16 requests in flight a trace of an unaligned guest had 19.5 % hits
//! when each read went to the disk by itself. It has 25.3 % with joined reads (`cp_vscsi`,
//! docs/laboratory/policy.md).
//!
//! - Only the ends of a missed range wait. The blocks between them are read by one I/O. That costs
//!   a disk less than two reads around blocks that another read brings.
//! - Both pieces have locked the block, so nobody changes it meanwhile. Neighbours of a miss aren't
//!   locked. If a client has asked to change a neighbour since the read began, that neighbour is
//!   void. A later piece reads it by itself (canaries `stale-neighbour`, `joined-void`).
//! - All blocks that were being read while a flush of the origin failed are void, too (test:
//!   `who_asks_after_a_failed_flush_shares_no_read_of_before`).
//! - If a read fails, its own piece has the error. Pieces that waited read by themselves (test:
//!   `who_waits_for_a_read_that_fails_reads_by_himself`).
//! - A piece may wait for its own wide read, if there is a hole in the range that it misses. Such a
//!   block is a miss like any other, and no neighbour.

use alloc::vec::Vec;

use crate::act::read::{read_origin, read_step};
use crate::cx::{Cx, blocks_span};
use crate::fact::canary::Canary;
use crate::fact::memory::Buf;
use crate::fact::types::{BLOCK_BYTES, Mode};
use crate::lane::Lane;
use crate::organ::index::Flat;
use crate::organ::under_way::{Reading, Waiting};

/// Lets a piece wait for blocks at both ends of its missed range that reads under way bring.
/// Returns what is left between them: its first block, and the block behind its end. In passthrough
/// mode no read is joined. A user who looks for a fault there wants each request to go to the
/// origin.
pub(crate) fn join(lane: &mut Lane, piece: usize, block: u32, blocks: u32, cx: &mut Cx<'_>) -> (u32, u32) {
    let (begin, end) = (lane.pieces[piece].first, block + blocks);
    if cx.facts.origins[cx.facts.origin_of(begin)].mode == Mode::Passthrough {
        return (block, end);
    }
    let planted = cx.facts.planted(Canary::JoinedVoid);
    let read_of = |lane: &Lane, block: u32| lane.under_way.of(begin + block, planted);
    let to = (block..end).rev().find(|block| read_of(lane, *block).is_none()).map_or(block, |last| last + 1);
    // The last block that is left is not being read, so it isn't searched.
    let last = to.saturating_sub(1).max(block);
    let from = (block..last).find(|block| read_of(lane, *block).is_none()).unwrap_or(last.min(to));
    for block in (block..from).chain(to..end) {
        let id = read_of(lane, block).expect("somebody reads what lies around the rest");
        if lane.under_way.wait(id, piece, block) {
            lane.pieces[piece].hold();
        }
    }
    (from, to)
}

/// Makes blocks void for which a piece waits of its own wide read. They were asked for, and are no
/// neighbours.
pub(crate) fn no_neighbours_of_its_own(lane: &Lane, read: &mut Reading, waiting: &[Waiting]) {
    let piece = read.piece();
    for it in waiting.iter().filter(|it| it.piece == piece) {
        let first = lane.pieces[it.piece].first.0 + u64::from(it.block);
        (first..first + u64::from(it.blocks)).for_each(|flat| read.make_void(Flat(flat)));
    }
}

/// Copies blocks that a read has brought to the pieces that waited for them. The first block of the
/// read is block `buf_block` of `buf`.
pub(crate) fn share(lane: &Lane, read: &Reading, waiting: &[Waiting], buf: Buf, buf_block: u32, cx: &mut Cx<'_>) {
    for it in waiting {
        let reading = &lane.pieces[it.piece];
        let ahead = (reading.first.0 + u64::from(it.block) - read.first().0) as u32;
        let target = reading.buf.expect("a read has a buffer");
        let from = blocks_span(buf, buf_block + ahead, it.blocks);
        cx.mem.copy(from, target, (reading.buf_block + it.block) * BLOCK_BYTES as u32);
    }
}

/// Lets the pieces that waited go on: with the blocks that they were given, or by reading them
/// themselves.
pub(crate) fn go_on(lane: &mut Lane, read: &Reading, waiting: Vec<Waiting>, given: bool, cx: &mut Cx<'_>) {
    for Waiting { piece, block, blocks } in waiting {
        lane.pieces[piece].release();
        let counters = &mut cx.delta.counters;
        if given && piece != read.piece() {
            counters.read_hits += u64::from(blocks);
            counters.ram_hits += u64::from(blocks);
            counters.joined_blocks += u64::from(blocks);
        } else {
            counters.read_misses += u64::from(blocks);
        }
        if given {
            read_step(lane, piece, cx);
        } else {
            read_origin(lane, piece, block, blocks, cx);
        }
    }
}
