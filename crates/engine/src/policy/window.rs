// SPDX-License-Identifier: MIT OR Apache-2.0
//! The window: blocks that a read missed and that were not admitted. They wait here, in RAM, for a
//! second look.
//!
//! A block that comes again soon is a hit without having been written to flash. A block that is
//! only asked for in quick succession is never written. (Such are the correlated references of 2Q,
//! Johnson and Shasha 1994, and W-TinyLFU's window.)
//!
//! The window is a FIFO of places; the caller holds the bytes by place. Each write of a block asks
//! for it here, and each miss several times. So a block is found by chains, not in a tree: replays
//! of two traces take 17 and 21 % less time. The size is 1/32 of the cache, at most 16 MiB. On
//! twelve traces a tenth was no better.
//!
//! Neighbours of a miss came along unasked. They wait here, too, where they cost no flash. A
//! neighbour that is asked for is treated as a block that comes for the first time. Else it leaves
//! as if it had never been here. The number that is asked for decides whether more shall come.
//!
//! These are means of the twelve traces: hits without and behind a page cache of 16 MiB. The last
//! column has the blocks read from the origin for each access in both cases.
//!
//! | neighbours come | hits without / behind a page cache | blocks read per access |
//! |---|---|---|
//! | never | 38.6 / 19.0 % | 0.43, 0.62 |
//! | while one in eight is asked for | 44.7 / 35.1 % | 0.61, 0.92 |
//! | the same, and one unit in 128 comes in any case instead of 32 | 43.6 / 33.6 % | 0.54, 0.83 |
//! | prototype, kinder to itself: one in two | 44.3 / 30.9 % | 0.51, 0.73 |
//! | prototype: one in five | 47.4 / 35.0 % | 0.55, 0.79 |
//! | prototype: one in ten | 49.7 / 39.8 % | 0.67, 1.02 |

use alloc::vec::Vec;
use core::ops::Range;

use super::{Policy, mix};
use crate::fact::types::BLOCK_BYTES;
use crate::organ::chains::{Chains, NOBODY, grow};

const CACHE_PART: u64 = 32;
/// Neighbours come while one in this many is asked for. For a disk a hundredth would pay: 60 KiB
/// take a twentieth of the time that it needs to get to a block. For a network volume of 1 ms and
/// 250 MB/s a sixtieth would pay. But neighbours push others out, and somebody may pay for bytes.
const ASKED_FOR_PART: u64 = 8;
/// The fewest neighbours for a judgement, and the number from which on older ones count half.
const JUDGED_MIN: u64 = 256;
const JUDGED_MAX: u64 = 2048;
/// Neighbours of one unit in this many come in any case, so that it is known when they would pay.
const CONTROL: u64 = 32;
/// The count of a neighbour that nobody has asked for.
const UNASKED: u8 = 0;

/// The window of a lane: which block waits in which place.
#[derive(Default)]
pub struct Window {
    capacity: usize,
    /// The block that waits in each place, and how often it was seen.
    keys: Vec<u64>,
    seen: Vec<u8>,
    chains: Chains,
    hand: usize,
    /// Neighbours whose time here is over, and how many of them were asked for. Both numbers are
    /// halved from time to time.
    judged: u64,
    asked_for: u64,
}

impl Window {
    /// The most blocks that wait in the windows of all lanes: 16 MiB.
    pub const BLOCKS_MAX: u64 = 4096;

    /// The most bytes in the windows of all lanes.
    pub const BYTES_MAX: u64 = Self::BLOCKS_MAX * BLOCK_BYTES;

    /// A window for a lane of this many blocks, one of `lanes`.
    #[must_use]
    pub fn new(cache_blocks: u64, lanes: u64) -> Self {
        Self::of((cache_blocks / CACHE_PART).min(Self::BLOCKS_MAX / lanes.max(1)) as usize)
    }

    /// A window of `capacity` blocks.
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
        self.chains.find(key, &self.keys)
    }

    /// Notes how often a block was seen.
    pub(crate) fn stays(&mut self, place: u32, seen: u8) {
        self.seen[place as usize] = seen;
    }

    /// Notes that a block is read. Returns whether it came along and is asked for for the first
    /// time. Then the policy is to be asked about it. Until then it counts as a block that was not
    /// declined.
    pub(crate) fn read(&mut self, place: u32, policy: &mut dyn Policy) -> bool {
        let seen = &mut self.seen[place as usize];
        let first = *seen == UNASKED;
        *seen = if first { policy.refused(1) } else { policy.seen_waiting(*seen) };
        if first {
            self.judge(true);
        }
        first
    }

    fn judge(&mut self, asked_for: bool) {
        self.judged += 1;
        self.asked_for += u64::from(asked_for);
        if self.judged >= JUDGED_MAX {
            (self.judged, self.asked_for) = (self.judged / 2, self.asked_for / 2);
        }
    }

    /// Whether neighbours from that unit should come.
    pub(crate) fn wants_neighbours(&self, unit: u64) -> bool {
        let pays = self.judged < JUDGED_MIN || self.asked_for * ASKED_FOR_PART >= self.judged;
        // These bits don't choose what the other users of this hash look at.
        self.capacity > 0 && (pays || (mix(unit) >> 20).is_multiple_of(CONTROL))
    }

    /// Puts a neighbour in, like [`Window::put`].
    pub(crate) fn put_neighbour(&mut self, key: u64) -> Option<(u32, Option<(u64, u8)>)> {
        self.place(key, UNASKED)
    }

    /// Puts a block in that was seen at least once. Returns its place, and the block that had to
    /// leave for it, if a client had asked for that block. `None`: there is no place at all.
    pub fn put(&mut self, key: u64, seen: u8) -> Option<(u32, Option<(u64, u8)>)> {
        debug_assert_ne!(seen, UNASKED, "bug: block {key} was asked for");
        self.place(key, seen)
    }

    fn place(&mut self, key: u64, seen: u8) -> Option<(u32, Option<(u64, u8)>)> {
        let place = self.next_place()?;
        let left = self.leave(place);
        (self.keys[place], self.seen[place]) = (key, seen);
        self.chains.insert(place as u32, &self.keys);
        Some((place as u32, left))
    }

    /// Makes room for `others` unknown blocks: the blocks in their places leave.
    pub(crate) fn others_come(&mut self, others: u64, policy: &mut dyn Policy) {
        for _ in 0..others.min(self.capacity as u64) {
            let Some(place) = self.next_place() else { return };
            if let Some((key, seen)) = self.leave(place) {
                policy.left_window(key, seen);
            }
        }
    }

    fn next_place(&mut self) -> Option<usize> {
        if self.capacity == 0 {
            return None;
        }
        if self.keys.len() < self.capacity {
            self.hand = self.keys.len();
            grow(&mut self.keys, self.hand + 1, self.capacity, NOBODY);
            grow(&mut self.seen, self.hand + 1, self.capacity, UNASKED);
            self.chains.grow(self.hand + 1, self.capacity, &self.keys);
        }
        let place = self.hand;
        self.hand = (place + 1) % self.capacity;
        Some(place)
    }

    /// Empties a place. Returns the block that had to leave, if a client had asked for it.
    fn leave(&mut self, place: usize) -> Option<(u64, u8)> {
        let (key, seen) = (self.keys[place], self.seen[place]);
        if key == NOBODY {
            return None;
        }
        self.chains.remove(place as u32, &self.keys);
        self.keys[place] = NOBODY;
        if seen == UNASKED {
            self.judge(false);
            return None;
        }
        Some((key, seen))
    }

    /// Forgets the blocks of a range: their bytes are old, or they are in the cache now. A
    /// neighbour among them was of no use, as to a client that only writes.
    pub fn forget(&mut self, keys: Range<u64>) {
        if keys.end.saturating_sub(keys.start) > self.keys.len() as u64 {
            // If a range is longer than the window, the waiting blocks are looked at instead.
            for place in 0..self.keys.len() {
                if keys.contains(&self.keys[place]) {
                    self.leave(place);
                }
            }
            return;
        }
        for key in keys {
            if let Some(place) = self.find(key) {
                self.leave(place as usize);
            }
        }
    }

    /// All blocks that wait.
    pub fn keys(&self) -> impl Iterator<Item = u64> + '_ {
        self.keys.iter().copied().filter(|key| *key != NOBODY)
    }

    /// Memory of the tables.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.keys.capacity() * size_of::<u64>() + self.seen.capacity()) as u64 + self.chains.bytes()
    }
}
