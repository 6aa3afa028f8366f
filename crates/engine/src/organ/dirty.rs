// SPDX-License-Identifier: MIT OR Apache-2.0
//! The dirty blocks of a lane, in order of their place on the origins.
//!
//! Regions have 65,536 blocks (256 MiB of an origin). A region is a sorted array of 16-bit numbers
//! while it holds few, else eight parts. A part is such an array, or a bitmap ([`part`]). This is
//! the layout of Roaring bitmaps (Chambi et al. 2016), as far as an elevator needs it, with a step
//! between. With one array of up to 4,096 numbers a write spent 15 % of its time on finding a
//! block's place and making room. Regions as small as parts would take more memory where a cache is
//! small beside its origin. A region of one block takes some 90 bytes.
//!
//! Scattered writes take 2 to 3 bytes a block, without what malloc adds. Invariant: the set has
//! exactly the blocks whose index entry is dirty (`check`).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use crate::organ::index::Flat;
use part::{ARRAY_MAX, Array, PART_BLOCKS, Part};

mod part;
#[cfg(test)]
mod tests;

const PARTS: usize = (1 << 16) / PART_BLOCKS as usize;

enum Region {
    /// At most as many blocks as an array of a part has.
    Few(Array),
    /// Parts, and how many blocks they have in all.
    Many(Box<[Part; PARTS]>, u32),
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
        // A tree's nodes are two thirds full.
        let entry = (size_of::<(u64, Region)>() * 3 / 2) as u64;
        let region = |region: &Region| match region {
            Region::Few(array) => array.bytes(),
            Region::Many(parts, _) => size_of_val(&**parts) as u64 + parts.iter().map(Part::bytes).sum::<u64>(),
        };
        self.regions.values().map(|it| entry + region(it)).sum()
    }

    /// Puts a block in, if it is not in the set.
    pub(crate) fn insert(&mut self, flat: Flat) {
        let (high, low) = (flat.0 >> 16, flat.0 as u16);
        let region = self.regions.entry(high).or_insert_with(|| Region::Few(Array::default()));
        let added = match region {
            Region::Few(array) => array.insert(low),
            Region::Many(parts, count) => {
                let added = parts[part_of(low)].insert(low % PART_BLOCKS);
                *count += u32::from(added);
                added
            }
        };
        if let Region::Few(array) = region
            && array.len() > ARRAY_MAX
        {
            let mut parts: Box<[Part; PARTS]> = Box::default();
            for low in array.iter() {
                parts[part_of(low)].insert(low % PART_BLOCKS);
            }
            *region = Region::Many(parts, ARRAY_MAX as u32 + 1);
        }
        self.len += u64::from(added);
    }

    /// Takes a block out, if it is in the set.
    pub(crate) fn remove(&mut self, flat: Flat) {
        let (high, low) = (flat.0 >> 16, flat.0 as u16);
        let Some(region) = self.regions.get_mut(&high) else { return };
        let (removed, left) = match region {
            Region::Few(array) => (array.remove(low), array.len()),
            Region::Many(parts, count) => {
                let removed = parts[part_of(low)].remove(low % PART_BLOCKS);
                *count -= u32::from(removed);
                (removed, *count as usize)
            }
        };
        // The limit for going back is half, so that a set that hovers there does not convert back
        // and forth.
        if let Region::Many(parts, _) = region
            && left <= ARRAY_MAX / 2
        {
            let mut array = Array::default();
            for (nth, part) in parts.iter().enumerate() {
                part.for_each(|number| array.push(nth as u16 * PART_BLOCKS + number));
            }
            *region = Region::Few(array);
        }
        if left == 0 {
            self.regions.remove(&high);
        }
        self.len -= u64::from(removed);
    }

    /// The first block at or after `from`.
    pub(crate) fn next(&self, from: Flat) -> Option<Flat> {
        self.regions.range(from.0 >> 16..).find_map(|(&high, region)| {
            let low = if high == from.0 >> 16 { from.0 as u16 } else { 0 };
            let found = match region {
                Region::Few(array) => array.next(low),
                Region::Many(parts, _) => (part_of(low)..PARTS).find_map(|nth| {
                    let from = if nth == part_of(low) { low % PART_BLOCKS } else { 0 };
                    parts[nth].next(from).map(|number| nth as u16 * PART_BLOCKS + number)
                }),
            };
            found.map(|low| Flat(high << 16 | u64::from(low)))
        })
    }
}

const fn part_of(low: u16) -> usize {
    (low / PART_BLOCKS) as usize
}
