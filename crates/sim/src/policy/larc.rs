// SPDX-License-Identifier: MIT OR Apache-2.0
//! LARC is an LRU that admits a block when it is asked for a second time while it is remembered.
//!
//! How many are remembered follows the hits: 0.1 to 0.9 of the cache, more with each miss, fewer
//! with each hit. Not even an empty cache takes everything. A write that is not let in goes to the
//! origin.

use flashfront_engine::policy::Spec;

use super::contract::{Access, Build, Changes, Policy};
use super::table::{List, Table};

pub(super) const SPEC: Spec<Build> = Spec {
    name: "larc",
    summary: "an LRU that lets in only what is asked for twice",
    source: "Huang et al., MSST 2013 and TOS 2016",
    build: Build { new: |capacity| Box::new(Larc::new(capacity)), unit_blocks: 1, foresees: false, is_log: false },
};

struct Larc {
    capacity: usize,
    /// For each key whether it is in the cache.
    table: Table<bool>,
    blocks: List,
    remembered: List,
    remembered_max: f64,
}

impl Larc {
    fn new(capacity: usize) -> Self {
        let remembered_max = 0.1 * capacity as f64;
        Self { capacity, table: Table::new(), blocks: List::new(), remembered: List::new(), remembered_max }
    }
}

impl Policy for Larc {
    fn access(&mut self, access: &Access, changes: &mut Changes) -> bool {
        let capacity = self.capacity as f64;
        let found = self.table.find(access.key);
        if let Some(slot) = found.filter(|slot| self.table[*slot]) {
            self.table.touch(&mut self.blocks, slot);
            self.remembered_max -= capacity / (capacity - self.remembered_max);
            self.remembered_max = self.remembered_max.max(0.1 * capacity);
            return true;
        }
        self.remembered_max = (self.remembered_max + capacity / self.remembered_max).min(0.9 * capacity);
        let Some(slot) = found else {
            let slot = self.table.insert(access.key, false);
            self.table.push(&mut self.remembered, slot);
            // At least the last one is remembered, also in a cache of one block.
            if self.remembered.len() as f64 > self.remembered_max.max(1.0) {
                self.table.remove_oldest(&mut self.remembered);
            }
            return false;
        };
        if self.blocks.len() == self.capacity {
            changes.evicted.extend(self.table.remove_oldest(&mut self.blocks));
        }
        self.table.unlink(&mut self.remembered, slot);
        self.table[slot] = true;
        self.table.push(&mut self.blocks, slot);
        changes.admitted = true;
        false
    }
}
