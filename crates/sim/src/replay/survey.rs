// SPDX-License-Identifier: MIT OR Apache-2.0
//! What must be known of a trace before it is replayed: how many blocks it touches, and, for a policy that foresees, when each
//! access is repeated.

use std::sync::Arc;

use hashbrown::HashMap;

use super::blocks::{Blocks, SourceError};

/// What a first reading found.
#[derive(Clone, Debug, Default)]
pub(super) struct Survey {
    pub(super) unique_blocks: u64,
    /// For each access the number of the one that asks for the same unit next; empty unless asked for. 8 bytes an access.
    pub(super) next: Arc<Vec<u64>>,
}

impl Survey {
    pub(super) fn of(mut blocks: Blocks, foresee: bool) -> Result<Self, SourceError> {
        let (mut unique, mut last) = (Unique::default(), HashMap::new());
        let mut next = Vec::new();
        loop {
            let batch = blocks.batch()?;
            if batch.is_empty() {
                break;
            }
            for access in batch {
                unique.add(access.key);
                if foresee {
                    let number = next.len() as u64;
                    if let Some(before) = last.insert(access.key, number) {
                        next[before as usize] = number;
                    }
                    next.push(u64::MAX);
                }
            }
        }
        Ok(Self { unique_blocks: unique.blocks(), next: Arc::new(next) })
    }
}

/// Blocks in a leaf: 4 KiB of bits.
const LEAF_BITS: u32 = 15;

/// A set of blocks as bits, in leaves that exist where blocks do: one bit a block for dense traces, at most 4 KiB for one that is
/// far from all others.
#[derive(Default)]
pub(super) struct Unique {
    leaves: HashMap<u64, Box<[u64; 1 << (LEAF_BITS - 6)]>>,
    blocks: u64,
}

impl Unique {
    pub(super) fn add(&mut self, key: u64) {
        let leaf = self.leaves.entry(key >> LEAF_BITS).or_insert_with(|| Box::new([0; _]));
        let (word, bit) = (key as usize >> 6 & ((1 << (LEAF_BITS - 6)) - 1), 1_u64 << (key & 63));
        self.blocks += u64::from(leaf[word] & bit == 0);
        leaf[word] |= bit;
    }

    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::Unique;

    #[test]
    fn each_block_counts_once() {
        let mut unique = Unique::default();
        for key in [0, 1, 63, 64, 32_767, 32_768, 1 << 58, 1, 64, 1 << 58] {
            unique.add(key);
        }
        assert_eq!(unique.blocks(), 7);
    }
}
