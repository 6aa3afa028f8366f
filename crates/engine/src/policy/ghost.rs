// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is remembered of blocks that are not in the cache: where they left it, and how often they were seen.
//!
//! 16 bits a block: 11 of fingerprint, 2 of where it was, 3 of count. Sets of eight in the order of arrival, so that a set
//! is a small FIFO. A look-up in a full set takes another block for the one once in 256 times, which costs at most one
//! needless fill.

use alloc::boxed::Box;
use alloc::vec;

const WAYS: usize = 8;
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
    /// In the window, though it was to be admitted: there was no room, or no budget.
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
    sets: Box<[[u16; WAYS]]>,
}

/// Mixes a key: SplitMix64's finalizer (Steele et al., OOPSLA 2014).
pub(crate) const fn mix(key: u64) -> u64 {
    let x = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Ghost {
    pub(super) fn new(blocks: u64) -> Self {
        Self { sets: vec![[0; WAYS]; blocks.div_ceil(WAYS as u64).max(1) as usize].into_boxed_slice() }
    }

    /// High bits choose the set, low bits are the fingerprint; an entry of 0 is none.
    fn place(&self, key: u64) -> (usize, u16) {
        let x = mix(key);
        let set = ((u128::from(x) * self.sets.len() as u128) >> 64) as usize;
        (set, (x as u16 >> (COUNT_BITS + FROM_BITS)).max(1))
    }

    /// Forgets a block; returns what was remembered of it.
    pub(super) fn take(&mut self, key: u64) -> Option<Seen> {
        let (set, fingerprint) = self.place(key);
        let ways = &mut self.sets[set];
        let at = ways.iter().position(|entry| entry >> (COUNT_BITS + FROM_BITS) == fingerprint)?;
        let entry = ways[at];
        ways.copy_within(at + 1.., at);
        ways[WAYS - 1] = 0;
        let from = match entry >> COUNT_BITS & 3 {
            0 => From::Declined,
            1 => From::Writes,
            2 => From::Main,
            _ => From::Refused,
        };
        Some(Seen { from, count: entry as u8 & COUNT_MAX })
    }

    /// Remembers a block, and forgets the oldest of its set if that is full.
    pub(super) fn put(&mut self, key: u64, seen: Seen) {
        let (set, fingerprint) = self.place(key);
        let ways = &mut self.sets[set];
        ways.copy_within(0..WAYS - 1, 1);
        let count = u16::from(seen.count.min(COUNT_MAX));
        ways[0] = fingerprint << (COUNT_BITS + FROM_BITS) | (seen.from as u16) << COUNT_BITS | count;
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.sets.len() * WAYS * 2) as u64
    }
}
