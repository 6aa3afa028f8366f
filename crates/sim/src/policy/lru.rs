// SPDX-License-Identifier: MIT OR Apache-2.0
//! LRU throws out the block that was not asked for longest.
//!
//! bcache's default, and OCF's without a promotion policy, are near to it.

use flashfront_engine::policy::Spec;

use super::contract::{Access, Build, Changes, Policy};
use super::table::{List, Table};

pub(super) const SPEC: Spec<Build> = Spec {
    name: "lru",
    summary: "throws out what was not asked for longest",
    source: "folklore; bcache and OCF by default",
    build: Build { new: |capacity| Box::new(Lru::new(capacity)), unit_blocks: 1, foresees: false, is_log: false },
};

struct Lru {
    capacity: usize,
    table: Table<()>,
    blocks: List,
}

impl Lru {
    fn new(capacity: usize) -> Self {
        Self { capacity, table: Table::new(), blocks: List::new() }
    }
}

impl Policy for Lru {
    fn access(&mut self, access: &Access, changes: &mut Changes) -> bool {
        if let Some(slot) = self.table.find(access.key) {
            self.table.touch(&mut self.blocks, slot);
            return true;
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
