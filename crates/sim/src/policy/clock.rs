// SPDX-License-Identifier: MIT OR Apache-2.0
//! CLOCK is a FIFO in which a block that was asked for since it came gets a second round.
//!
//! One bit for each block, clear when it comes. The hand goes round a FIFO here: what it passes
//! becomes the newest.

use flashfront_engine::policy::Spec;

use super::contract::{Access, Build, Changes, Policy};
use super::table::{List, Table};

pub(super) const SPEC: Spec<Build> = Spec {
    name: "clock",
    summary: "FIFO, but what was asked for gets another round",
    source: "Corbato 1968",
    build: Build { new: |capacity| Box::new(Clock::new(capacity)), unit_blocks: 1, foresees: false, is_log: true },
};

struct Clock {
    capacity: usize,
    /// Whether it was asked for since it came or was passed.
    table: Table<bool>,
    blocks: List,
}

impl Clock {
    fn new(capacity: usize) -> Self {
        Self { capacity, table: Table::new(), blocks: List::new() }
    }

    fn evict(&mut self, changes: &mut Changes) -> Option<u64> {
        loop {
            let slot = self.table.pop(&mut self.blocks)?;
            if !std::mem::take(&mut self.table[slot]) {
                return Some(self.table.remove(slot));
            }
            self.table.push(&mut self.blocks, slot);
            changes.reinserted += 1;
        }
    }
}

impl Policy for Clock {
    fn access(&mut self, access: &Access, changes: &mut Changes) -> bool {
        if let Some(slot) = self.table.find(access.key) {
            self.table[slot] = true;
            return true;
        }
        if self.blocks.len() == self.capacity {
            let evicted = self.evict(changes);
            changes.evicted.extend(evicted);
        }
        let slot = self.table.insert(access.key, false);
        self.table.push(&mut self.blocks, slot);
        changes.admitted = true;
        false
    }
}
