// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sketch knows roughly how often each key was asked for lately. It is a count-min sketch of
//! 4-bit counters, with 8 bytes for each block of the cache.
//!
//! Four counters of a key, all in one cache line. After 10 increments for each block of the cache
//! all counters are halved, so that the past fades.

use super::super::table::hash;

/// Words of a cache line.
const LINE_WORDS: usize = 8;
/// Counters of a key.
const ROWS: usize = 4;
const COUNTER_MAX: u64 = 15;
const ODD: u64 = 0x1111_1111_1111_1111;
const HALF_MASK: u64 = 0x7777_7777_7777_7777;

pub(super) struct Sketch {
    /// 16 counters a word.
    words: Vec<u64>,
    additions: usize,
    /// The accesses after which all counters are halved.
    sample: usize,
}

impl Sketch {
    pub(super) fn new(capacity: usize) -> Self {
        let words = capacity.next_power_of_two().max(LINE_WORDS);
        Self { words: vec![0; words], additions: 0, sample: 10 * capacity }
    }

    pub(super) fn sample(&self) -> usize {
        self.sample
    }

    /// Words and shifts of a key's counters: of the line's four pairs of words one counter each.
    fn counters(&self, key: u64) -> [(usize, u32); ROWS] {
        let hash = hash(key);
        let line = (hash >> 32) as usize & (self.words.len() / LINE_WORDS - 1);
        std::array::from_fn(|row| {
            let bits = (hash >> (8 * row)) as usize;
            (line * LINE_WORDS + 2 * row + (bits & 1), (bits >> 1 & 15) as u32 * 4)
        })
    }

    pub(super) fn frequency(&self, key: u64) -> u64 {
        self.counters(key).iter().map(|(word, shift)| self.words[*word] >> shift & COUNTER_MAX).min().unwrap_or(0)
    }

    pub(super) fn add(&mut self, key: u64) {
        let mut added = false;
        for (word, shift) in self.counters(key) {
            if self.words[word] >> shift & COUNTER_MAX < COUNTER_MAX {
                self.words[word] += 1 << shift;
                added = true;
            }
        }
        self.additions += usize::from(added);
        if self.additions == self.sample {
            self.halve();
        }
    }

    fn halve(&mut self) {
        let mut lost = 0;
        for word in &mut self.words {
            lost += (*word & ODD).count_ones() as usize;
            *word = *word >> 1 & HALF_MASK;
        }
        self.additions = self.additions.saturating_sub(lost / ROWS) / 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_and_forgets() {
        let mut sketch = Sketch::new(1000);
        for key in 0..100 {
            (0..key % 20).for_each(|_| sketch.add(key));
        }
        // Some of them share all their counters with others: never too low, and mostly right.
        let exact = (0..100).filter(|key| sketch.frequency(*key) == (key % 20).min(15)).count();
        assert!((0..100).all(|key| sketch.frequency(key) >= (key % 20).min(15)) && exact > 90, "{exact}");
        sketch.halve();
        let exact = (0..100).filter(|key| sketch.frequency(*key) == (key % 20).min(15) / 2).count();
        assert!(exact > 90, "{exact}");
    }

    #[test]
    fn it_halves_by_itself() {
        let mut sketch = Sketch::new(1);
        (0..9).for_each(|_| sketch.add(7));
        assert_eq!(sketch.frequency(7), 9);
        sketch.add(7);
        assert_eq!((sketch.frequency(7), sketch.additions), (5, 5));
    }
}
