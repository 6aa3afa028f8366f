// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads of an origin under way, and who waits for them instead of reading a block once more.
//!
//! Requests that aren't aligned share a block with the next one, and programs ask twice for what they miss: with 16 requests in flight a trace of an unaligned
//! guest had 19.5 % hits instead of 25.3 while each read went to the disk by itself (`cp_vscsi`, docs/laboratory/policy.md).
//!
//! Only the ends of what is missed wait: between them it is read as one, which costs a disk less than two reads around what somebody else brings. Who waits has locked the
//! block, as has who asked first, so nobody changes it meanwhile. Neighbours of a miss aren't locked: what anybody has asked to change
//! since their read began is void (canaries `stale-neighbour`, `joined-void`), and who comes for it later reads it by himself. So is all that was being read while a flush of
//! its origin failed (test: `who_asks_after_a_failed_flush_shares_no_read_of_before`).
//! Whose read fails has an error of his own; those who waited for it read by themselves (test: `who_waits_for_a_read_that_fails_reads_by_himself`).
//! A piece may wait for its own wide read, if what it misses has a hole: that is a miss like any other, and no neighbour.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use slab::Slab;

use crate::canary::Canary;
use crate::cx::{Cx, blocks_span};
use crate::index::Flat;
use crate::lane::Lane;
use crate::locks::{LISTS, REGION_SHIFT, list_of, regions};
use crate::memory::Buf;
use crate::types::{BLOCK_BYTES, Mode};

/// A read of consecutive blocks.
pub(crate) struct Reading {
    /// The piece that it is for.
    piece: usize,
    first: Flat,
    blocks: u32,
    /// With neighbours: at most [`crate::READ_AROUND_BLOCKS_MAX`], of which those that nobody asked for aren't locked.
    wide: bool,
    /// Of a wide one: a bit for each block that must not be taken from it. Of another: if any is set, nothing must be any more.
    void: u64,
}

impl Reading {
    pub(crate) const fn new(piece: usize, first: Flat, blocks: u32) -> Self {
        Self { piece, first, blocks, wide: false, void: 0 }
    }

    pub(crate) const fn wide(piece: usize, first: Flat, end: Flat) -> Self {
        Self { piece, first, blocks: (end.0 - first.0) as u32, wide: true, void: 0 }
    }

    fn regions(&self) -> core::ops::Range<u64> {
        regions(self.first.0, self.end().0)
    }

    pub(crate) const fn piece(&self) -> usize {
        self.piece
    }

    pub(crate) const fn first(&self) -> Flat {
        self.first
    }

    pub(crate) const fn end(&self) -> Flat {
        Flat(self.first.0 + self.blocks as u64)
    }

    pub(crate) const fn blocks(&self) -> u32 {
        self.blocks
    }

    pub(crate) const fn is_void(&self, flat: Flat) -> bool {
        if self.wide { self.void >> (flat.0 - self.first.0) & 1 == 1 } else { self.void != 0 }
    }

    pub(crate) const fn make_void(&mut self, flat: Flat) {
        self.void |= 1 << (flat.0 - self.first.0);
    }
}

/// Blocks of a piece that a read brings: somebody else's, or another one of its own.
pub(crate) struct Waiting {
    piece: usize,
    /// First block of the piece, and how many.
    at: u32,
    blocks: u32,
}

/// The reads of origins for clients of one lane.
pub(crate) struct UnderWay {
    reads: Slab<Reading>,
    /// Of each list: the reads in its regions, in no order; as with locks. (One list of all took 200 ns a miss with 128 in flight.)
    lists: Vec<Vec<u32>>,
    waiting: BTreeMap<usize, Vec<Waiting>>,
    /// The wide ones.
    wide: Vec<u32>,
}

impl Default for UnderWay {
    fn default() -> Self {
        Self { reads: Slab::new(), lists: alloc::vec![Vec::new(); LISTS], waiting: BTreeMap::new(), wide: Vec::new() }
    }
}

impl UnderWay {
    pub(crate) fn begin(&mut self, read: Reading) -> usize {
        let id = self.reads.vacant_key();
        if read.wide {
            self.wide.push(id as u32);
        }
        read.regions().for_each(|region| self.lists[list_of(region)].push(id as u32));
        self.reads.insert(read)
    }

    /// One is over: what it was, and who waits for it.
    pub(crate) fn end(&mut self, id: usize) -> (Reading, Vec<Waiting>) {
        let read = self.reads.remove(id);
        let take_out = |list: &mut Vec<u32>| {
            if let Some(at) = list.iter().position(|other| *other as usize == id) {
                list.swap_remove(at);
            }
        };
        read.regions().for_each(|region| take_out(&mut self.lists[list_of(region)]));
        if read.wide {
            take_out(&mut self.wide);
        }
        (read, self.waiting.remove(&id).unwrap_or_default())
    }

    /// Wide ones.
    pub(crate) const fn wide(&self) -> u64 {
        self.wide.len() as u64
    }

    /// Somebody is about to change these blocks, or reads them by himself.
    pub(crate) fn make_void(&mut self, first: Flat, end: Flat) {
        for id in &self.wide {
            let read = &mut self.reads[*id as usize];
            (first.max(read.first).0..end.min(read.end()).0).for_each(|flat| read.make_void(Flat(flat)));
        }
    }

    /// What all of them bring of these blocks may be gone from the origin by now.
    pub(crate) fn make_all_void(&mut self, first: Flat, end: Flat) {
        self.make_void(first, end);
        let narrow = self.reads.iter_mut().filter(|(_, read)| !read.wide && read.first < end && first < read.end());
        narrow.for_each(|(_, read)| read.void = 1);
    }

    /// Whether a wide one brings any of these blocks.
    pub(crate) fn any_wide(&self, first: Flat, end: Flat) -> bool {
        let mut wide = self.wide.iter().map(|id| &self.reads[*id as usize]);
        wide.any(|read| read.first < end && first < read.end())
    }

    /// Panics unless there are so many, and everybody waits for one of them.
    pub(crate) fn check(&self, reads: usize, waits: impl Fn(usize) -> bool) {
        assert_eq!(self.reads.len(), reads, "reads of the origin under way");
        let listed = |id: &usize, read: &Reading| {
            let has = |list: &Vec<u32>| list.contains(&(*id as u32));
            read.regions().all(|region| has(&self.lists[list_of(region)])) && read.wide == has(&self.wide)
        };
        assert!(self.reads.iter().all(|(id, read)| listed(&id, read)), "a read is missing from the lists");
        let regions: usize = self.reads.iter().map(|(_, read)| read.regions().count()).sum();
        assert_eq!(self.lists.iter().map(Vec::len).sum::<usize>(), regions, "a read that is over is in the lists");
        let of_none = self.waiting.keys().find(|id| !self.reads.contains(**id));
        assert_eq!(of_none, None, "somebody waits for a read that is over");
        assert!(self.waiting.values().flatten().all(|it| waits(it.piece)), "a piece has ended that waits for a read");
    }

    /// Whether any brings a block.
    pub(crate) fn brings(&self, flat: Flat) -> bool {
        self.of(flat, false).is_some()
    }

    /// The read that brings a block.
    fn of(&self, flat: Flat, planted: bool) -> Option<usize> {
        let brings = |read: &Reading| read.first <= flat && flat < read.end() && (!read.is_void(flat) || planted);
        let list = &self.lists[list_of(flat.0 >> REGION_SHIFT)];
        list.iter().map(|id| *id as usize).find(|id| brings(&self.reads[*id]))
    }
}

impl Lane {
    /// Lets a piece wait for blocks at both ends of what it missed that reads under way bring; returns what is left between them, as its first
    /// block and the one behind it. Not past the cache: who looks for a fault there wants each request to go where it says.
    pub(crate) fn join(&mut self, at: usize, block: u32, blocks: u32, cx: &mut Cx<'_>) -> (u32, u32) {
        let (begin, end) = (self.pieces[at].first, block + blocks);
        if cx.shared.origins[cx.shared.origin_of(begin)].mode == Mode::Passthrough {
            return (block, end);
        }
        let planted = cx.shared.planted(Canary::JoinedVoid);
        let read_of = |lane: &Self, block: u32| lane.under_way.of(Flat(begin.0 + u64::from(block)), planted);
        let to = (block..end).rev().find(|block| read_of(self, *block).is_none()).map_or(block, |last| last + 1);
        // The last of what is left is known to be.
        let last = to.saturating_sub(1).max(block);
        let from = (block..last).find(|block| read_of(self, *block).is_none()).unwrap_or(last.min(to));
        for block in (block..from).chain(to..end) {
            let id = read_of(self, block).expect("somebody reads what lies around the rest");
            let waiting = self.under_way.waiting.entry(id).or_default();
            match waiting.last_mut() {
                Some(last) if last.piece == at && last.at + last.blocks == block => last.blocks += 1,
                _ => {
                    waiting.push(Waiting { piece: at, at: block, blocks: 1 });
                    self.pieces[at].pending += 1;
                }
            }
        }
        (from, to)
    }

    /// What a piece waits for of its own wide read was asked for, and is no neighbour.
    pub(crate) fn no_neighbours_of_its_own(&self, read: &mut Reading, waiting: &[Waiting]) {
        let piece = read.piece;
        for it in waiting.iter().filter(|it| it.piece == piece) {
            let first = self.pieces[it.piece].first.0 + u64::from(it.at);
            (first..first + u64::from(it.blocks)).for_each(|flat| read.make_void(Flat(flat)));
        }
    }

    /// Copies what a read has brought for those who waited for it: its first block is block `buf_block` of that buffer.
    pub(crate) fn share(&self, read: &Reading, waiting: &[Waiting], buf: Buf, buf_block: u32, cx: &mut Cx<'_>) {
        for it in waiting {
            let piece = &self.pieces[it.piece];
            let ahead = (piece.first.0 + u64::from(it.at) - read.first.0) as u32;
            let target = piece.buf.expect("a read has a buffer");
            let from = blocks_span(buf, buf_block + ahead, it.blocks);
            cx.mem.copy(from, target, (piece.buf_block + it.at) * BLOCK_BYTES as u32);
        }
    }

    /// Those who waited go on: with what they were given, or by reading it themselves.
    pub(crate) fn go_on(&mut self, read: &Reading, waiting: Vec<Waiting>, given: bool, cx: &mut Cx<'_>) {
        for Waiting { piece, at, blocks } in waiting {
            self.pieces[piece].pending -= 1;
            let counters = &mut cx.shared.counters;
            if given && piece != read.piece {
                counters.read_hits += u64::from(blocks);
                counters.ram_hits += u64::from(blocks);
                counters.joined_blocks += u64::from(blocks);
            } else {
                counters.read_misses += u64::from(blocks);
            }
            if given {
                self.read_step(piece, cx);
            } else {
                self.read_origin(piece, at, blocks, cx);
            }
        }
    }
}
