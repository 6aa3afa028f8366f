// SPDX-License-Identifier: MIT OR Apache-2.0
//! ARC keeps one LRU for blocks that were asked for once and one for those asked for more often. It
//! remembers as many keys that they lost.
//!
//! A key that comes back says which of the two is too small; the share of the first follows. It is
//! a fraction here, as in ZFS and libCacheSim; the paper doesn't say.

use flashfront_engine::policy::Spec;

use super::contract::{Access, Build, Changes, Policy};
use super::table::{List, Slot, Table};

pub(super) const SPEC: Spec<Build> = Spec {
    name: "arc",
    summary: "recency and frequency in shares that follow what was thrown out too early",
    source: "Megiddo and Modha, FAST 2003; ZFS",
    build: Build { new: |capacity| Box::new(Arc::new(capacity)), unit_blocks: 1, foresees: false, is_log: false },
};

struct Arc {
    capacity: usize,
    table: Table<Queue>,
    /// By [`Queue`]: T1, T2, B1 and B2 of the paper.
    lists: [List; 4],
    /// How many `Once` should have, `p` of the paper.
    once_target: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Queue {
    Once,
    Often,
    GoneOnce,
    GoneOften,
}
use Queue::{GoneOften, GoneOnce, Often, Once};

impl Arc {
    fn new(capacity: usize) -> Self {
        Self { capacity, table: Table::new(), lists: [List::new(); 4], once_target: 0.0 }
    }

    fn len(&self, place: Queue) -> usize {
        self.lists[place as usize].len()
    }

    fn forget_oldest(&mut self, place: Queue) -> Option<u64> {
        self.table.remove_oldest(&mut self.lists[place as usize])
    }

    fn move_to(&mut self, place: Queue, slot: Slot) {
        let from = std::mem::replace(&mut self.table[slot], place);
        self.table.unlink(&mut self.lists[from as usize], slot);
        self.table.push(&mut self.lists[place as usize], slot);
    }

    /// `REPLACE` of the paper: throws out one block and remembers it.
    fn replace(&mut self, asked: Option<Queue>, changes: &mut Changes) {
        let once = self.len(Once) as f64;
        let from_once = once > self.once_target || (asked == Some(GoneOften) && once == self.once_target);
        let (from, to) = if self.len(Once) > 0 && (from_once || self.len(Often) == 0) {
            (Once, GoneOnce)
        } else {
            (Often, GoneOften)
        };
        if let Some(slot) = self.lists[from as usize].oldest() {
            self.move_to(to, slot);
            changes.evicted.push(self.table.key(slot));
        }
    }

    /// Makes room for a block that nothing is known of.
    fn make_room(&mut self, changes: &mut Changes) {
        let all = self.table.len();
        if self.len(Once) + self.len(GoneOnce) == self.capacity {
            if self.len(Once) == self.capacity {
                changes.evicted.extend(self.forget_oldest(Once));
                return;
            }
            self.forget_oldest(GoneOnce);
        } else if all < self.capacity {
            return;
        } else if all == 2 * self.capacity {
            self.forget_oldest(GoneOften);
        }
        self.replace(None, changes);
    }
}

impl Policy for Arc {
    fn access(&mut self, access: &Access, changes: &mut Changes) -> bool {
        let Some(slot) = self.table.find(access.key) else {
            self.make_room(changes);
            let slot = self.table.insert(access.key, Once);
            self.table.push(&mut self.lists[Once as usize], slot);
            changes.admitted = true;
            return false;
        };
        let place = self.table[slot];
        let (once, often) = (self.len(GoneOnce) as f64, self.len(GoneOften) as f64);
        match place {
            Once | Often => {
                self.move_to(Often, slot);
                return true;
            }
            GoneOnce => self.once_target = (self.once_target + (often / once).max(1.0)).min(self.capacity as f64),
            GoneOften => self.once_target = (self.once_target - (once / often).max(1.0)).max(0.0),
        }
        self.replace(Some(place), changes);
        self.move_to(Often, slot);
        changes.admitted = true;
        false
    }
}
