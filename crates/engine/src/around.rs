// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading around a miss: its neighbours come along, where that costs the origin little and the cache has room.
//!
//! A disk takes 8 ms to get to a block, and half of one for the 64 KiB around it; taken block by block, a new cache is
//! warm sixteen times later. dm-cache's blocks are 64 KiB, for better, when all data fits, and for worse when it doesn't, and most of
//! each is what nobody asks for. So here neighbours come only while there is room for them, or while what they push out isn't missed
//! (the policy says so), and only from an origin that does few reads a second; and each is a block of its own from then on.
//!
//! Whether it pays is learnt from what became of neighbours that were brought: if fewer than half of a sample had been read when their segment was
//! reclaimed, only one unit in 64 is, to learn more. With data of 4 to 12 times the cache (`cache-size-2017`) neighbours
//! would halve the speed otherwise: they go round in it so fast that nothing stays long enough to be read again.
//!
//! Neighbours aren't locked: a write of one must not wait for a disk. What is in the index when the read begins isn't taken
//! from it, even if it was destaged and dropped meanwhile, nor what anybody has asked to change since (canary `stale-neighbour`).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use slab::Slab;

use crate::canary::Canary;
use crate::format::Stream;
use crate::index::Flat;
use crate::io::{DeviceError, Op};
use crate::lane::{Lane, LaneIo};
use crate::memory::{Buf, Span};
use crate::policy::mix;
use crate::shared::{Cx, blocks_span};
use crate::types::BLOCK_BYTES;

/// The widest read around a miss: 256 KiB.
// The bits of `Range::void`.
pub const READ_AROUND_BLOCKS_MAX: u64 = 64;
/// Of a lane, in flight at once: 4 MiB of buffers with the default of 64 KiB. More misses than that go alone.
const IN_FLIGHT_MAX: usize = 64;

/// Neighbours that are looked back on, of a full cache.
const SAMPLE: u64 = 4096;
/// So many make a judgement; of twice as many the older ones count half.
const JUDGED_MIN: u32 = 64;
/// One unit in so many is read whole even where that doesn't pay.
const TRIAL: u64 = 64;

/// A cache with more than this part of it in unread neighbours has room.
const VAIN_PART: u64 = 8;

/// How many neighbours one of the sample stands for, in a lane of so many slots.
fn stands_for(slots: u64) -> u64 {
    (slots / SAMPLE).max(1)
}

/// A widened read in flight.
struct Range {
    first: Flat,
    blocks: u32,
    /// A bit for each block that must not be taken from it.
    void: u64,
}

impl Range {
    fn end(&self) -> Flat {
        Flat(self.first.0 + u64::from(self.blocks))
    }

    fn is_void(&self, flat: Flat) -> bool {
        self.void >> (flat.0 - self.first.0) & 1 == 1
    }

    fn make_void(&mut self, flat: Flat) {
        self.void |= 1 << (flat.0 - self.first.0);
    }
}

/// The widened reads of one lane: those in flight, and what came of the others.
#[derive(Default)]
pub(crate) struct Around {
    ranges: Slab<Range>,
    /// Neighbours in the cache, by slot: a sample.
    sample: BTreeMap<u32, Flat>,
    /// What became of it: neighbours that had been read when they were to leave, and all that were.
    read: u32,
    judged: u32,
}

impl Around {
    /// A neighbour was put in a slot of a lane of so many.
    fn brought(&mut self, flat: Flat, slot: u32, slots: u64) {
        if mix(flat.0).is_multiple_of(stands_for(slots)) {
            self.sample.insert(slot, flat);
        }
    }

    /// Whether a large part of a lane of so many slots holds neighbours that nobody will read: as good as room.
    pub(crate) fn in_vain(&self, slots: u64) -> bool {
        let (read, judged) = if self.judged < JUDGED_MIN { (0, 1) } else { (self.read, self.judged) };
        let unread = self.sample.len() as u64 * stands_for(slots) * u64::from(judged - read) / u64::from(judged);
        unread > slots / VAIN_PART
    }

    /// The blocks in these slots are to leave. `hits`: of what is in the index.
    pub(crate) fn look_back(&mut self, slots: core::ops::Range<u32>, hits: impl Fn(Flat, u32) -> Option<u8>) {
        let leaving: Vec<(u32, Flat)> = self.sample.range(slots).map(|(slot, flat)| (*slot, *flat)).collect();
        for (slot, flat) in leaving {
            self.sample.remove(&slot);
            // Those that were written anew since say nothing.
            if let Some(hits) = hits(flat, slot) {
                self.read += u32::from(hits > 0);
                self.judged += 1;
            }
        }
        if self.judged >= 2 * JUDGED_MIN {
            (self.read, self.judged) = (self.read / 2, self.judged / 2);
        }
    }

    /// Whether neighbours of a block in that unit should be brought.
    fn pays(&self, unit: u64) -> bool {
        self.judged < JUDGED_MIN || self.read * 2 >= self.judged || mix(unit).is_multiple_of(TRIAL)
    }

    /// Somebody is about to change these blocks.
    pub(crate) fn make_void(&mut self, first: Flat, end: Flat) {
        for (_, range) in &mut self.ranges {
            (first.max(range.first).0..end.min(range.end()).0).for_each(|flat| range.make_void(Flat(flat)));
        }
    }

    fn touches(&self, first: Flat, end: Flat) -> bool {
        self.ranges.iter().any(|(_, range)| range.first < end && first < range.end())
    }
}

/// Blocks of a read piece that are read with their neighbours.
pub(crate) struct AroundRead {
    pub(crate) piece: usize,
    /// First block of the piece, and how many.
    at: u32,
    blocks: u32,
    range: usize,
    buf: Buf,
}

impl Lane {
    /// Reads blocks of a piece that missed from the origin, with their neighbours if that is likely to pay.
    pub(crate) fn read_missed(&mut self, at: usize, block: u32, blocks: u32, cx: &mut Cx<'_>) {
        match self.widened(at, block, blocks, cx) {
            Some(range) => self.read_around(at, block, blocks, range, cx),
            None => self.read_origin(at, block, blocks, cx),
        }
    }

    fn widened(&self, at: usize, block: u32, blocks: u32, cx: &Cx<'_>) -> Option<Range> {
        let unit = cx.shared.options.read_around_blocks.min(READ_AROUND_BLOCKS_MAX);
        let piece = &self.pieces[at];
        // A budget is for what was asked for, and a model of it knows nothing of neighbours.
        if u64::from(blocks) >= unit || piece.bypass || cx.shared.budget.is_some() {
            return None;
        }
        let from = Flat(piece.first.0 + u64::from(block));
        let to = Flat(from.0 + u64::from(blocks));
        let origin = &cx.shared.origins[cx.shared.origin_of(from)];
        let pays = origin.gauge.reads_are_dear() && self.around.pays(from.0 / unit) && self.takes_neighbours();
        if !pays || self.around.ranges.len() >= IN_FLIGHT_MAX {
            return None;
        }
        // Not beyond the lane's stripe, nor into a block that the origin's end cuts.
        let stripe = u64::from(cx.shared.superblock.stripe_blocks);
        let whole = origin.base.0 + origin.size_bytes / BLOCK_BYTES;
        let first = (from.0 / unit * unit).max(from.0 / stripe * stripe);
        let end = (from.0 / unit * unit + unit).min((from.0 / stripe + 1) * stripe).min(whole);
        if to.0 > end {
            return None;
        }
        let wanted = |flat: &u64| self.index.get(Flat(*flat)).is_none() && !self.window.holds(Flat(*flat));
        let first = (first..from.0).find(wanted).unwrap_or(from.0);
        let end = (to.0..end).rev().find(wanted).map_or(to.0, |last| last + 1);
        let alone = end - first == u64::from(blocks);
        let (first, end) = (Flat(first), Flat(end));
        if alone || self.around.touches(first, end) || self.locks.any_exclusive(first, end) {
            return None;
        }
        let mut range = Range { first, blocks: (end.0 - first.0) as u32, void: 0 };
        (first.0..end.0).filter(|flat| !wanted(flat)).for_each(|flat| range.make_void(Flat(flat)));
        Some(range)
    }

    fn takes_neighbours(&self) -> bool {
        self.policy.takes_neighbours(self.has_room())
    }

    fn has_room(&self) -> bool {
        self.log.free_segments() > self.reclaim.watermark(&self.log)
    }

    /// Whether what is missed has room: also that of neighbours that were brought in vain, who are the next to leave.
    pub(crate) fn has_room_for_missed(&self) -> bool {
        self.has_room() || self.around.in_vain(self.log.slots())
    }

    fn read_around(&mut self, at: usize, block: u32, blocks: u32, range: Range, cx: &mut Cx<'_>) {
        let (device, offset, len) = cx.origin_range(range.first, u64::from(range.blocks));
        let buf = cx.alloc(range.blocks);
        let span = blocks_span(buf, 0, range.blocks);
        debug_assert_eq!(len, u64::from(span.len), "neighbours are whole blocks of the origin");
        let origin = cx.shared.origin_of(range.first);
        let range = self.around.ranges.insert(range);
        let io = self.ios.insert(LaneIo::ReadAround(AroundRead { piece: at, at: block, blocks, range, buf }));
        self.pieces[at].pending += 1;
        cx.shared.origins[origin].client_read_began(cx.now);
        cx.io(self.id, io, device, Op::Read, offset, Some(span));
    }

    pub(crate) fn around_done(&mut self, read: &AroundRead, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
        let &AroundRead { piece: at, at: block, blocks, range, buf } = read;
        let range = self.around.ranges.remove(range);
        let origin = cx.shared.origin_of(range.first);
        cx.shared.origins[origin].client_read_ended(result.is_ok(), cx.now);
        let piece = &mut self.pieces[at];
        piece.pending -= 1;
        if result.is_err() {
            // It may be a neighbour that can't be read.
            cx.free(buf, range.blocks);
            self.read_origin(at, block, blocks, cx);
            return;
        }
        let from = Flat(piece.first.0 + u64::from(block));
        let to = Flat(from.0 + u64::from(blocks));
        let asked_for = blocks_span(buf, (from.0 - range.first.0) as u32, blocks);
        let into = piece.buf.expect("a read has a buffer");
        cx.mem.copy(asked_for, into, (piece.buf_block + block) * BLOCK_BYTES as u32);
        // In order, so that they can be read by one I/O later.
        self.take_neighbours(&range, range.first, from, buf, cx);
        self.read_step(at, cx);
        self.take_neighbours(&range, to, range.end(), buf, cx);
        cx.free(buf, range.blocks);
    }

    fn take_neighbours(&mut self, range: &Range, from: Flat, to: Flat, buf: Buf, cx: &mut Cx<'_>) {
        for flat in (from.0..to.0).map(Flat) {
            let void = range.is_void(flat) || self.index.get(flat).is_some();
            if (void && !cx.shared.planted(Canary::StaleNeighbour)) || self.window.holds(flat) {
                continue;
            }
            let span: Span = blocks_span(buf, (flat.0 - range.first.0) as u32, 1);
            if !self.takes_neighbours() || !self.append(Stream::Promoted, flat, false, 0, span, cx) {
                return;
            }
            cx.shared.counters.neighbour_blocks += 1;
            let slots = self.log.slots();
            if let Some(found) = self.index.get(flat) {
                self.around.brought(flat, found.slot, slots);
            }
        }
    }
}
