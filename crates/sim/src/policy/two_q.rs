// SPDX-License-Identifier: MIT OR Apache-2.0
//! 2Q lets newcomers wait in a FIFO of a quarter of the cache. The keys that leave it are
//! remembered, half a cache of them. A block that is asked for while it is remembered gets into an
//! LRU of the rest.
//!
//! The full version of the paper, with its recommended sizes. A hit in the FIFO changes nothing
//! there.

use flashfront_engine::policy::Spec;

use super::contract::{Access, Build, Changes, Policy};
use super::table::{List, Table};

pub(super) const SPEC: Spec<Build> = Spec {
    name: "2q",
    summary: "a FIFO for newcomers, an LRU for those who are asked for after they left it",
    source: "Johnson and Shasha, VLDB 1994",
    build: Build { new: |capacity| Box::new(TwoQ::new(capacity)), unit_blocks: 1, foresees: false, is_log: false },
};

struct TwoQ {
    capacity: usize,
    incoming_max: usize,
    gone_max: usize,
    table: Table<Queue>,
    incoming: List,
    /// Keys of what left `incoming` lately.
    gone: List,
    main: List,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Queue {
    Incoming,
    Gone,
    Main,
}

impl TwoQ {
    fn new(capacity: usize) -> Self {
        Self {
            capacity,
            incoming_max: capacity / 4,
            gone_max: capacity / 2,
            table: Table::new(),
            incoming: List::new(),
            gone: List::new(),
            main: List::new(),
        }
    }

    fn evict(&mut self) -> Option<u64> {
        if self.incoming.len() <= self.incoming_max {
            return self.table.remove_oldest(&mut self.main);
        }
        let slot = self.table.pop(&mut self.incoming)?;
        if self.gone_max == 0 {
            return Some(self.table.remove(slot));
        }
        if self.gone.len() == self.gone_max {
            self.table.remove_oldest(&mut self.gone);
        }
        self.table[slot] = Queue::Gone;
        self.table.push(&mut self.gone, slot);
        Some(self.table.key(slot))
    }
}

impl Policy for TwoQ {
    fn access(&mut self, access: &Access, changes: &mut Changes) -> bool {
        let mut place = Queue::Incoming;
        if let Some(slot) = self.table.find(access.key) {
            match self.table[slot] {
                Queue::Incoming => return true,
                Queue::Main => {
                    self.table.touch(&mut self.main, slot);
                    return true;
                }
                Queue::Gone => {
                    self.table.unlink(&mut self.gone, slot);
                    self.table.remove(slot);
                    place = Queue::Main;
                }
            }
        }
        if self.incoming.len() + self.main.len() == self.capacity {
            changes.evicted.extend(self.evict());
        }
        let slot = self.table.insert(access.key, place);
        self.table.push(if place == Queue::Main { &mut self.main } else { &mut self.incoming }, slot);
        changes.admitted = true;
        false
    }
}
