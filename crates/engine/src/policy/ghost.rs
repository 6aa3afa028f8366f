// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ghosts: what is remembered of blocks that are not in the cache. A ghost tells where the block
//! left the cache, and how often it was seen.
//!
//! A ghost takes 16 bits: 11 of fingerprint, 2 of where it was, 3 of count. Eight ghosts are a set,
//! in the order of arrival, so that a set is a small FIFO. A look-up in a full set takes another
//! block for the one once in 256 times. That costs at most one needless fill.

use alloc::boxed::Box;
use alloc::vec;

const WAYS: usize = 8;
const ENTRY_BITS: u32 = 16;
const COUNT_BITS: u32 = 3;
const FROM_BITS: u32 = 2;
pub(super) const COUNT_MAX: u8 = (1 << COUNT_BITS) - 1;

/// Where a block was before it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// In the window, or nowhere: it was not admitted.
    Declined,
    /// In the zone of writes.
    Writes,
    /// In the main zone.
    Main,
    /// The block was in the main zone, or was to be there. That was not the gate's doing: the gate
    /// was held open, or there was no room, or no budget.
    Refused,
}

/// What is remembered of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) from: From,
    /// How often it was seen, up to [`COUNT_MAX`].
    pub(super) count: u8,
}

/// What is remembered, of a lane.
pub(super) struct Ghost {
    /// The youngest entry of a set in the lowest bits.
    sets: Box<[[u64; 2]]>,
}

/// Mixes a key: SplitMix64's finalizer (Steele et al., OOPSLA 2014).
pub(crate) const fn mix(key: u64) -> u64 {
    let x = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Ghost {
    pub(super) fn new(blocks: u64) -> Self {
        Self { sets: vec![[0; 2]; blocks.div_ceil(WAYS as u64).max(1) as usize].into_boxed_slice() }
    }

    /// High bits choose the set, low bits are the fingerprint; an entry of 0 is none.
    fn place(&self, key: u64) -> (usize, u16) {
        let x = mix(key);
        let set = ((u128::from(x) * self.sets.len() as u128) >> 64) as usize;
        (set, (x as u16 >> (COUNT_BITS + FROM_BITS)).max(1))
    }

    /// A word of the set that a block's entry is in.
    pub(super) fn looks_at(&self, key: u64) -> &u64 {
        &self.sets[self.place(key).0][0]
    }

    fn set(&self, set: usize) -> u128 {
        let [low, high] = self.sets[set];
        u128::from(low) | u128::from(high) << 64
    }

    fn put_set(&mut self, set: usize, entries: u128) {
        self.sets[set] = [entries as u64, (entries >> 64) as u64];
    }

    /// Forgets a block; returns what was remembered of it.
    pub(super) fn take(&mut self, key: u64) -> Option<Seen> {
        let (set, fingerprint) = self.place(key);
        let entries = self.set(set);
        let entry = |way| (entries >> (way * ENTRY_BITS)) as u16;
        let way = (0..WAYS as u32).find(|way| entry(*way) >> (COUNT_BITS + FROM_BITS) == fingerprint)?;
        let younger = (1 << (way * ENTRY_BITS)) - 1;
        self.put_set(set, entries & younger | entries >> ENTRY_BITS & !younger);
        let from = match entry(way) >> COUNT_BITS & 3 {
            0 => From::Declined,
            1 => From::Writes,
            2 => From::Main,
            _ => From::Refused,
        };
        Some(Seen { from, count: entry(way) as u8 & COUNT_MAX })
    }

    /// Remembers a block, and forgets the oldest of its set if that is full.
    pub(super) fn put(&mut self, key: u64, seen: Seen) {
        let (set, fingerprint) = self.place(key);
        let count = u16::from(seen.count.min(COUNT_MAX));
        let entry = fingerprint << (COUNT_BITS + FROM_BITS) | (seen.from as u16) << COUNT_BITS | count;
        self.put_set(set, self.set(set) << ENTRY_BITS | u128::from(entry));
    }

    pub(super) fn bytes(&self) -> u64 {
        size_of_val(&*self.sets) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_a_fifo_of_eight_from_which_any_can_be_taken() {
        let seen = |key: u64| Seen {
            from: [From::Declined, From::Writes, From::Main][key as usize % 3],
            count: key as u8 % 8,
        };
        for taken in 0..8 {
            let mut ghost = Ghost::new(8);
            (0..9).for_each(|key| ghost.put(key, seen(key)));
            assert_eq!(ghost.take(0), None, "the oldest of nine is forgotten");
            assert_eq!(ghost.take(1 + taken), Some(seen(1 + taken)));
            assert_eq!(ghost.take(1 + taken), None);
            (1..9)
                .filter(|key| *key != 1 + taken)
                .for_each(|key| assert_eq!(ghost.take(key), Some(seen(key)), "{key}"));
            assert_eq!(ghost.bytes(), 16);
        }
    }
}
