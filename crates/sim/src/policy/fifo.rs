// SPDX-License-Identifier: MIT OR Apache-2.0
//! FIFO throws out the block that came first, whether it was asked for again or not.

use flashfront_engine::policy::Spec;

use super::contract::{Access, Build, Changes, Policy};
use super::table::{List, Table};

pub(super) const SPEC: Spec<Build> = Spec {
    name: "fifo",
    summary: "throws out what came first",
    source: "folklore; flashcache by default",
    build: Build { new: |capacity| Box::new(Fifo::new(capacity)), unit_blocks: 1, foresees: false, is_log: true },
};

struct Fifo {
    capacity: usize,
    table: Table<()>,
    blocks: List,
}

impl Fifo {
    fn new(capacity: usize) -> Self {
        Self { capacity, table: Table::new(), blocks: List::new() }
    }
}

impl Policy for Fifo {
    fn access(&mut self, access: &Access, changes: &mut Changes) -> bool {
        if self.table.find(access.key).is_some() {
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
