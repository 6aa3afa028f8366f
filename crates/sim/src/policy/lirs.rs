// SPDX-License-Identifier: MIT OR Apache-2.0
//! LIRS ranks blocks by the time between their last two uses, not by the time since the last one.
//!
//! 99 % of the cache hold the blocks that were used twice at the shortest distance (LIR). The other
//! blocks (HIR) pass through the last 1 %, a FIFO. The stack has the LIR blocks, and all blocks
//! that were used since the last use of the oldest LIR block. A block that is used again while on
//! the stack has a shorter distance than that oldest block, and takes its place.
//!
//! The paper has no bound for the keys of blocks that are gone. Here the stack has at most two
//! caches full of blocks, as in libCacheSim. The key of the block that is gone longest is forgotten
//! first.
//!
//! libCacheSim differs from the paper in one thing. At a hit on a HIR block that is not on the
//! stack, it turns the oldest LIR block into a HIR block. The next newcomer becomes a LIR block.
//! With this change the miss ratios here equal libCacheSim's to the last digit (two traces, two
//! sizes each). Without it they differ by up to 0.1 points.

use flashfront_engine::policy::Spec;

use super::contract::{Access, Build, Changes, Policy};
use super::table::{List, Slot, Table};

pub(super) const SPEC: Spec<Build> = Spec {
    name: "lirs",
    summary: "keeps what is used again after the shortest time",
    source: "Jiang and Zhang, SIGMETRICS 2002; MySQL and H2",
    build: Build { new: |capacity| Box::new(Lirs::new(capacity)), unit_blocks: 1, foresees: false, is_log: false },
};

struct Lirs {
    capacity: usize,
    hot_max: usize,
    hot: usize,
    table: Table<Block, 2>,
    /// Blocks by their last use. The oldest is hot.
    stack: List,
    /// Blocks of the cache that are not hot.
    cold: List,
    /// Blocks of the stack that are not in the cache, by the time at which they left it.
    gone: List,
}

#[derive(Clone, Copy)]
struct Block {
    state: State,
    on_stack: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// LIR.
    Hot,
    /// HIR, in the cache.
    Cold,
    /// HIR, only on the stack.
    Gone,
}

impl Lirs {
    fn new(capacity: usize) -> Self {
        Self {
            capacity,
            hot_max: capacity - (capacity / 100).max(1),
            hot: 0,
            table: Table::new(),
            stack: List::of_set(0),
            cold: List::of_set(1),
            gone: List::of_set(1),
        }
    }

    fn raise(&mut self, slot: Slot) {
        if self.table[slot].on_stack {
            self.table.touch(&mut self.stack, slot);
        } else {
            self.table[slot].on_stack = true;
            self.table.push(&mut self.stack, slot);
        }
    }

    /// Makes a block hot that is on the stack and in neither of the other lists. If there are then
    /// too many hot blocks, the oldest of them becomes cold.
    fn heat(&mut self, slot: Slot) {
        self.table[slot].state = State::Hot;
        self.raise(slot);
        self.hot += 1;
        self.prune();
        if self.hot > self.hot_max
            && let Some(oldest) = self.table.pop(&mut self.stack)
        {
            self.table[oldest] = Block { state: State::Cold, on_stack: false };
            self.table.push(&mut self.cold, oldest);
            self.hot -= 1;
            self.prune();
        }
    }

    /// Takes the blocks from the stack that were not used since the oldest hot block.
    fn prune(&mut self) {
        while let Some(oldest) = self.stack.oldest() {
            match self.table[oldest].state {
                State::Hot => return,
                State::Cold => {
                    self.table.unlink(&mut self.stack, oldest);
                    self.table[oldest].on_stack = false;
                }
                State::Gone => self.forget(oldest),
            }
        }
    }

    fn forget(&mut self, slot: Slot) {
        self.table.unlink(&mut self.gone, slot);
        self.table.unlink(&mut self.stack, slot);
        self.table.remove(slot);
    }

    fn evict(&mut self, changes: &mut Changes) {
        let Some(slot) = self.table.pop(&mut self.cold) else { return };
        changes.evicted.push(self.table.key(slot));
        if self.table[slot].on_stack {
            self.table[slot].state = State::Gone;
            self.table.push(&mut self.gone, slot);
        } else {
            self.table.remove(slot);
        }
    }

    fn miss(&mut self, found: Option<Slot>, access: &Access, changes: &mut Changes) {
        if let Some(slot) = found {
            self.table.unlink(&mut self.gone, slot);
        }
        if self.hot + self.cold.len() == self.capacity {
            self.evict(changes);
        }
        let slot =
            found.unwrap_or_else(|| self.table.insert(access.key, Block { state: State::Cold, on_stack: false }));
        if found.is_some() || self.hot < self.hot_max {
            self.heat(slot);
        } else {
            self.raise(slot);
            self.table.push(&mut self.cold, slot);
        }
        while self.stack.len() > 2 * self.capacity
            && let Some(longest) = self.gone.oldest()
        {
            self.forget(longest);
        }
        changes.admitted = true;
    }
}

impl Policy for Lirs {
    fn access(&mut self, access: &Access, changes: &mut Changes) -> bool {
        let found = self.table.find(access.key);
        let Some(slot) = found.filter(|slot| self.table[*slot].state != State::Gone) else {
            self.miss(found, access, changes);
            return false;
        };
        let Block { state, on_stack } = self.table[slot];
        match (state, on_stack) {
            (State::Hot, _) => {
                self.raise(slot);
                self.prune();
            }
            (_, true) => {
                self.table.unlink(&mut self.cold, slot);
                self.heat(slot);
            }
            (_, false) => {
                self.raise(slot);
                self.table.touch(&mut self.cold, slot);
            }
        }
        true
    }
}
