// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remembers blocks that were read once. The second read puts them on the SSD.

use super::blocks::Blocks;

/// The first reads that are remembered: those of lately, and those before.
pub(super) struct Seen {
    lately: Blocks,
    before: Blocks,
    /// When as many were seen lately, the older ones are forgotten.
    lately_max: u64,
}

impl Seen {
    pub(super) fn new(origin_blocks: u64, lately_max: u64) -> Self {
        Self { lately: Blocks::new(origin_blocks), before: Blocks::new(origin_blocks), lately_max }
    }

    /// Notes a read of a block that is not on the SSD. Returns whether it was read before.
    pub(super) fn note(&mut self, block: u64) -> bool {
        if self.lately.contains(block) || self.before.contains(block) {
            return true;
        }
        if self.lately.count() >= self.lately_max {
            let empty = Blocks::new(self.lately.bound());
            self.before = std::mem::replace(&mut self.lately, empty);
        }
        self.lately.insert(block);
        false
    }

    /// Forgets a block, which is on the SSD now.
    pub(super) fn forget(&mut self, block: u64) {
        self.lately.remove(block);
        self.before.remove(block);
    }
}
