// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where each cached block is: an exact hash table of 8 bytes per entry.
//!
//! A bucket has eight entries, one cache line. The bucket number carries part of the key. The key
//! is mixed by an invertible function and divided by the bucket width (quotienting; Cleary 1984,
//! Knuth 6.4 ex. 13). Only the remainder is stored. The other bits of the 64 hold the slot, the
//! dirty bit, two bits of hits, and 16 to 32 bits of the block's checksum.
//!
//! A full bucket overflows into seven others near it, and beyond that into a small tree. The top
//! bits of the bucket's own eight entries tell which of them hold entries that belong here. These
//! bits are always exact. An entry that finds no place sends another entry on. An entry that leaves
//! makes room for an entry that is elsewhere. So the table does not wear out. In a full cache a
//! look-up of a block that is not there looks into 1.8 buckets. That is so even when each block has
//! been replaced many times (`it_does_not_wear_out`).
//!
//! The table is built for 95 % load: 8.4 bytes per slot of the log. Invariant: at most one entry
//! per key (`index_equals_a_map`).

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::{Add, Range};

use crate::format::CHECKSUM_BITS_MIN;
use quotient::{Mix, Width};

mod quotient;
#[cfg(test)]
mod tests;

/// A key on one line: all origins one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Flat(pub(crate) u64);

impl Flat {
    /// The key behind this one.
    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The keys from this one up to `end`.
    pub(crate) fn to(self, end: Self) -> impl DoubleEndedIterator<Item = Self> + Clone {
        (self.0..end.0).map(Self)
    }
}

impl Add<u32> for Flat {
    type Output = Self;

    /// The key `blocks` blocks further on.
    fn add(self, blocks: u32) -> Self {
        Self(self.0 + u64::from(blocks))
    }
}

/// An entry of the index: what is known of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The slot of the block.
    pub(crate) slot: u32,
    /// Whether the origin lacks the block.
    pub(crate) dirty: bool,
    /// How often the block was seen again, 0 to 3.
    pub(crate) hits: u8,
    /// The low bits of the block's checksum.
    pub(crate) checksum: u32,
}

const WAYS: usize = 8;
const DISPLACEMENT_MAX: u64 = 7;
/// The distances of the buckets that a bucket overflows into: an optimal Golomb ruler. Two buckets
/// have at most one overflow bucket in common, so that crowds don't grow. With blocks in 96 % of
/// the slots 0.01 % of the entries are in the tree. If each bucket took the next seven, 0.8 % would
/// be.
const OFFSETS: [u64; WAYS] = [0, 1, 4, 9, 15, 22, 32, 34];
/// More than the largest offset.
const BUCKETS_MIN: u64 = 64;
/// Slots of the log for 100 entries of the table. A full cache has blocks in up to 98 % of its
/// slots.
const LOAD_PERCENT: u64 = 95;
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Bucket([u64; WAYS]);

/// Bit 63 of entry 7 tells that an entry which belongs into this bucket is in the spill. Bit 63 of
/// entries 0 to 6 tells that such an entry is in the first to seventh of the other buckets.
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
    /// The bits of an entry that tell it from others in its bucket.
    key_mask: u64,
    checksum_mask: u32,
    len: u64,
}

/// Where an entry is. (It has two words: the result of a lookup is handed over in registers.)
#[derive(Clone, Copy)]
enum At {
    /// In the table: the number of entries before it.
    Table(usize),
    /// In the tree, under this mixed key.
    Spill(u64),
}

impl At {
    const fn way(bucket: usize, way: usize) -> Self {
        Self::Table(bucket * WAYS + way)
    }
}

impl Index {
    /// An index for keys below `keys` and slots below `slots`. `None`: an entry would need more
    /// than 64 bits, as with origins of more than 256 TiB together.
    pub(crate) fn new(keys: u64, slots: u64) -> Option<Self> {
        let bucket_count = (slots * 100).div_ceil(LOAD_PERCENT * WAYS as u64).max(BUCKETS_MIN);
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
            key_mask: OCCUPIED | DISPLACEMENT | ((1 << remainder_bits) - 1) << slot_bits,
            checksum_mask: (u64::MAX >> (64 - checksum_bits)) as u32,
            len: 0,
        })
    }

    /// Whether there is room for keys below `keys`.
    pub(crate) const fn has_room(&self, keys: u64) -> bool {
        keys <= 1 << self.mix.bits
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

    /// Keeps no more than this many bits, because the entries that are loaded have no more.
    pub(crate) fn limit_checksum_bits(&mut self, bits: u8) {
        self.checksum_mask &= (u64::MAX >> (64 - u32::from(bits.clamp(1, 32)))) as u32;
    }

    /// The bits of a checksum that the index keeps.
    pub(crate) const fn kept(&self, checksum: u32) -> u32 {
        checksum & self.checksum_mask
    }

    /// A word of the cache line that a lookup of this block begins with.
    pub(crate) fn looks_at(&self, flat: Flat) -> &u64 {
        &self.buckets[self.width.divide(self.mix.forward(flat.0)).0 as usize].0[0]
    }

    /// Finds what is known of a block.
    pub(crate) fn get(&self, flat: Flat) -> Option<Found> {
        self.find(flat).map(|at| self.unpack(self.entry(at)))
    }

    /// Puts a block in, or replaces its entry. Returns the old entry.
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
        match self.free_place(home).or_else(|| self.make_place(home)) {
            Some(place) => self.put(home, place, packed),
            None => {
                self.buckets[home as usize].0[SPILLED] |= ELSEWHERE;
                self.spill.insert(mixed, packed);
            }
        }
        None
    }

    /// Displacement and way of a free place for an entry that belongs into this bucket.
    fn free_place(&self, home: u64) -> Option<(u64, usize)> {
        (0..=DISPLACEMENT_MAX).find_map(|displacement| {
            let entries = &self.buckets[self.bucket_at(home, displacement)].0;
            Some((displacement, entries.iter().position(|entry| entry & OCCUPIED == 0)?))
        })
    }

    /// Makes a place in a bucket's eight. An entry there goes on to another of its own buckets,
    /// which has room. (This is the step of cuckoo hashing; Pagh and Rodler 2004.)
    #[cold]
    fn make_place(&mut self, home: u64) -> Option<(u64, usize)> {
        for displacement in 0..=DISPLACEMENT_MAX {
            let bucket = self.bucket_at(home, displacement);
            for way in 0..WAYS {
                let entry = self.buckets[bucket].0[way];
                let owner = self.home_of(bucket, entry);
                // Entries of `home` itself have no other place: all eight buckets are full.
                if owner != home
                    && let Some(place) = self.free_place(owner)
                {
                    self.take(owner, At::way(bucket, way));
                    self.put(owner, place, entry);
                    return Some((displacement, way));
                }
            }
        }
        None
    }

    fn put(&mut self, home: u64, (displacement, way): (u64, usize), entry: u64) {
        let bucket = self.bucket_at(home, displacement);
        self.set(At::way(bucket, way), entry & !DISPLACEMENT | displacement << DISPLACEMENT_SHIFT);
        if displacement > 0 {
            self.buckets[home as usize].0[displacement as usize - 1] |= ELSEWHERE;
        }
    }

    /// Takes a block out. Returns its entry.
    pub(crate) fn remove(&mut self, flat: Flat) -> Option<Found> {
        let mixed = self.mix.forward(flat.0);
        let (home, remainder) = self.width.divide(mixed);
        let at = self.find_at(home, remainder)?;
        let old = self.entry(at);
        self.len -= 1;
        self.take(home, at);
        if let At::Table(mut place) = at {
            // Each entry that is brought home leaves a place that may be another's home.
            while let home = (place / WAYS) as u64
                && let Some((from, entry)) = self.farthest_of(home)
            {
                self.take(home, from);
                self.put(home, (0, place % WAYS), entry);
                let At::Table(left) = from else { break };
                place = left;
            }
        }
        Some(self.unpack(old))
    }

    /// Empties a place. If the entry was the last of its distance, the mark in its home goes.
    fn take(&mut self, home: u64, at: At) {
        let old = self.entry(at);
        let (mark, others) = match at {
            At::Table(place) => {
                self.set(at, 0);
                let displacement = displacement(old);
                let alike = |entry: &u64| is_displaced(*entry, displacement);
                // Entries at home have no mark.
                (displacement.checked_sub(1), self.buckets[place / WAYS].0.iter().any(alike))
            }
            At::Spill(mixed) => {
                self.spill.remove(&mixed);
                (Some(SPILLED), self.spill.range(self.keys_of(home)).next().is_some())
            }
        };
        if let Some(mark) = mark.filter(|_| !others) {
            self.buckets[home as usize].0[mark] &= !ELSEWHERE;
        }
    }

    /// The entry of a bucket that is farthest from it, if not all are in it.
    fn farthest_of(&self, home: u64) -> Option<(At, u64)> {
        let marks = marks(&self.buckets[home as usize].0);
        if marks == 0 {
            return None;
        }
        if marks >> SPILLED & 1 == 1 {
            return self.spill.range(self.keys_of(home)).next().map(|(&mixed, &entry)| (At::Spill(mixed), entry));
        }
        let displacement = u64::from(marks.ilog2()) + 1;
        let bucket = self.bucket_at(home, displacement);
        let entries = &self.buckets[bucket].0;
        let way = entries.iter().position(|entry| is_displaced(*entry, displacement as usize))?;
        Some((At::way(bucket, way), entries[way]))
    }

    /// The mixed keys that belong into a bucket.
    const fn keys_of(&self, home: u64) -> Range<u64> {
        home * self.width.width..(home + 1) * self.width.width
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
        self.hit(flat, |_| true);
    }

    /// Counts one hit less of a block that is in, if it had any.
    pub(crate) fn cool(&mut self, flat: Flat) {
        if let Some(at) = self.find(flat) {
            let entry = self.entry(at);
            if entry & HITS > 0 {
                self.set(at, entry - (1 << HITS_SHIFT));
            }
        }
    }

    /// Finds what is known of a block, if the block is in and `wanted` says yes. Then that counts
    /// as one more hit, up to 3.
    pub(crate) fn hit(&mut self, flat: Flat, wanted: impl FnOnce(Found) -> bool) -> Option<Found> {
        let at = self.find(flat)?;
        let entry = self.entry(at);
        let found = self.unpack(entry);
        if !wanted(found) {
            return None;
        }
        if entry & HITS != HITS {
            self.set(at, entry + (1 << HITS_SHIFT));
        }
        Some(found)
    }

    /// Parts that [`Index::scan`] can visit one by one.
    pub(crate) const fn parts(&self) -> usize {
        self.buckets.len()
    }

    /// Visits all blocks of one part: those that belong into one bucket, wherever they are. A block
    /// belongs to the same part as long as it is in the index. So a visit of one part after the
    /// other misses no block that was there all the time.
    pub(crate) fn scan(&self, part: usize, mut visit: impl FnMut(Flat, Found)) {
        let home = part as u64;
        let mut visit = |mixed: u64, entry: u64| visit(Flat(self.mix.backward(mixed)), self.unpack(entry));
        let marks = marks(&self.buckets[part].0);
        for displacement in (0..=DISPLACEMENT_MAX).filter(|displacement| (marks << 1 | 1) >> displacement & 1 == 1) {
            let entries = &self.buckets[self.bucket_at(home, displacement)].0;
            for &entry in entries.iter().filter(|entry| is_displaced(**entry, displacement as usize)) {
                visit(home * self.width.width + self.remainder(entry), entry);
            }
        }
        if marks >> SPILLED & 1 == 1 {
            self.spill.range(self.keys_of(home)).for_each(|(&mixed, &entry)| visit(mixed, entry));
        }
    }

    /// Visits all blocks.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(Flat, Found)) {
        for part in 0..self.parts() {
            self.scan(part, &mut visit);
        }
    }

    fn bucket_at(&self, home: u64, displacement: u64) -> usize {
        let bucket = (home + OFFSETS[displacement as usize]) as usize;
        if bucket >= self.buckets.len() { bucket - self.buckets.len() } else { bucket }
    }

    /// The bucket that an entry of `bucket` belongs into.
    fn home_of(&self, bucket: usize, entry: u64) -> u64 {
        let ahead = OFFSETS[displacement(entry)];
        let bucket = bucket as u64;
        if bucket >= ahead { bucket - ahead } else { bucket + self.buckets.len() as u64 - ahead }
    }

    fn find(&self, flat: Flat) -> Option<At> {
        let (home, remainder) = self.width.divide(self.mix.forward(flat.0));
        self.find_at(home, remainder)
    }

    fn find_at(&self, home: u64, remainder: u64) -> Option<At> {
        let want = OCCUPIED | remainder << self.slot_bits;
        match way_of(&self.buckets[home as usize].0, self.key_mask, want) {
            Some(way) => Some(At::way(home as usize, way)),
            None => self.find_elsewhere(home, remainder),
        }
    }

    /// Looks where the home bucket says that others of its entries are, if there are any. (This is
    /// not inlined: beside the search at home the compiler would keep all eight entries in
    /// registers for this, and have none left.)
    #[inline(never)]
    fn find_elsewhere(&self, home: u64, remainder: u64) -> Option<At> {
        let marked = self.buckets[home as usize].0.iter().fold(0, |all, entry| all | entry) & ELSEWHERE != 0;
        if marked { self.find_displaced(home, remainder) } else { None }
    }

    #[cold]
    fn find_displaced(&self, home: u64, remainder: u64) -> Option<At> {
        let marks = marks(&self.buckets[home as usize].0);
        for displacement in (1..=DISPLACEMENT_MAX).filter(|displacement| marks >> (displacement - 1) & 1 == 1) {
            let bucket = self.bucket_at(home, displacement);
            let want = OCCUPIED | displacement << DISPLACEMENT_SHIFT | remainder << self.slot_bits;
            if let Some(way) = way_of(&self.buckets[bucket].0, self.key_mask, want) {
                return Some(At::way(bucket, way));
            }
        }
        let mixed = home * self.width.width + remainder;
        (marks >> SPILLED & 1 == 1 && self.spill.contains_key(&mixed)).then_some(At::Spill(mixed))
    }

    fn entry(&self, at: At) -> u64 {
        match at {
            At::Table(place) => self.buckets[place / WAYS].0[place % WAYS],
            At::Spill(mixed) => self.spill[&mixed],
        }
    }

    fn set(&mut self, at: At, entry: u64) {
        match at {
            At::Table(place) => {
                let place = &mut self.buckets[place / WAYS].0[place % WAYS];
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

/// The top bits of a bucket's entries. Bit n says that entries which belong into it are in its
/// (n+1)th other bucket. Bit 7 says that they are in the tree.
fn marks(entries: &[u64; WAYS]) -> u64 {
    entries.iter().enumerate().fold(0, |marks, (nth, entry)| marks | (entry >> 63) << nth)
}

/// In which of its home's buckets an entry is: 0 means at home.
const fn displacement(entry: u64) -> usize {
    ((entry & DISPLACEMENT) >> DISPLACEMENT_SHIFT) as usize
}

const fn is_displaced(entry: u64, by: usize) -> bool {
    entry & OCCUPIED != 0 && displacement(entry) == by
}

/// The entry of a bucket that has these bits under the mask. The search has no branches: which of
/// the eight it is can't be predicted. (A number that is replaced takes half the instructions of
/// eight bits that are gathered.)
fn way_of(entries: &[u64; WAYS], mask: u64, want: u64) -> Option<usize> {
    let way = (0..WAYS).rev().fold(WAYS, |way, nth| if entries[nth] & mask == want { nth } else { way });
    (way < WAYS).then_some(way)
}
