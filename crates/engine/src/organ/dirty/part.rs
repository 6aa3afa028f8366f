// SPDX-License-Identifier: MIT OR Apache-2.0
//! A set of small numbers: a sorted array while they are few, a bitmap when they are many.
//!
//! Arrays grow by a quarter: they stay as they are for long, and there are many. Invariant: an
//! array is sorted, without doubles; a bitmap's count is that of its bits
//! (`dirty_set_equals_a_set`).

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Numbers of a part: 0 to one less.
pub(super) const PART_BLOCKS: u16 = 8192;
const WORDS: usize = PART_BLOCKS as usize / 64;
/// Above this an array takes more than the bitmap's 1 KiB.
pub(super) const ARRAY_MAX: usize = 512;
/// Numbers in a cache line.
const LINE: usize = 32;

/// Sorted numbers.
#[derive(Default)]
pub(super) struct Array(Vec<u16>);

impl Array {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u16> {
        self.0.iter().copied()
    }

    /// Memory beside its place in whatever holds it.
    pub(super) fn bytes(&self) -> u64 {
        self.0.capacity() as u64 * 2
    }

    /// Where a number is, or belongs. No bisection: each step of that waits for a cache line, of
    /// which an array has 16 and the processor fetches as many at once.
    fn find(&self, number: u16) -> Result<usize, usize> {
        let line = self.0.iter().step_by(LINE).skip(1).filter(|first| **first <= number).count() * LINE;
        let place = line + self.0[line..].iter().take(LINE).filter(|it| **it < number).count();
        if self.0.get(place) == Some(&number) { Ok(place) } else { Err(place) }
    }

    /// Puts a number in; false if it is in already.
    pub(super) fn insert(&mut self, number: u16) -> bool {
        let Err(place) = self.find(number) else { return false };
        if self.0.len() == self.0.capacity() {
            self.0.reserve_exact(self.0.len() / 4 + 4);
        }
        self.0.insert(place, number);
        true
    }

    /// Takes a number out; false if it is not in.
    pub(super) fn remove(&mut self, number: u16) -> bool {
        self.find(number).map(|place| self.0.remove(place)).is_ok()
    }

    /// The first number that is not below `from`.
    pub(super) fn next(&self, from: u16) -> Option<u16> {
        self.0.get(self.find(from).unwrap_or_else(|place| place)).copied()
    }

    /// Puts one in that is above all others.
    pub(super) fn push(&mut self, number: u16) {
        debug_assert!(self.0.last().is_none_or(|last| *last < number), "bug: out of order");
        self.0.push(number);
    }
}

/// A set of numbers below [`PART_BLOCKS`].
pub(super) enum Part {
    Array(Array),
    Bitmap(Box<[u64; WORDS]>, u16),
}

impl Default for Part {
    fn default() -> Self {
        Self::Array(Array::default())
    }
}

impl Part {
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Array(array) => array.bytes(),
            Self::Bitmap(words, _) => size_of_val(&**words) as u64,
        }
    }

    /// As [`Array::insert`].
    pub(super) fn insert(&mut self, number: u16) -> bool {
        match self {
            Self::Array(array) => {
                let added = array.insert(number);
                if array.len() > ARRAY_MAX {
                    let mut words = Box::new([0; WORDS]);
                    array.iter().for_each(|number| words[word(number)] |= bit(number));
                    *self = Self::Bitmap(words, ARRAY_MAX as u16 + 1);
                }
                added
            }
            Self::Bitmap(words, count) => {
                let word = &mut words[word(number)];
                let added = *word & bit(number) == 0;
                *word |= bit(number);
                *count += u16::from(added);
                added
            }
        }
    }

    /// As [`Array::remove`]. It is an array again at half of the limit, so that one that hovers
    /// there does not convert back and forth.
    pub(super) fn remove(&mut self, number: u16) -> bool {
        match self {
            Self::Array(array) => array.remove(number),
            Self::Bitmap(words, count) => {
                let word = &mut words[word(number)];
                let removed = *word & bit(number) != 0;
                *word &= !bit(number);
                *count -= u16::from(removed);
                if usize::from(*count) <= ARRAY_MAX / 2 {
                    let mut array = Array::default();
                    self.for_each(|number| array.push(number));
                    *self = Self::Array(array);
                }
                removed
            }
        }
    }

    /// As [`Array::next`].
    pub(super) fn next(&self, from: u16) -> Option<u16> {
        match self {
            Self::Array(array) => array.next(from),
            Self::Bitmap(words, _) => next_bit(words, from),
        }
    }

    /// Visits all, in order.
    pub(super) fn for_each(&self, mut visit: impl FnMut(u16)) {
        let mut next = self.next(0);
        while let Some(number) = next {
            visit(number);
            next = (number + 1 < PART_BLOCKS).then(|| self.next(number + 1)).flatten();
        }
    }
}

const fn word(number: u16) -> usize {
    (number / 64) as usize
}

const fn bit(number: u16) -> u64 {
    1 << (number % 64)
}

fn next_bit(words: &[u64; WORDS], from: u16) -> Option<u16> {
    let mut nth = word(from);
    let mut word = words[nth] & (u64::MAX << (from % 64));
    while word == 0 {
        nth += 1;
        word = *words.get(nth)?;
    }
    Some(nth as u16 * 64 + word.trailing_zeros() as u16)
}
