// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads of an origin under way, and which pieces wait for what they bring.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use slab::Slab;

use crate::organ::index::Flat;
use crate::organ::locks::{LISTS, REGION_SHIFT, list_of, regions};

/// A read of consecutive blocks.
pub(crate) struct Reading {
    /// The piece that it is for.
    piece: usize,
    first: Flat,
    blocks: u32,
    /// With neighbours: at most [`crate::READ_AROUND_BLOCKS_MAX`], of which those that nobody asked
    /// for aren't locked.
    wide: bool,
    /// Blocks that must not be taken from this read. In a wide read there is a bit for each block.
    /// In another, nothing must be taken if any bit is set.
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
    pub(crate) piece: usize,
    /// First block of the piece, and how many.
    pub(crate) block: u32,
    pub(crate) blocks: u32,
}

/// The reads of origins for clients of one lane.
pub(crate) struct UnderWay {
    reads: Slab<Reading>,
    /// The lists: each has the reads in its regions, in no order; as with locks. (One list of all
    /// took 200 ns a miss with 128 in flight.)
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

    /// A read is over: what it was, and who waits for it.
    pub(crate) fn end(&mut self, id: usize) -> (Reading, Vec<Waiting>) {
        let read = self.reads.remove(id);
        let take_out = |list: &mut Vec<u32>| {
            if let Some(nth) = list.iter().position(|other| *other as usize == id) {
                list.swap_remove(nth);
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
    pub(crate) fn of(&self, flat: Flat, planted: bool) -> Option<usize> {
        let brings = |read: &Reading| read.first <= flat && flat < read.end() && (!read.is_void(flat) || planted);
        let list = &self.lists[list_of(flat.0 >> REGION_SHIFT)];
        list.iter().map(|id| *id as usize).find(|id| brings(&self.reads[*id]))
    }

    /// Lets a piece wait for a block that this read brings. Returns whether that is one more thing
    /// that the piece waits for: not if the block before is waited for in the same way.
    pub(crate) fn wait(&mut self, id: usize, piece: usize, block: u32) -> bool {
        let waiting = self.waiting.entry(id).or_default();
        match waiting.last_mut() {
            Some(last) if last.piece == piece && last.block + last.blocks == block => {
                last.blocks += 1;
                false
            }
            _ => {
                waiting.push(Waiting { piece, block, blocks: 1 });
                true
            }
        }
    }
}
