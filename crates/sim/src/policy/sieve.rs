// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIEVE moves a hand from the oldest block to the newest. The hand throws out the first block that
//! was not asked for since the hand came by.
//!
//! Unlike CLOCK it moves nothing: what survives stays in its place, so that the hand soon is among
//! what came lately.

use flashfront_engine::policy::Spec;

use super::contract::{Access, Build, Changes, Policy};
use super::table::{List, Slot, Table};

pub(super) const SPEC: Spec<Build> = Spec {
    name: "sieve",
    summary: "a hand throws out what was not asked for since it last came by",
    source: "Zhang et al., NSDI 2024",
    build: Build { new: |capacity| Box::new(Sieve::new(capacity)), unit_blocks: 1, foresees: false, is_log: false },
};

struct Sieve {
    capacity: usize,
    /// Whether it was asked for since it came or the hand passed.
    table: Table<bool>,
    blocks: List,
    /// Where it goes on; none for the oldest.
    hand: Option<Slot>,
}

impl Sieve {
    fn new(capacity: usize) -> Self {
        Self { capacity, table: Table::new(), blocks: List::new(), hand: None }
    }

    fn evict(&mut self) -> Option<u64> {
        let mut slot = self.hand.or(self.blocks.oldest())?;
        while std::mem::take(&mut self.table[slot]) {
            slot = self.table.newer(slot, &self.blocks).or(self.blocks.oldest())?;
        }
        self.hand = self.table.newer(slot, &self.blocks);
        self.table.unlink(&mut self.blocks, slot);
        Some(self.table.remove(slot))
    }
}

impl Policy for Sieve {
    fn access(&mut self, access: &Access, changes: &mut Changes) -> bool {
        if let Some(slot) = self.table.find(access.key) {
            self.table[slot] = true;
            return true;
        }
        if self.blocks.len() == self.capacity {
            changes.evicted.extend(self.evict());
        }
        let slot = self.table.insert(access.key, false);
        self.table.push(&mut self.blocks, slot);
        changes.admitted = true;
        false
    }
}
