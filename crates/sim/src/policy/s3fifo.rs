// SPDX-License-Identifier: MIT OR Apache-2.0
//! S3-FIFO has a small FIFO for newcomers and a main FIFO with CLOCK. It remembers the keys of
//! blocks that the small FIFO threw out.
//!
//! The small FIFO is a tenth of the cache. A block that was hit twice there goes on to the main
//! FIFO; so does a block that comes back while its key is remembered. The model follows the
//! authors' present version (libCacheSim's `S3FIFO`, not `S3FIFOv0`). In it, newcomers go to the
//! main FIFO while the small one is full and nothing was thrown out yet.

use flashfront_engine::policy::Spec;

use super::contract::{Access, Build, Changes, Policy};
use super::table::{List, Table};

pub(super) const SPEC: Spec<Build> = Spec {
    name: "s3fifo",
    summary: "a small FIFO for newcomers, a main one, and the keys of whom the small one threw out",
    source: "Yang et al., SOSP 2023",
    build: Build { new: |capacity| Box::new(S3Fifo::new(capacity)), unit_blocks: 1, foresees: false, is_log: true },
};

/// After this many hits in the small FIFO a block goes on to the main FIFO.
const HITS_FOR_MAIN: u8 = 2;
/// Hits are counted up to this number.
const HITS_MAX: u8 = 3;

struct S3Fifo {
    capacity: usize,
    small_max: usize,
    gone_max: usize,
    table: Table<Block>,
    small: List,
    main: List,
    gone: List,
    evicted_any: bool,
}

struct Block {
    place: Queue,
    hits: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Queue {
    Small,
    Main,
    Gone,
}

impl S3Fifo {
    fn new(capacity: usize) -> Self {
        Self {
            capacity,
            small_max: (capacity / 10).max(1),
            gone_max: capacity * 9 / 10,
            table: Table::new(),
            small: List::new(),
            main: List::new(),
            gone: List::new(),
            evicted_any: false,
        }
    }

    fn evict(&mut self, changes: &mut Changes) -> Option<u64> {
        self.evicted_any = true;
        if self.main.len() <= self.capacity - self.small_max
            && let Some(key) = self.evict_small(changes)
        {
            return Some(key);
        }
        loop {
            let slot = self.table.pop(&mut self.main)?;
            if self.table[slot].hits == 0 {
                return Some(self.table.remove(slot));
            }
            self.table[slot].hits -= 1;
            self.table.push(&mut self.main, slot);
            changes.reinserted += 1;
        }
    }

    /// Throws out the oldest block of the small FIFO that doesn't go on to the main FIFO, if there
    /// is one.
    fn evict_small(&mut self, changes: &mut Changes) -> Option<u64> {
        loop {
            let slot = self.table.pop(&mut self.small)?;
            if self.table[slot].hits >= HITS_FOR_MAIN {
                self.table[slot] = Block { place: Queue::Main, hits: 0 };
                self.table.push(&mut self.main, slot);
                changes.reinserted += 1;
                continue;
            }
            if self.gone_max == 0 {
                return Some(self.table.remove(slot));
            }
            if self.gone.len() == self.gone_max {
                self.table.remove_oldest(&mut self.gone);
            }
            self.table[slot].place = Queue::Gone;
            self.table.push(&mut self.gone, slot);
            return Some(self.table.key(slot));
        }
    }
}

impl Policy for S3Fifo {
    fn access(&mut self, access: &Access, changes: &mut Changes) -> bool {
        let mut place = Queue::Small;
        if let Some(slot) = self.table.find(access.key) {
            let block = &mut self.table[slot];
            if block.place != Queue::Gone {
                block.hits = (block.hits + 1).min(HITS_MAX);
                return true;
            }
            self.table.unlink(&mut self.gone, slot);
            self.table.remove(slot);
            place = Queue::Main;
        }
        if self.small.len() + self.main.len() == self.capacity {
            let evicted = self.evict(changes);
            changes.evicted.extend(evicted);
        }
        if !self.evicted_any && self.small.len() >= self.small_max {
            place = Queue::Main;
        }
        let slot = self.table.insert(access.key, Block { place, hits: 0 });
        self.table.push(if place == Queue::Main { &mut self.main } else { &mut self.small }, slot);
        changes.admitted = true;
        false
    }
}
