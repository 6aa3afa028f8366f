// SPDX-License-Identifier: MIT OR Apache-2.0
//! The dirty blocks of a lane, in order of their place on the origins.
//!
//! Regions of 65,536 blocks (256 MiB of an origin), each a sorted array of 16-bit numbers while it
//! holds few and a bitmap when it holds many: the layout of Roaring bitmaps (Chambi et al. 2016),
//! of which this is the part that an elevator needs. About 2.5 bytes a block for scattered writes, without what malloc adds.
//! Invariant: exactly the blocks whose index entry is dirty (`check`).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::index::Flat;

#[cfg(test)]
mod tests;

/// Above this an array takes more than the bitmap's 8 KiB.
const ARRAY_MAX: usize = 4096;
const WORDS: usize = 1024;

enum Region {
    Array(Vec<u16>),
    Bitmap(Box<[u64]>, u32),
}

/// An ordered set of blocks.
#[derive(Default)]
pub(crate) struct DirtySet {
    regions: BTreeMap<u64, Region>,
    len: u64,
}

impl DirtySet {
    /// Blocks in the set.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// Memory of the set.
    pub(crate) fn bytes(&self) -> u64 {
        let region = |region: &Region| match region {
            Region::Array(array) => array.capacity() as u64 * 2 + 56,
            Region::Bitmap(..) => 8192 + 56,
        };
        self.regions.values().map(region).sum()
    }

    /// Puts a block in, if it is not.
    pub(crate) fn insert(&mut self, flat: Flat) {
        let low = flat.0 as u16;
        let region = self.regions.entry(flat.0 >> 16).or_insert_with(|| Region::Array(Vec::new()));
        let added = match region {
            Region::Array(array) => match array.binary_search(&low) {
                Ok(_) => false,
                Err(at) => {
                    if array.len() == array.capacity() {
                        // Not twice as much: an array stays as it is for long, and there is one for each 256 MiB.
                        array.reserve_exact(array.len() / 4 + 4);
                    }
                    array.insert(at, low);
                    true
                }
            },
            Region::Bitmap(words, count) => {
                let (word, bit) = (&mut words[usize::from(low >> 6)], 1u64 << (low & 63));
                let added = *word & bit == 0;
                *word |= bit;
                *count += u32::from(added);
                added
            }
        };
        if let Region::Array(array) = region
            && array.len() > ARRAY_MAX
        {
            let mut words = vec![0u64; WORDS].into_boxed_slice();
            array.iter().for_each(|&low| words[usize::from(low >> 6)] |= 1 << (low & 63));
            *region = Region::Bitmap(words, ARRAY_MAX as u32 + 1);
        }
        self.len += u64::from(added);
    }

    /// Takes a block out, if it is in.
    pub(crate) fn remove(&mut self, flat: Flat) {
        let low = flat.0 as u16;
        let Some(region) = self.regions.get_mut(&(flat.0 >> 16)) else { return };
        let (removed, left) = match region {
            Region::Array(array) => match array.binary_search(&low) {
                Ok(at) => {
                    array.remove(at);
                    (true, array.len())
                }
                Err(_) => (false, array.len()),
            },
            Region::Bitmap(words, count) => {
                let (word, bit) = (&mut words[usize::from(low >> 6)], 1u64 << (low & 63));
                let removed = *word & bit != 0;
                *word &= !bit;
                *count -= u32::from(removed);
                (removed, *count as usize)
            }
        };
        // Half of the limit, so that a set that hovers there does not convert back and forth.
        if let Region::Bitmap(words, _) = region
            && left <= ARRAY_MAX / 2
        {
            let array = (0..=u16::MAX).filter(|low| words[usize::from(low >> 6)] >> (low & 63) & 1 != 0).collect();
            *region = Region::Array(array);
        }
        if left == 0 {
            self.regions.remove(&(flat.0 >> 16));
        }
        self.len -= u64::from(removed);
    }

    /// The first block at or after `from`.
    pub(crate) fn next(&self, from: Flat) -> Option<Flat> {
        for (&high, region) in self.regions.range(from.0 >> 16..) {
            let low = if high == from.0 >> 16 { from.0 as u16 } else { 0 };
            let found = match region {
                Region::Array(array) => array.get(array.partition_point(|&it| it < low)).copied(),
                Region::Bitmap(words, _) => next_bit(words, low),
            };
            if let Some(low) = found {
                return Some(Flat(high << 16 | u64::from(low)));
            }
        }
        None
    }
}

fn next_bit(words: &[u64], low: u16) -> Option<u16> {
    let mut at = usize::from(low >> 6);
    let mut word = words[at] & (u64::MAX << (low & 63));
    while word == 0 {
        at += 1;
        word = *words.get(at)?;
    }
    Some((at as u16) << 6 | word.trailing_zeros() as u16)
}
