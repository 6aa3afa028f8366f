// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open CAS's promotion policy `nhit` runs here with its defaults over an LRU. Once the cache is 80
//! % full, a block gets in at the third time that it is asked for.
//!
//! A ring counts these times for the last 2 x cache newly seen blocks. An entry is overwritten when
//! the ring comes round, however often its block was asked for. A block that got in starts at 0
//! again.
//!
//! OCF decides for a whole request, this model for each block. In OCF all blocks of a request get
//! in if one of them is in the cache already. Otherwise none gets in unless all have come often
//! enough. OCF's LRU moves a block only if it is in the older half, and throws out clean blocks
//! first. Here it is a plain LRU.

use flashfront_engine::policy::Spec;

use super::contract::{Access, Build, Changes, Policy};
use super::table::{List, Table};

pub(super) const SPEC: Spec<Build> = Spec {
    name: "nhit",
    summary: "an LRU that lets in only what is asked for three times, once it is 80 % full",
    source: "Open CAS (OCF), promotion policy nhit with its defaults",
    build: Build { new: |capacity| Box::new(Nhit::new(capacity)), unit_blocks: 1, foresees: false, is_log: false },
};

/// A block gets in when it is asked for this often.
const THRESHOLD: u32 = 3;
/// Everything gets in while less than this part of the cache is filled.
const TRIGGER_PERCENT: usize = 80;
/// Entries of the ring for each block of the cache.
const RING_FACTOR: usize = 2;

struct Nhit {
    capacity: usize,
    trigger: usize,
    table: Table<()>,
    blocks: List,
    /// How often each key was asked for.
    counts: Table<u32>,
    ring: List,
}

impl Nhit {
    fn new(capacity: usize) -> Self {
        Self {
            capacity,
            trigger: (capacity * TRIGGER_PERCENT).div_ceil(100),
            table: Table::new(),
            blocks: List::new(),
            counts: Table::new(),
            ring: List::new(),
        }
    }

    fn is_let_in(&mut self, key: u64) -> bool {
        if self.blocks.len() < self.trigger {
            return true;
        }
        if let Some(slot) = self.counts.find(key) {
            self.counts[slot] += 1;
            return self.counts[slot] >= THRESHOLD;
        }
        if self.ring.len() == RING_FACTOR * self.capacity {
            self.counts.remove_oldest(&mut self.ring);
        }
        let slot = self.counts.insert(key, 1);
        self.counts.push(&mut self.ring, slot);
        false
    }
}

impl Policy for Nhit {
    fn access(&mut self, access: &Access, changes: &mut Changes) -> bool {
        if let Some(slot) = self.table.find(access.key) {
            self.table.touch(&mut self.blocks, slot);
            return true;
        }
        if !self.is_let_in(access.key) {
            return false;
        }
        if let Some(slot) = self.counts.find(access.key) {
            self.counts[slot] = 0;
        }
        if self.blocks.len() == self.capacity {
            changes.evicted.extend(self.table.remove_oldest(&mut self.blocks));
        }
        let slot = self.table.insert(access.key, ());
        self.table.push(&mut self.blocks, slot);
        changes.admitted = true;
        false
    }
}
