// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads of an origin under way, and who waits for them: a block that one of them brings is not read once more.
//!
//! Requests that aren't aligned share a block with the next one, and programs ask twice for what they miss: with 16 requests in flight a trace of an unaligned
//! guest had 19.5 % hits instead of 24.8 while each read went to the disk by itself (`cp_vscsi`, docs/policy.md).
//!
//! Only the ends of what is missed wait: between them it is read as one, which costs a disk less than two reads around what somebody else brings. Who waits has locked the
//! block, as has who asked first, so nobody changes it meanwhile. Neighbours of a miss aren't locked: what anybody has asked to change
//! since their read began is void (canaries `stale-neighbour`, `joined-void`), and who comes for it later reads it by himself.
//! Whose read fails has an error of his own; those who waited for it read by themselves (test: `who_waits_for_a_read_that_fails_reads_by_himself`).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use slab::Slab;

use crate::canary::Canary;
use crate::index::Flat;
use crate::lane::Lane;
use crate::locks::{LISTS, REGION_SHIFT, list_of};
use crate::memory::Buf;
use crate::shared::{Cx, blocks_span};
use crate::types::BLOCK_BYTES;

/// A read of consecutive blocks.
pub(crate) struct Reading {
    first: Flat,
    blocks: u32,
    /// With neighbours: at most [`crate::READ_AROUND_BLOCKS_MAX`], of which those that nobody asked for aren't locked.
    wide: bool,
    /// Of a wide one: a bit for each block that must not be taken from it.
    void: u64,
}

impl Reading {
    pub(crate) const fn new(first: Flat, blocks: u32) -> Self {
        Self { first, blocks, wide: false, void: 0 }
    }

    pub(crate) const fn wide(first: Flat, end: Flat) -> Self {
        Self { first, blocks: (end.0 - first.0) as u32, wide: true, void: 0 }
    }

    fn regions(&self) -> core::ops::RangeInclusive<u64> {
        self.first.0 >> REGION_SHIFT..=(self.end().0 - 1) >> REGION_SHIFT
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
        self.wide && self.void >> (flat.0 - self.first.0) & 1 == 1
    }

    pub(crate) const fn make_void(&mut self, flat: Flat) {
        self.void |= 1 << (flat.0 - self.first.0);
    }
}

/// Blocks of a piece that somebody else's read brings.
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
    wide: u64,
}

impl Default for UnderWay {
    fn default() -> Self {
        Self { reads: Slab::new(), lists: alloc::vec![Vec::new(); LISTS], waiting: BTreeMap::new(), wide: 0 }
    }
}

impl UnderWay {
    pub(crate) fn begin(&mut self, read: Reading) -> usize {
        self.wide += u64::from(read.wide);
        let id = self.reads.vacant_key();
        read.regions().for_each(|region| self.lists[list_of(region)].push(id as u32));
        self.reads.insert(read)
    }

    /// One is over: what it was, and who waits for it.
    pub(crate) fn end(&mut self, id: usize) -> (Reading, Vec<Waiting>) {
        let read = self.reads.remove(id);
        self.wide -= u64::from(read.wide);
        for region in read.regions() {
            let list = &mut self.lists[list_of(region)];
            if let Some(at) = list.iter().position(|other| *other as usize == id) {
                list.swap_remove(at);
            }
        }
        (read, self.waiting.remove(&id).unwrap_or_default())
    }

    /// Wide ones.
    pub(crate) const fn wide(&self) -> u64 {
        self.wide
    }

    /// Somebody is about to change these blocks, or reads them by himself.
    pub(crate) fn make_void(&mut self, first: Flat, end: Flat) {
        if self.wide == 0 {
            return;
        }
        for (_, read) in self.reads.iter_mut().filter(|(_, read)| read.wide) {
            (first.max(read.first).0..end.min(read.end()).0).for_each(|flat| read.make_void(Flat(flat)));
        }
    }

    /// Whether a wide one brings any of these blocks.
    pub(crate) fn any_wide(&self, first: Flat, end: Flat) -> bool {
        self.wide > 0 && self.reads.iter().any(|(_, read)| read.wide && read.first < end && first < read.end())
    }

    /// Panics unless there are so many, and everybody waits for one of them.
    pub(crate) fn check(&self, reads: usize, waits: impl Fn(usize) -> bool) {
        assert_eq!(self.reads.len(), reads, "reads of the origin under way");
        let of_none = self.waiting.keys().find(|id| !self.reads.contains(**id));
        assert_eq!(of_none, None, "somebody waits for a read that is over");
        assert!(self.waiting.values().flatten().all(|it| waits(it.piece)), "a piece has ended that waits for a read");
    }

    /// The read that brings a block.
    fn of(&self, flat: Flat, planted: bool) -> Option<usize> {
        let brings = |read: &Reading| read.first <= flat && flat < read.end() && (!read.is_void(flat) || planted);
        let list = &self.lists[list_of(flat.0 >> REGION_SHIFT)];
        list.iter().map(|id| *id as usize).find(|id| brings(&self.reads[*id]))
    }
}

impl Lane {
    /// Lets a piece wait for blocks at both ends of what it missed that somebody else's reads bring; returns what is left between them, as its first
    /// block and the one behind it.
    pub(crate) fn join(&mut self, at: usize, block: u32, blocks: u32, cx: &mut Cx<'_>) -> (u32, u32) {
        let (begin, planted) = (self.pieces[at].first, cx.shared.planted(Canary::JoinedVoid));
        let read_of = |lane: &Self, block: u32| lane.under_way.of(Flat(begin.0 + u64::from(block)), planted);
        let end = block + blocks;
        let to = (block..end).rev().find(|block| read_of(self, *block).is_none()).map_or(block, |last| last + 1);
        // The last of what is left is known to be.
        let last = to.saturating_sub(1).max(block);
        let from = (block..last).find(|block| read_of(self, *block).is_none()).unwrap_or(last.min(to));
        let joined = blocks - (to - from);
        if joined == 0 {
            return (from, to);
        }
        for block in (block..from).chain(to..end) {
            let Some(read) = read_of(self, block) else { continue };
            let waiting = self.under_way.waiting.entry(read).or_default();
            match waiting.last_mut() {
                Some(last) if last.piece == at && last.at + last.blocks == block => last.blocks += 1,
                _ => {
                    waiting.push(Waiting { piece: at, at: block, blocks: 1 });
                    self.pieces[at].pending += 1;
                }
            }
        }
        let joined = u64::from(joined);
        cx.shared.counters.read_hits += joined;
        cx.shared.counters.ram_hits += joined;
        cx.shared.counters.joined_blocks += joined;
        (from, to)
    }

    /// Copies what a read has brought for those who waited for it: its first block is block `buf_block` of that buffer.
    pub(crate) fn share(&mut self, waiting: &[Waiting], first: Flat, buf: Buf, buf_block: u32, cx: &mut Cx<'_>) {
        for it in waiting {
            let piece = &self.pieces[it.piece];
            let ahead = (piece.first.0 + u64::from(it.at) - first.0) as u32;
            let target = piece.buf.expect("a read has a buffer");
            let from = blocks_span(buf, buf_block + ahead, it.blocks);
            cx.mem.copy(from, target, (piece.buf_block + it.at) * BLOCK_BYTES as u32);
        }
    }

    /// Those who waited go on: with what they were given, or by reading it themselves.
    pub(crate) fn go_on(&mut self, waiting: Vec<Waiting>, given: bool, cx: &mut Cx<'_>) {
        for Waiting { piece, at, blocks } in waiting {
            self.pieces[piece].pending -= 1;
            if given {
                self.read_step(piece, cx);
            } else {
                self.read_origin(piece, at, blocks, cx);
            }
        }
    }
}
