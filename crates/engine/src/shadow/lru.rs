// SPDX-License-Identifier: MIT OR Apache-2.0
//! An LRU of keys, for the duel. It holds what a cache would hold that takes all blocks, and drops
//! the least recently used block.
//!
//! Slots lie in a list through two tables, and are found by [`Chains`]. A key takes 36 bytes.
//! Memory is taken as the LRU fills.

use alloc::vec::Vec;

use crate::organ::chains::{Chains, NOBODY, grow};

/// The slot that is both ends of the list; it holds no key.
const ENDS: u32 = 0;

pub(super) struct Lru {
    capacity: usize,
    slots: Chains,
    keys: Vec<u64>,
    /// When each key came.
    since: Vec<u64>,
    older: Vec<u32>,
    newer: Vec<u32>,
    free: Vec<u32>,
}

impl Lru {
    /// An empty LRU with room for `capacity` keys, at least one.
    pub(super) fn new(capacity: usize) -> Self {
        let (older, newer) = (alloc::vec![ENDS], alloc::vec![ENDS]);
        let capacity = capacity.max(1);
        Self {
            capacity,
            slots: Chains::default(),
            keys: alloc::vec![NOBODY],
            since: alloc::vec![0],
            older,
            newer,
            free: Vec::new(),
        }
    }

    /// Notes that a key is asked for at the moment `now`. Returns since when it was there, if it
    /// was. It is there now.
    pub(super) fn touch(&mut self, key: u64, now: u64) -> Option<u64> {
        let found = self.slots.find(key, &self.keys);
        let slot = match found {
            Some(slot) => {
                self.unlink(slot);
                slot
            }
            None => {
                let slot = self.take_slot();
                (self.keys[slot as usize], self.since[slot as usize]) = (key, now);
                self.slots.insert(slot, &self.keys);
                slot
            }
        };
        let newest = core::mem::replace(&mut self.older[ENDS as usize], slot);
        (self.older[slot as usize], self.newer[slot as usize]) = (newest, ENDS);
        self.newer[newest as usize] = slot;
        found.map(|slot| self.since[slot as usize])
    }

    /// Forgets a key.
    pub(super) fn forget(&mut self, key: u64) {
        if let Some(slot) = self.slots.find(key, &self.keys) {
            self.drop_slot(slot);
            self.free.push(slot);
        }
    }

    /// Takes a slot that is in no list: a free or a new one, or else the oldest's.
    fn take_slot(&mut self) -> u32 {
        if let Some(slot) = self.free.pop() {
            return slot;
        }
        if self.keys.len() > self.capacity {
            let oldest = self.newer[ENDS as usize];
            self.drop_slot(oldest);
            return oldest;
        }
        let (slots, most) = (self.keys.len() + 1, self.capacity + 1);
        grow(&mut self.keys, slots, most, NOBODY);
        grow(&mut self.since, slots, most, 0);
        grow(&mut self.older, slots, most, ENDS);
        grow(&mut self.newer, slots, most, ENDS);
        self.slots.grow(slots, most, &self.keys);
        (slots - 1) as u32
    }

    fn drop_slot(&mut self, slot: u32) {
        self.slots.remove(slot, &self.keys);
        self.keys[slot as usize] = NOBODY;
        self.unlink(slot);
    }

    fn unlink(&mut self, slot: u32) {
        let (older, newer) = (self.older[slot as usize], self.newer[slot as usize]);
        self.newer[older as usize] = newer;
        self.older[newer as usize] = older;
    }

    pub(super) fn bytes(&self) -> u64 {
        let links = (self.older.capacity() + self.newer.capacity() + self.free.capacity()) * size_of::<u32>();
        let keys = (self.keys.capacity() + self.since.capacity()) * size_of::<u64>();
        (keys + links) as u64 + self.slots.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_equals_a_list_in_order_of_use() {
        let (mut lru, mut list) = (Lru::new(50), Vec::new());
        let mut random = 1_u64;
        for step in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = random >> 57;
            let since = list.iter().find(|(it, _)| *it == key).map(|(_, since)| *since);
            list.retain(|(it, _)| *it != key);
            if step % 10 == 0 {
                lru.forget(key);
                continue;
            }
            assert_eq!(lru.touch(key, step), since, "step {step}");
            list.push((key, since.unwrap_or(step)));
            if list.len() > 50 {
                list.remove(0);
            }
        }
        assert!(lru.bytes() < 50 * 48 + 1000, "{}", lru.bytes());
    }

    #[test]
    fn it_may_have_room_for_one() {
        let mut lru = Lru::new(0);
        assert_eq!([1, 1, 2, 1].map(|key| lru.touch(key, key)), [None, Some(1), None, None]);
    }
}
