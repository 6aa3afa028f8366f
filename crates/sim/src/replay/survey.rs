// SPDX-License-Identifier: MIT OR Apache-2.0
//! Surveys a trace before it is replayed: how many blocks it touches and, for a policy that
//! foresees, when each access is repeated.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashMap;

use super::blocks::Blocks;
use super::error::SourceError;
use super::progress::Progress;

/// The findings of a first reading.
#[derive(Clone, Debug, Default)]
pub(super) struct Survey {
    pub(super) unique_blocks: u64,
    /// For each access, the number of the access that asks for the same block next. Empty unless
    /// asked for.
    pub(super) next: Arc<Vec<u64>>,
}

impl Survey {
    pub(super) fn of(mut blocks: Blocks, foresee: bool, progress: &Progress) -> Result<Self, SourceError> {
        let (mut unique, mut last) = (Unique::default(), HashMap::new());
        let mut next = Vec::new();
        loop {
            let batch = blocks.batch()?;
            if batch.is_empty() {
                break;
            }
            for access in batch {
                // A policy that foresees needs a table of all blocks anyway.
                if foresee {
                    let number = next.len() as u64;
                    if let Some(before) = last.insert(access.key, number) {
                        next[before as usize] = number;
                    }
                    next.push(u64::MAX);
                } else {
                    unique.add(access.key);
                }
            }
            progress.foresight_bytes.store((next.len() * 8 + last.allocation_size()) as u64, Ordering::Relaxed);
        }
        let unique_blocks = if foresee { last.len() as u64 } else { unique.blocks() };
        Ok(Self { unique_blocks, next: Arc::new(next) })
    }
}

/// A set of blocks as bits, stored as the words of 64 bits that aren't empty. A dense trace takes 2
/// bits a block. A block that is far from all others takes 16 bytes and some.
///
/// A hash table of the words alone took up to 58 bytes a block. It is half empty after it has
/// grown, and while it grows there are two.
#[derive(Default)]
pub(crate) struct Unique {
    /// The number and the bits of each word, in order.
    words: Vec<(u64, u64)>,
    /// Words that were touched since `words` were put in order.
    fresh: HashMap<u64, u64>,
}

/// Words that are gathered before they are put in order, for the first time. Later an eighth of the
/// words is gathered. So all words are passed once for each eighth of them.
const FRESH_WORDS: usize = 1 << 16;

impl Unique {
    pub(crate) fn add(&mut self, key: u64) {
        *self.fresh.entry(key >> 6).or_default() |= 1_u64 << (key & 63);
        if self.fresh.len() >= FRESH_WORDS.max(self.words.len() / 8) {
            self.merge();
        }
    }

    fn merge(&mut self) {
        let mut fresh: Vec<(u64, u64)> = self.fresh.drain().collect();
        fresh.sort_unstable();
        let mut at = 0;
        fresh.retain(|&(word, bits)| {
            at += self.words[at..].iter().take_while(|it| it.0 < word).count();
            match self.words.get_mut(at) {
                Some(it) if it.0 == word => {
                    it.1 |= bits;
                    false
                }
                _ => true,
            }
        });
        // The merge runs from the end, so that it needs no second list.
        let (mut from, mut to) = (self.words.len(), self.words.len() + fresh.len());
        self.words.reserve_exact(fresh.len());
        self.words.resize(to, (0, 0));
        while let Some(&last) = fresh.last() {
            to -= 1;
            if from > 0 && self.words[from - 1].0 > last.0 {
                from -= 1;
                self.words[to] = self.words[from];
            } else {
                self.words[to] = last;
                fresh.pop();
            }
        }
    }

    pub(crate) fn blocks(mut self) -> u64 {
        self.merge();
        self.words.iter().map(|it| u64::from(it.1.count_ones())).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use flashfront_device::Rng;

    use super::{FRESH_WORDS, Unique};

    #[test]
    fn each_block_counts_once() {
        let mut unique = Unique::default();
        for key in [0, 1, 63, 64, 127, 128, 1 << 58, 1, 64, 1 << 58] {
            unique.add(key);
        }
        assert_eq!(unique.blocks(), 7);
    }

    #[test]
    fn scattered_blocks_take_little_more_than_their_words() {
        let (mut unique, mut all, mut rng) = (Unique::default(), HashSet::new(), Rng::new(1));
        for nth in 0..1_500_000 {
            // Some keys come again at once, some much later.
            if nth == 1_000_000 {
                rng = Rng::new(1);
            }
            let key = rng.next_u64();
            for key in [key, key, key ^ 1] {
                unique.add(key);
                all.insert(key);
            }
        }
        let bytes = unique.words.capacity() * 16 + unique.fresh.allocation_size();
        assert!(unique.words.len() > 8 * FRESH_WORDS && bytes < unique.words.len() * 24, "{bytes}");
        assert_eq!(unique.blocks(), all.len() as u64);
    }
}
