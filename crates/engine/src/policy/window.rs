// SPDX-License-Identifier: MIT OR Apache-2.0
//! The window: blocks that a read missed and that were not admitted wait here, in RAM, for a second look.
//!
//! A block that comes again soon is a hit without having been written to flash, and a block that is
//! only asked for in quick succession never is (the correlated references of 2Q, Johnson and Shasha 1994; W-TinyLFU's
//! window). A FIFO of places; whoever holds the bytes keeps them by place. Size: 1/32 of the cache, at most 16 MiB:
//! on twelve traces a tenth was no better.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::types::BLOCK_BYTES;

const CACHE_PART: u64 = 32;

#[derive(Clone, Copy)]
struct Waiting {
    key: u64,
    seen: u8,
}

/// Who waits where, of a lane.
#[derive(Default)]
pub struct Window {
    capacity: usize,
    places: Vec<Option<Waiting>>,
    at: BTreeMap<u64, u32>,
    hand: usize,
}

impl Window {
    /// The most blocks that wait in the windows of all lanes: 16 MiB.
    pub const BLOCKS_MAX: u64 = 4096;

    /// The same in bytes.
    pub const BYTES_MAX: u64 = Self::BLOCKS_MAX * BLOCK_BYTES;

    /// A window for a lane of this many blocks, one of `lanes`.
    #[must_use]
    pub fn new(cache_blocks: u64, lanes: u64) -> Self {
        Self::of((cache_blocks / CACHE_PART).min(Self::BLOCKS_MAX / lanes.max(1)) as usize)
    }

    /// A window of that many blocks.
    pub(crate) fn of(capacity: usize) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// How many blocks fit.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// The place of a block.
    #[must_use]
    pub fn find(&self, key: u64) -> Option<u32> {
        self.at.get(&key).copied()
    }

    /// A block was read; `count` makes the new count of the old one.
    pub fn touch(&mut self, place: u32, count: impl FnOnce(u8) -> u8) {
        if let Some(waiting) = &mut self.places[place as usize] {
            waiting.seen = count(waiting.seen);
        }
    }

    /// Puts a block in; returns its place, and who had to leave for it. `None`: no place at all.
    pub fn put(&mut self, key: u64, seen: u8) -> Option<(u32, Option<(u64, u8)>)> {
        if self.capacity == 0 {
            return None;
        }
        if self.places.len() < self.capacity {
            self.places.push(None);
            self.hand = self.places.len() - 1;
        }
        let place = self.hand;
        self.hand = (place + 1) % self.capacity;
        let left = self.places[place].replace(Waiting { key, seen });
        if let Some(left) = left {
            self.at.remove(&left.key);
        }
        self.at.insert(key, place as u32);
        Some((place as u32, left.map(|left| (left.key, left.seen))))
    }

    /// Forgets the blocks of a range: their bytes are old, or they are in the cache now.
    pub fn forget(&mut self, keys: core::ops::Range<u64>) {
        while let Some((&key, &place)) = self.at.range(keys.clone()).next() {
            self.at.remove(&key);
            self.places[place as usize] = None;
        }
    }

    /// All who wait.
    pub fn keys(&self) -> impl Iterator<Item = u64> + '_ {
        self.at.keys().copied()
    }

    /// Memory of the table; a tree's node of 11 is half full at least.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.places.capacity() * size_of::<Option<Waiting>>() + self.at.len() * 32) as u64
    }
}
