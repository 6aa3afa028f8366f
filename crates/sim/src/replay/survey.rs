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
    /// For each access the number of the one that asks for the same unit next; empty unless asked for.
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

/// A set of blocks as bits, 64 of them where there is one: 2 bits a block for dense traces, about 20 bytes for one that is far from
/// all others.
#[derive(Default)]
pub(super) struct Unique {
    words: HashMap<u64, u64>,
    blocks: u64,
}

impl Unique {
    pub(super) fn add(&mut self, key: u64) {
        let (word, bit) = (self.words.entry(key >> 6).or_default(), 1_u64 << (key & 63));
        self.blocks += u64::from(*word & bit == 0);
        *word |= bit;
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
        for key in [0, 1, 63, 64, 127, 128, 1 << 58, 1, 64, 1 << 58] {
            unique.add(key);
        }
        assert_eq!(unique.blocks(), 7);
    }
}
