// SPDX-License-Identifier: MIT OR Apache-2.0
//! Belady's MIN throws out the block whose next use is the furthest away. No policy that admits
//! every miss has fewer misses.
//!
//! Like libCacheSim's, this model admits every miss, even of a block that is never asked for again.
//! A policy that may decline can do a little better: at most as well as this model with room for
//! one more block.

use std::collections::BinaryHeap;

use flashfront_engine::policy::Spec;

use super::contract::{Access, Build, Changes, Policy};
use super::table::{Slot, Table};

pub(super) const SPEC: Spec<Build> = Spec {
    name: "belady",
    summary: "throws out what is asked for again last: the bound that no policy can pass",
    source: "Belady 1966; Mattson et al. 1970",
    build: Build { new: |capacity| Box::new(Belady::new(capacity)), unit_blocks: 1, foresees: true, is_log: false },
};

struct Belady {
    capacity: usize,
    /// The next use of each block.
    table: Table<u64>,
    /// Blocks by their next use. When a block is asked for, it gets a new entry with its new time.
    /// The old entry, whose time is in the past, sinks to the bottom.
    heap: BinaryHeap<(u64, Slot)>,
    /// Blocks that are never asked for again. Their order doesn't matter, so they need no heap.
    never: Vec<Slot>,
}

impl Belady {
    fn new(capacity: usize) -> Self {
        Self { capacity, table: Table::new(), heap: BinaryHeap::new(), never: Vec::new() }
    }

    fn expect(&mut self, slot: Slot, next: u64) {
        if next == u64::MAX {
            self.never.push(slot);
            return;
        }
        if self.heap.len() > 4 * self.capacity {
            let table = &self.table;
            self.heap.retain(|(next, slot)| table[*slot] == *next);
        }
        self.heap.push((next, slot));
    }

    fn evict(&mut self) -> Option<u64> {
        if let Some(slot) = self.never.pop() {
            return Some(self.table.remove(slot));
        }
        loop {
            let (next, slot) = self.heap.pop()?;
            if self.table[slot] == next {
                return Some(self.table.remove(slot));
            }
        }
    }
}

impl Policy for Belady {
    fn access(&mut self, access: &Access, changes: &mut Changes) -> bool {
        if let Some(slot) = self.table.find(access.key) {
            self.table[slot] = access.next;
            self.expect(slot, access.next);
            return true;
        }
        if self.table.len() == self.capacity {
            changes.evicted.extend(self.evict());
        }
        let slot = self.table.insert(access.key, access.next);
        self.expect(slot, access.next);
        changes.admitted = true;
        false
    }
}
