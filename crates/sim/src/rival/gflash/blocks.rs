// SPDX-License-Identifier: MIT OR Apache-2.0
//! A set of blocks finds the next one from a place on in a few steps. It is a bitmap, with bitmaps
//! that say which of its words hold any.
//!
//! Flat, so that a disk of 4 TB costs 122 MB of address space, and RAM only where blocks are.

/// A set of numbers below a bound.
pub(super) struct Blocks {
    /// A bit for each number; then a bit for each word of the level below.
    levels: Vec<Vec<u64>>,
    bound: u64,
    count: u64,
}

impl Blocks {
    pub(super) fn new(bound: u64) -> Self {
        let mut levels = Vec::new();
        let mut words = bound.max(1).div_ceil(64);
        levels.push(vec![0; words as usize]);
        while words > 1 {
            words = words.div_ceil(64);
            levels.push(vec![0; words as usize]);
        }
        Self { levels, bound, count: 0 }
    }

    pub(super) const fn bound(&self) -> u64 {
        self.bound
    }

    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn contains(&self, block: u64) -> bool {
        self.levels[0][(block / 64) as usize] >> (block % 64) & 1 == 1
    }

    /// Inserts a block. Returns whether it was not there before.
    pub(super) fn insert(&mut self, block: u64) -> bool {
        if self.contains(block) {
            return false;
        }
        self.count += 1;
        let mut at = block;
        for level in &mut self.levels {
            let word = &mut level[(at / 64) as usize];
            let had_any = *word != 0;
            *word |= 1 << (at % 64);
            if had_any {
                break;
            }
            at /= 64;
        }
        true
    }

    /// Removes a block. Returns whether it was there.
    pub(super) fn remove(&mut self, block: u64) -> bool {
        if !self.contains(block) {
            return false;
        }
        self.count -= 1;
        let mut at = block;
        for level in &mut self.levels {
            let word = &mut level[(at / 64) as usize];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                break;
            }
            at /= 64;
        }
        true
    }

    /// Finds the first block at or after a place.
    pub(super) fn next(&self, from: u64) -> Option<u64> {
        let mut at = from;
        // Up until a word has something at or after the place, ...
        for (height, level) in self.levels.iter().enumerate() {
            let word = level.get((at / 64) as usize)?;
            let rest = word >> (at % 64) << (at % 64);
            if rest != 0 {
                let mut found = at / 64 * 64 + u64::from(rest.trailing_zeros());
                // ... and down again to its first.
                for level in self.levels[..height].iter().rev() {
                    found = found * 64 + u64::from(level[found as usize].trailing_zeros());
                }
                return Some(found);
            }
            at = at / 64 + 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use flashfront_device::Rng;

    use super::*;

    #[test]
    fn it_is_a_set() {
        for bound in [1, 64, 65, 5000, 300_000] {
            let (mut ours, mut theirs) = (Blocks::new(bound), BTreeSet::new());
            let mut rng = Rng::new(bound);
            for _ in 0..20_000 {
                let block = rng.below(bound);
                if rng.below(5) < 2 {
                    assert_eq!(ours.insert(block), theirs.insert(block));
                } else {
                    assert_eq!(ours.remove(block), theirs.remove(&block));
                }
                let from = rng.below(bound);
                assert_eq!(ours.next(from), theirs.range(from..).next().copied());
                assert_eq!((ours.contains(from), ours.count()), (theirs.contains(&from), theirs.len() as u64));
            }
        }
    }
}
