// SPDX-License-Identifier: MIT OR Apache-2.0
//! dm-cache's policy mq, as in Linux 3.16, promotes blocks when they were asked for often enough.
//!
//! - Hits are counted, at most one between two ticks. A tick comes when a chosen request is over;
//!   then the next request is chosen. Blocks that are not cached are counted, too: as many of them
//!   as the cache has places.
//! - A block is promoted if its count had reached the threshold before the request. With a
//!   threshold of 0 or 1 it is promoted at its first request, but only while there is a free place.
//! - The threshold is 0 until the cache is full, plus an adjustment. That is 2 for reads and 0 for
//!   writes, as the tester of 2015 had set them. The defaults are 4 and 8.
//! - Once the cache is full, the threshold changes after as many hits as the cache has places. It
//!   becomes the mean of the counts of 20 blocks of the lowest level.
//! - Levels are binary logarithms of the count, each in order of last use. Once the lowest level is
//!   used up all others move down.
//! - The oldest clean block of the lowest level leaves, and begins again at 1. If none is clean
//!   nothing is promoted. Copying back has the same order, and is wanted for all dirty blocks at
//!   any time.
//!
//! Discards and the detection of sequential streams are not modelled. With the tester's threshold
//! no stream was sequential.

use super::until_411::{Chance, Policy, Verdict};
use crate::policy::table::{List, Slot, Table};

const LEVELS: usize = 16;
const READ_ADJUSTMENT: u32 = 2;
const WRITE_ADJUSTMENT: u32 = 0;
/// The number of blocks whose mean makes the threshold.
const AVERAGED: u32 = 20;
const GENERATION_MIN: u64 = 1024;
/// The place of a block that is not cached.
const NOWHERE: u32 = u32::MAX;

struct Block {
    hits: u32,
    tick: u32,
    place: u32,
    /// The level that the block is in. The number is counted on when levels move down.
    level: u32,
    dirty: bool,
}

/// Blocks by level. When the lowest level is emptied by taking from it, all others move down.
struct Queue {
    levels: [List; LEVELS],
    /// The lowest level's number; the levels are a ring.
    lowest: u32,
    len: usize,
}

impl Queue {
    const fn new() -> Self {
        Self { levels: [List::new(); LEVELS], lowest: 0, len: 0 }
    }

    fn push(&mut self, blocks: &mut Table<Block>, slot: Slot) {
        let level = self.lowest + blocks[slot].hits.ilog2().min(LEVELS as u32 - 1);
        blocks[slot].level = level;
        blocks.push(&mut self.levels[level as usize % LEVELS], slot);
        self.len += 1;
    }

    fn unlink(&mut self, blocks: &mut Table<Block>, slot: Slot) {
        let level = blocks[slot].level;
        blocks.unlink(&mut self.levels[level as usize % LEVELS], slot);
        self.len -= 1;
    }

    /// The queue's lists, from the lowest level up.
    fn lists(&self) -> impl Iterator<Item = &List> {
        (self.lowest..self.lowest + LEVELS as u32).map(|level| &self.levels[level as usize % LEVELS])
    }

    /// Takes the oldest block of the lowest level that has any.
    fn pop(&mut self, blocks: &mut Table<Block>) -> Option<Slot> {
        let slot = self.lists().find_map(List::oldest)?;
        self.unlink(blocks, slot);
        if blocks[slot].level == self.lowest && self.levels[self.lowest as usize % LEVELS].len() == 0 {
            self.lowest += 1;
        }
        Some(slot)
    }
}

pub(super) struct Mq {
    places: usize,
    /// Places that were given out.
    used: usize,
    blocks: Table<Block>,
    counted: Queue,
    clean: Queue,
    dirty: Queue,
    threshold: u32,
    /// Hits in this generation.
    hits: u64,
    tick: u32,
}

impl Mq {
    pub(super) fn new(places: usize) -> Self {
        Self {
            places,
            used: 0,
            blocks: Table::new(),
            counted: Queue::new(),
            clean: Queue::new(),
            dirty: Queue::new(),
            threshold: 0,
            hits: 0,
            tick: 0,
        }
    }

    fn unlink(&mut self, slot: Slot) {
        let (queue, blocks) = self.queue(slot);
        queue.unlink(blocks, slot);
    }

    fn push(&mut self, slot: Slot) {
        self.blocks[slot].tick = self.tick;
        let (queue, blocks) = self.queue(slot);
        queue.push(blocks, slot);
    }

    /// The queue that a block belongs into.
    fn queue(&mut self, slot: Slot) -> (&mut Queue, &mut Table<Block>) {
        let queue = match self.blocks[slot] {
            Block { place: NOWHERE, .. } => &mut self.counted,
            Block { dirty: false, .. } => &mut self.clean,
            Block { dirty: true, .. } => &mut self.dirty,
        };
        (queue, &mut self.blocks)
    }

    fn hit(&mut self, slot: Slot) {
        if self.blocks[slot].tick == self.tick {
            return;
        }
        self.unlink(slot);
        self.blocks[slot].hits += 1;
        self.push(slot);
        self.hits += 1;
        if self.hits >= (self.places as u64).max(GENERATION_MIN) && self.used == self.places {
            self.hits = 0;
            self.set_threshold();
        }
    }

    fn set_threshold(&mut self) {
        let (mut count, mut sum) = (0, 0);
        'lists: for (clean, dirty) in self.clean.lists().zip(self.dirty.lists()) {
            for list in [clean, dirty] {
                let mut next = list.oldest();
                while let Some(slot) = next {
                    (count, sum) = (count + 1, sum + self.blocks[slot].hits);
                    if count == AVERAGED {
                        break 'lists;
                    }
                    next = self.blocks.newer(slot, list);
                }
            }
        }
        self.threshold = if count == 0 { 1 } else { sum.div_ceil(count) };
    }

    /// Notes a block that is not cached, and was asked for once.
    fn count(&mut self, block: u64) {
        if self.counted.len == self.places
            && let Some(forgotten) = self.counted.pop(&mut self.blocks)
        {
            self.blocks.remove(forgotten);
        }
        let slot =
            self.blocks.insert(block, Block { hits: 1, tick: self.tick, place: NOWHERE, level: 0, dirty: false });
        self.push(slot);
    }

    fn free_place(&mut self) -> Option<u32> {
        (self.used < self.places).then(|| {
            self.used += 1;
            (self.used - 1) as u32
        })
    }
}

impl Policy for Mq {
    fn ask(&mut self, _now_ns: u64, block: u64, write: bool, _whole: bool, chance: Chance) -> Verdict {
        let needed = self.threshold + if write { WRITE_ADJUSTMENT } else { READ_ADJUSTMENT };
        let Some(slot) = self.blocks.find(block) else {
            if needed <= 1 && self.used < self.places {
                match chance {
                    Chance::Later => return Verdict::Later,
                    Chance::Never => return Verdict::Miss,
                    Chance::Now => (),
                }
                let place = self.free_place().expect("there is one");
                let slot = self.blocks.insert(block, Block { hits: 1, tick: self.tick, place, level: 0, dirty: false });
                self.push(slot);
                return Verdict::Promote { place, demotes: false };
            }
            self.count(block);
            return Verdict::Miss;
        };
        let Block { hits, tick, place, .. } = self.blocks[slot];
        if place != NOWHERE {
            self.hit(slot);
            return Verdict::Hit(place);
        }
        if tick == self.tick || hits < needed {
            self.hit(slot);
            return Verdict::Miss;
        }
        match chance {
            Chance::Later => return Verdict::Later,
            Chance::Never => return Verdict::Miss,
            Chance::Now => (),
        }
        self.hit(slot);
        let free = self.free_place();
        let demotes = free.is_none();
        let Some(place) = free.or_else(|| {
            let leaving = self.clean.pop(&mut self.blocks)?;
            let place = self.blocks[leaving].place;
            (self.blocks[leaving].place, self.blocks[leaving].hits) = (NOWHERE, 1);
            self.push(leaving);
            Some(place)
        }) else {
            return Verdict::Miss;
        };
        self.unlink(slot);
        self.blocks[slot].place = place;
        self.push(slot);
        Verdict::Promote { place, demotes }
    }

    fn dirtied(&mut self, block: u64) {
        let slot = self.blocks.find(block).expect("what is written in the cache is there");
        if !self.blocks[slot].dirty {
            self.unlink(slot);
            self.blocks[slot].dirty = true;
            self.push(slot);
        }
    }

    fn next_writeback(&mut self, _idle: bool) -> Option<(u64, u32)> {
        let slot = self.dirty.pop(&mut self.blocks)?;
        self.blocks[slot].dirty = false;
        self.push(slot);
        Some((self.blocks.key(slot), self.blocks[slot].place))
    }

    fn tick(&mut self, _now_ns: u64) {
        self.tick += 1;
    }

    fn dirty(&self) -> u64 {
        self.dirty.len as u64
    }
}
