// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where each cached block is: an exact hash table of 8 bytes per entry.
//!
//! Buckets of eight entries (one cache line). The bucket number carries part of the key: the key is
//! mixed by an invertible function and divided by the bucket width (quotienting; Cleary 1984,
//! Knuth 6.4 ex. 13), and only the remainder is stored. What is left of the 64 bits holds the slot,
//! the dirty bit, two bits of hits, and as many bits of the block's checksum as fit (16 to 32).
//! A full bucket overflows into the next seven, and beyond that into a small tree. Which of them hold
//! entries that belong here is in the top bits of the bucket's own eight entries, and always exact: in a full cache a
//! lookup of a block that is not there looks into 1.6 buckets, however long it has run.
//! Built for 90 % load: 8.9 bytes per slot of the log. Invariant: at most one entry per key
//! (tests: `index_equals_a_map`).

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::format::CHECKSUM_BITS_MIN;

#[cfg(test)]
mod tests;

/// A key on one line: all origins one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Flat(pub(crate) u64);

/// What the index knows of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Where it is.
    pub(crate) slot: u32,
    /// Whether the origin lacks it.
    pub(crate) dirty: bool,
    /// How often it was seen again, 0 to 3.
    pub(crate) hits: u8,
    /// The low bits of its checksum.
    pub(crate) checksum: u32,
}

const WAYS: usize = 8;
const DISPLACEMENT_MAX: u64 = 7;
/// Part of all entries that may be in use: beyond it chains of overflowing buckets get long.
const LOAD_PERCENT: u64 = 90;
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Bucket([u64; WAYS]);

/// Bit 63 of a bucket's entry 0 to 6: an entry that belongs into this bucket is one to seven buckets further on; of
/// entry 7: in the spill.
const ELSEWHERE: u64 = 1 << 63;
const SPILLED: usize = DISPLACEMENT_MAX as usize;
const OCCUPIED: u64 = 1 << 62;
const DIRTY: u64 = 1 << 61;
const HITS_SHIFT: u32 = 59;
const HITS: u64 = 3 << HITS_SHIFT;
const DISPLACEMENT_SHIFT: u32 = 56;
const DISPLACEMENT: u64 = 7 << DISPLACEMENT_SHIFT;
const FIELD_BITS: u32 = 56;

/// The index of one lane.
pub(crate) struct Index {
    buckets: Vec<Bucket>,
    /// Mixed key -> entry, for keys whose eight buckets are full.
    spill: BTreeMap<u64, u64>,
    mix: Mix,
    width: Width,
    slot_bits: u32,
    remainder_bits: u32,
    checksum_mask: u32,
    len: u64,
}

/// Where an entry is.
#[derive(Clone, Copy)]
enum At {
    Way(usize, usize),
    Spill(u64),
}

impl Index {
    /// An index for keys below `keys` and slots below `slots`; `None` if they need more than 64 bits
    /// an entry (origins of more than 256 TiB together).
    pub(crate) fn new(keys: u64, slots: u64) -> Option<Self> {
        let bucket_count = (slots * 100).div_ceil(LOAD_PERCENT * WAYS as u64).max(16);
        let mix = Mix::new(keys);
        let width = (1u64 << mix.bits).div_ceil(bucket_count);
        let remainder_bits = u64::BITS - (width - 1).leading_zeros();
        let slot_bits = u64::BITS - slots.leading_zeros();
        let checksum_bits = FIELD_BITS.checked_sub(remainder_bits + slot_bits)?.min(32);
        (checksum_bits >= u32::from(CHECKSUM_BITS_MIN)).then(|| Self {
            buckets: vec![Bucket([0; WAYS]); bucket_count as usize],
            spill: BTreeMap::new(),
            mix,
            width: Width::new(width),
            slot_bits,
            remainder_bits,
            checksum_mask: (u64::MAX >> (64 - checksum_bits)) as u32,
            len: 0,
        })
    }

    /// Blocks in the index.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// Memory of the table.
    pub(crate) fn bytes(&self) -> u64 {
        (self.buckets.len() * size_of::<Bucket>() + self.spill.len() * 32) as u64
    }

    /// How many bits of a checksum the index keeps.
    pub(crate) const fn checksum_bits(&self) -> u8 {
        self.checksum_mask.count_ones() as u8
    }

    /// Keeps no more than this many bits, because what is loaded has no more.
    pub(crate) fn limit_checksum_bits(&mut self, bits: u8) {
        self.checksum_mask &= (u64::MAX >> (64 - u32::from(bits.clamp(1, 32)))) as u32;
    }

    /// The bits of a checksum that the index keeps.
    pub(crate) const fn kept(&self, checksum: u32) -> u32 {
        checksum & self.checksum_mask
    }

    /// The bucket that a lookup of this block begins with.
    pub(crate) fn bucket_of(&self, flat: Flat) -> &[u64; WAYS] {
        &self.buckets[self.width.divide(self.mix.forward(flat.0)).0 as usize].0
    }

    /// What is known of a block.
    pub(crate) fn get(&self, flat: Flat) -> Option<Found> {
        self.find(flat).map(|at| self.unpack(self.entry(at)))
    }

    /// Puts a block in, or replaces what was known of it; returns that.
    pub(crate) fn insert(&mut self, flat: Flat, found: Found) -> Option<Found> {
        let mixed = self.mix.forward(flat.0);
        let (home, remainder) = self.width.divide(mixed);
        let packed = self.pack(found, remainder);
        if let Some(at) = self.find_at(home, remainder) {
            let old = self.entry(at);
            self.set(at, packed | old & DISPLACEMENT);
            return Some(self.unpack(old));
        }
        self.len += 1;
        for displacement in 0..=DISPLACEMENT_MAX {
            let bucket = self.bucket_at(home, displacement);
            if let Some(way) = self.buckets[bucket].0.iter().position(|entry| entry & OCCUPIED == 0) {
                self.set(At::Way(bucket, way), packed | displacement << DISPLACEMENT_SHIFT);
                if displacement > 0 {
                    self.buckets[home as usize].0[displacement as usize - 1] |= ELSEWHERE;
                }
                return None;
            }
        }
        self.buckets[home as usize].0[SPILLED] |= ELSEWHERE;
        self.spill.insert(mixed, packed);
        None
    }

    /// Takes a block out; returns what was known of it.
    pub(crate) fn remove(&mut self, flat: Flat) -> Option<Found> {
        let mixed = self.mix.forward(flat.0);
        let (home, remainder) = self.width.divide(mixed);
        let at = self.find_at(home, remainder)?;
        let old = self.entry(at);
        let (mark, others) = match at {
            At::Way(bucket, _) => {
                self.set(at, 0);
                let alike = |entry: &&u64| *entry & (OCCUPIED | DISPLACEMENT) == old & (OCCUPIED | DISPLACEMENT);
                let displacement = ((old & DISPLACEMENT) >> DISPLACEMENT_SHIFT) as usize;
                // Of home's own entries nothing is marked.
                (displacement.checked_sub(1), self.buckets[bucket].0.iter().find(alike).is_some())
            }
            At::Spill(_) => {
                self.spill.remove(&mixed);
                let of_home = home * self.width.width..(home + 1) * self.width.width;
                (Some(SPILLED), self.spill.range(of_home).next().is_some())
            }
        };
        if let Some(mark) = mark.filter(|_| !others) {
            self.buckets[home as usize].0[mark] &= !ELSEWHERE;
        }
        self.len -= 1;
        Some(self.unpack(old))
    }

    /// Changes the dirty bit of a block that is in.
    pub(crate) fn set_dirty(&mut self, flat: Flat, dirty: bool) {
        if let Some(at) = self.find(flat) {
            let entry = self.entry(at) & !DIRTY;
            self.set(at, if dirty { entry | DIRTY } else { entry });
        }
    }

    /// Counts one more hit of a block that is in, up to 3.
    pub(crate) fn touch(&mut self, flat: Flat) {
        if let Some(at) = self.find(flat) {
            let entry = self.entry(at);
            if entry & HITS != HITS {
                self.set(at, entry + (1 << HITS_SHIFT));
            }
        }
    }

    /// Parts that [`Index::scan`] can visit one by one.
    pub(crate) fn parts(&self) -> usize {
        self.buckets.len() + 1
    }

    /// Visits all blocks of one part.
    pub(crate) fn scan(&self, part: usize, mut visit: impl FnMut(Flat, Found)) {
        if part == self.buckets.len() {
            for (&mixed, &entry) in &self.spill {
                visit(Flat(self.mix.backward(mixed)), self.unpack(entry));
            }
            return;
        }
        for &entry in self.buckets[part].0.iter().filter(|entry| *entry & OCCUPIED != 0) {
            let displacement = ((entry & DISPLACEMENT) >> DISPLACEMENT_SHIFT) as usize;
            let home = (part + self.buckets.len() - displacement) % self.buckets.len();
            let mixed = home as u64 * self.width.width + self.remainder(entry);
            visit(Flat(self.mix.backward(mixed)), self.unpack(entry));
        }
    }

    /// Visits all blocks.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(Flat, Found)) {
        for part in 0..self.parts() {
            self.scan(part, &mut visit);
        }
    }

    fn bucket_at(&self, home: u64, displacement: u64) -> usize {
        let at = home as usize + displacement as usize;
        if at >= self.buckets.len() { at - self.buckets.len() } else { at }
    }

    fn find(&self, flat: Flat) -> Option<At> {
        let (home, remainder) = self.width.divide(self.mix.forward(flat.0));
        self.find_at(home, remainder)
    }

    fn find_at(&self, home: u64, remainder: u64) -> Option<At> {
        let mask = OCCUPIED | DISPLACEMENT | ((1 << self.remainder_bits) - 1) << self.slot_bits;
        let want = OCCUPIED | remainder << self.slot_bits;
        let entries = &self.buckets[home as usize].0;
        if let Some(way) = way_of(entries, mask, want) {
            return Some(At::Way(home as usize, way));
        }
        let marks = entries.iter().enumerate().fold(0, |marks, (nth, entry)| marks | (entry >> 63) << nth);
        if marks == 0 { None } else { self.find_elsewhere(home, remainder, mask, marks) }
    }

    /// Looks where the home bucket says that others of its entries are.
    #[cold]
    fn find_elsewhere(&self, home: u64, remainder: u64, mask: u64, marks: u64) -> Option<At> {
        for displacement in (1..=DISPLACEMENT_MAX).filter(|displacement| marks >> (displacement - 1) & 1 == 1) {
            let bucket = self.bucket_at(home, displacement);
            let want = OCCUPIED | displacement << DISPLACEMENT_SHIFT | remainder << self.slot_bits;
            if let Some(way) = way_of(&self.buckets[bucket].0, mask, want) {
                return Some(At::Way(bucket, way));
            }
        }
        let mixed = home * self.width.width + remainder;
        (marks >> SPILLED & 1 == 1 && self.spill.contains_key(&mixed)).then_some(At::Spill(mixed))
    }

    fn entry(&self, at: At) -> u64 {
        match at {
            At::Way(bucket, way) => self.buckets[bucket].0[way],
            At::Spill(mixed) => self.spill[&mixed],
        }
    }

    fn set(&mut self, at: At, entry: u64) {
        match at {
            At::Way(bucket, way) => {
                let place = &mut self.buckets[bucket].0[way];
                *place = *place & ELSEWHERE | entry & !ELSEWHERE;
            }
            At::Spill(mixed) => drop(self.spill.insert(mixed, entry)),
        }
    }

    const fn remainder(&self, entry: u64) -> u64 {
        entry >> self.slot_bits & ((1 << self.remainder_bits) - 1)
    }

    fn pack(&self, found: Found, remainder: u64) -> u64 {
        OCCUPIED
            | if found.dirty { DIRTY } else { 0 }
            | u64::from(found.hits) << HITS_SHIFT
            | u64::from(found.checksum & self.checksum_mask) << (self.slot_bits + self.remainder_bits)
            | remainder << self.slot_bits
            | u64::from(found.slot)
    }

    fn unpack(&self, entry: u64) -> Found {
        Found {
            slot: (entry & ((1 << self.slot_bits) - 1)) as u32,
            dirty: entry & DIRTY != 0,
            hits: ((entry & HITS) >> HITS_SHIFT) as u8,
            checksum: (entry >> (self.slot_bits + self.remainder_bits)) as u32 & self.checksum_mask,
        }
    }
}

/// The entry of a bucket that has these bits under the mask. Without branches: which of the eight it is can't be predicted.
fn way_of(entries: &[u64; WAYS], mask: u64, want: u64) -> Option<usize> {
    let equal =
        entries.iter().enumerate().fold(0u32, |equal, (way, entry)| equal | u32::from(entry & mask == want) << way);
    (equal != 0).then(|| equal.trailing_zeros() as usize)
}

/// How many keys share a bucket; divides by that with a multiplication.
struct Width {
    width: u64,
    /// The largest number that is below 2^64 / width.
    inverse: u64,
}

impl Width {
    const fn new(width: u64) -> Self {
        Self { width, inverse: u64::MAX / width }
    }

    /// Bucket and remainder. Exact for numbers below 2^63: the estimate is the quotient or one less.
    const fn divide(&self, mixed: u64) -> (u64, u64) {
        let estimate = ((mixed as u128 * self.inverse as u128) >> 64) as u64;
        let rest = mixed - estimate * self.width;
        if rest < self.width { (estimate, rest) } else { (estimate + 1, rest - self.width) }
    }
}

/// An invertible mix of numbers of `bits` bits: xor-shift and odd multiplication, three rounds,
/// the construction of Murmur3's finalizer on a domain of any width.
struct Mix {
    bits: u32,
    shift: u32,
    mask: u64,
}

const ODD: [u64; 2] = [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53];

impl Mix {
    fn new(keys: u64) -> Self {
        let bits = (u64::BITS - keys.saturating_sub(1).leading_zeros()).max(8);
        Self { bits, shift: bits.div_ceil(2), mask: u64::MAX >> (64 - bits) }
    }

    const fn forward(&self, x: u64) -> u64 {
        let x = x ^ x >> self.shift;
        let x = x.wrapping_mul(ODD[0]) & self.mask;
        let x = x ^ x >> self.shift;
        let x = x.wrapping_mul(ODD[1]) & self.mask;
        x ^ x >> self.shift
    }

    const fn backward(&self, x: u64) -> u64 {
        // A shift by half the width or more undoes itself.
        let x = x ^ x >> self.shift;
        let x = x.wrapping_mul(inverse(ODD[1])) & self.mask;
        let x = x ^ x >> self.shift;
        let x = x.wrapping_mul(inverse(ODD[0])) & self.mask;
        x ^ x >> self.shift
    }
}

/// The inverse of an odd number modulo 2^64, by Newton's iteration.
const fn inverse(odd: u64) -> u64 {
    let mut x = odd;
    let mut round = 0;
    while round < 6 {
        x = x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
        round += 1;
    }
    x
}
