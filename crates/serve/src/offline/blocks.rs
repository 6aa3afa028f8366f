// SPDX-License-Identifier: MIT OR Apache-2.0
//! The blocks of a lane by slot, compact enough for caches of terabytes.
//!
//! [`Slots`] is a table by slot, of 12 bytes each. [`Blocks`] finds its blocks by their keys too,
//! with 6 to 17 bytes more for each block. In trees, as this was before, a block took 73 bytes, and
//! the blocks of all lanes were in RAM at once. A full cache of 1 TiB took 18 GiB.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::ops::Range;

use flashfront_engine::format::{
    CHECKPOINT_AGES_MAX, CHECKPOINT_ENTRIES_MAX, CheckpointEntry, encode_checkpoint_ages, encode_checkpoint_entries,
    pack_key, split_key,
};
use flashfront_engine::{BLOCK_BYTES, Block, Key};
use hashbrown::{DefaultHashBuilder, HashTable};

const HERE: u64 = 1 << 63;
const DIRTY: u64 = 1 << 62;
const OLDER: u64 = 1 << 61;
const SHORT: u64 = 1 << 60;
/// A key in 60 bits, as on the media.
const KEY: u64 = SHORT - 1;

/// A block that is in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Live {
    pub(super) key: Key,
    pub(super) slot: u32,
    pub(super) dirty: bool,
    /// The block may be superseded by something lost: see `salvage`. A walk never sets it.
    pub(super) older: bool,
    /// The low bits of the checksum that are known.
    pub(super) checksum: u32,
    pub(super) checksum_mask: u32,
}

/// Blocks by their slots.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// The packed key with its flags, low and high half, and the checksum; 0 where nothing is.
    slots: Vec<[u32; 3]>,
    /// The mask of checksums that are not whole: those of the checkpoint's entries, all of one
    /// length.
    short_mask: u32,
}

impl Slots {
    pub(super) fn new(slots: u32) -> Self {
        Self { slots: vec![[0; 3]; slots as usize], short_mask: u32::MAX }
    }

    pub(super) fn get(&self, slot: u32) -> Option<Live> {
        let [low, high, checksum] = *self.slots.get(slot as usize)?;
        let packed = u64::from(high) << 32 | u64::from(low);
        (packed & HERE != 0).then(|| Live {
            key: unpacked(packed),
            slot,
            dirty: packed & DIRTY != 0,
            older: packed & OLDER != 0,
            checksum,
            checksum_mask: if packed & SHORT == 0 { u32::MAX } else { self.short_mask },
        })
    }

    fn holds(&self, slot: u32, key: Key) -> bool {
        self.get(slot).is_some_and(|live| live.key == key)
    }

    /// Puts a block into its slot, in place of the present one.
    pub(super) fn put(&mut self, live: Live) {
        let flag = |is: bool, flag: u64| if is { flag } else { 0 };
        let short = live.checksum_mask != u32::MAX;
        if short {
            self.short_mask = live.checksum_mask;
        }
        let flags = HERE | flag(live.dirty, DIRTY) | flag(live.older, OLDER) | flag(short, SHORT);
        let packed = flags | packed(live.key);
        self.slots[live.slot as usize] = [packed as u32, (packed >> 32) as u32, live.checksum];
    }

    pub(super) fn clear(&mut self, slot: u32) {
        self.slots[slot as usize] = [0; 3];
    }

    /// The blocks in these slots, in their order.
    pub(super) fn range(&self, slots: Range<u32>) -> impl DoubleEndedIterator<Item = Live> {
        let end = slots.end.min(self.slots.len() as u32);
        (slots.start.min(end)..end).filter_map(|slot| self.get(slot))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Live> {
        self.range(0..u32::MAX)
    }

    /// Changes each block, or takes it away.
    pub(super) fn update(&mut self, mut change: impl FnMut(Live) -> Option<Live>) {
        for slot in 0..self.slots.len() as u32 {
            let Some(live) = self.get(slot) else { continue };
            match change(live) {
                Some(live) => self.put(live),
                None => self.clear(slot),
            }
        }
    }
}

/// The blocks of a checkpoint behind its head: the ages of all segments, and what a lane holds.
pub(super) fn checkpoint_body<'a>(
    generation: u64,
    ages: &[u64],
    held: &'a Slots,
) -> impl Iterator<Item = Vec<u8>> + use<'a> {
    let encoded = |encode: &dyn Fn(&mut [u8])| {
        let mut block = vec![0; BLOCK_BYTES as usize];
        encode(&mut block);
        block
    };
    let ages: Vec<Vec<u8>> = ages
        .chunks(CHECKPOINT_AGES_MAX)
        .map(|part| encoded(&|block| encode_checkpoint_ages(generation, part, block)))
        .collect();
    let mut entries = held.iter().map(|held| CheckpointEntry {
        key: held.key,
        dirty: held.dirty,
        hits: 0,
        slot: held.slot,
        checksum: held.checksum,
    });
    ages.into_iter().chain(std::iter::from_fn(move || {
        let part: Vec<CheckpointEntry> = entries.by_ref().take(CHECKPOINT_ENTRIES_MAX).collect();
        let block = || encoded(&|block| encode_checkpoint_entries(generation, &part, block));
        (!part.is_empty()).then(block)
    }))
}

/// Blocks by their slots and by their keys.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    slots: Slots,
    /// The slots of all blocks but the displaced ones.
    by_key: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Blocks in whose slots others were found, though nothing says that they left the cache.
    ///
    /// A checkpoint may have both, as it is written while the cache is used. Then the log says that
    /// the segment was freed. In the end this is empty unless something is damaged.
    displaced: BTreeMap<Key, Live>,
}

impl Blocks {
    pub(super) fn new(slots: u32) -> Self {
        Self { slots: Slots::new(slots), ..Self::default() }
    }

    pub(super) fn len(&self) -> u64 {
        (self.by_key.len() + self.displaced.len()) as u64
    }

    pub(super) fn dirty(&self) -> u64 {
        self.iter().filter(|live| live.dirty).count() as u64
    }

    pub(super) fn get(&self, key: Key) -> Option<Live> {
        let found = self.by_key.find(self.hasher.hash_one(packed(key)), |slot| self.slots.holds(*slot, key));
        found.map_or_else(|| self.displaced.get(&key).copied(), |slot| self.slots.get(*slot))
    }

    /// This is where the block was, for all that is known; what is known to be in its slot stays
    /// there.
    pub(super) fn insert_displaced(&mut self, live: Live) {
        match self.slots.get(live.slot) {
            Some(_) => _ = self.displaced.insert(live.key, live),
            None => self.insert(live),
        }
    }

    /// This is where the block is now.
    pub(super) fn insert(&mut self, live: Live) {
        self.remove(live.key);
        if let Some(other) = self.slots.get(live.slot) {
            self.remove(other.key);
            self.displaced.insert(other.key, other);
        }
        self.slots.put(live);
        let Self { slots, by_key, hasher, .. } = self;
        let hash = |slot: &u32| slots.get(*slot).map_or(0, |live| hasher.hash_one(packed(live.key)));
        by_key.insert_unique(hash(&live.slot), live.slot, hash);
    }

    pub(super) fn remove(&mut self, key: Key) {
        let hash = self.hasher.hash_one(packed(key));
        if let Ok(found) = self.by_key.find_entry(hash, |slot| self.slots.holds(*slot, key)) {
            self.slots.clear(found.remove().0);
        } else if !self.displaced.is_empty() {
            self.displaced.remove(&key);
        }
    }

    /// Removes a number of blocks from `first` on: they are no longer in the cache.
    pub(super) fn remove_range(&mut self, first: Key, blocks: u32) {
        let end = first.block.0 + u64::from(blocks);
        let key = |block| Key { block: Block(block), ..first };
        if u64::from(blocks) <= self.len() {
            (first.block.0..end).for_each(|block| self.remove(key(block)));
        } else {
            let gone = |it: Key| it.origin == first.origin && (first.block.0..end).contains(&it.block.0);
            let gone: Vec<Key> = self.iter().map(|live| live.key).filter(|key| gone(*key)).collect();
            gone.into_iter().for_each(|key| self.remove(key));
        }
    }

    /// Frees slots, which hold no block any more.
    pub(super) fn free(&mut self, slots: Range<u32>) {
        let gone: Vec<Key> = self.slots.range(slots.clone()).map(|live| live.key).collect();
        gone.into_iter().for_each(|key| self.remove(key));
        self.displaced.retain(|_, live| !slots.contains(&live.slot));
    }

    /// The version of the block in that slot is on the origin.
    pub(super) fn clean(&mut self, key: Key, slot: u32) {
        if let Some(live) = self.get(key).filter(|live| live.slot == slot) {
            self.set(Live { dirty: false, ..live });
        }
    }

    /// Makes all dirty blocks [`older`](Live::older).
    pub(super) fn make_older(&mut self) {
        self.slots.update(|live| Some(Live { older: live.older || live.dirty, ..live }));
        self.displaced.values_mut().for_each(|live| live.older |= live.dirty);
    }

    /// Whether a block is in that slot.
    pub(super) fn is_taken(&self, slot: u32) -> bool {
        self.slots.get(slot).is_some()
    }

    /// The block is [`older`](Live::older), if it is there and dirty.
    pub(super) fn mark_older(&mut self, key: Key) {
        if let Some(live) = self.get(key).filter(|live| live.dirty) {
            self.set(Live { older: true, ..live });
        }
    }

    /// The blocks in these slots, but for displaced ones.
    pub(super) fn range(&self, slots: Range<u32>) -> impl Iterator<Item = Live> {
        self.slots.range(slots)
    }

    pub(super) fn displaced(&self) -> impl Iterator<Item = Live> {
        self.displaced.values().copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Live> {
        self.slots.iter().chain(self.displaced())
    }

    /// Changes what is known of a block that is there.
    fn set(&mut self, live: Live) {
        match self.displaced.get_mut(&live.key) {
            Some(it) => *it = live,
            None => self.slots.put(live),
        }
    }
}

fn packed(key: Key) -> u64 {
    pack_key(key) & KEY
}

fn unpacked(packed: u64) -> Key {
    split_key(packed)
}

#[cfg(test)]
mod tests {
    use flashfront_engine::OriginId;

    use super::*;

    fn key(block: u64) -> Key {
        Key { origin: OriginId(3), block: Block(block) }
    }

    fn live(block: u64, slot: u32) -> Live {
        Live { key: key(block), slot, dirty: true, older: false, checksum: 7, checksum_mask: u32::MAX }
    }

    fn all(blocks: &Blocks) -> Vec<(u64, u32)> {
        blocks.iter().map(|live| (live.key.block.0, live.slot)).collect()
    }

    #[test]
    fn a_slot_keeps_all_that_is_known() {
        let mut slots = Slots::new(4);
        let largest = Key { origin: OriginId(0xff_ffff), block: Block((1 << 36) - 1) };
        for (slot, it) in [
            live(0, 0),
            Live { key: largest, dirty: false, older: true, checksum: u32::MAX, ..live(0, 1) },
            Live { checksum: 5, checksum_mask: 0xff, ..live(9, 3) },
        ]
        .into_iter()
        .enumerate()
        {
            slots.put(it);
            assert_eq!(slots.get(it.slot), Some(it), "{slot}");
        }
        assert_eq!(slots.get(2), None);
        assert_eq!(slots.get(4), None);
        assert_eq!(slots.range(1..9).map(|it| it.slot).collect::<Vec<u32>>(), [1, 3]);
        slots.update(|it| (it.slot != 1).then_some(it));
        assert_eq!(slots.iter().map(|it| it.slot).collect::<Vec<u32>>(), [0, 3]);
    }

    #[test]
    fn a_block_is_in_one_slot() {
        let mut blocks = Blocks::new(8);
        (0..4).for_each(|it| blocks.insert(live(it, it as u32)));
        blocks.insert(live(1, 6));
        assert_eq!(all(&blocks), [(0, 0), (2, 2), (3, 3), (1, 6)]);
        blocks.clean(key(1), 1);
        assert_eq!(blocks.dirty(), 4, "that was an older version");
        blocks.clean(key(1), 6);
        assert_eq!(blocks.dirty(), 3);
        blocks.remove_range(key(1), 2);
        assert_eq!(all(&blocks), [(0, 0), (3, 3)]);
        blocks.insert(live(50, 5));
        blocks.remove_range(key(0), u32::MAX);
        assert_eq!((blocks.len(), blocks.iter().count()), (0, 0));
        blocks.insert(live(1, 1));
        blocks.free(0..8);
        assert_eq!(blocks.get(key(1)), None);
    }

    #[test]
    fn a_displaced_block_is_not_forgotten() {
        let mut blocks = Blocks::new(8);
        blocks.insert(live(1, 4));
        blocks.insert(live(2, 4));
        assert_eq!(all(&blocks), [(2, 4), (1, 4)]);
        assert_eq!(blocks.get(key(1)), Some(live(1, 4)));
        blocks.make_older();
        assert!(blocks.iter().all(|live| live.older));
        blocks.clean(key(1), 4);
        assert_eq!(blocks.dirty(), 1);
        blocks.free(0..4);
        assert_eq!(blocks.len(), 2);
        blocks.free(4..8);
        assert_eq!(blocks.len(), 0, "nothing is in that segment any more");
        blocks.insert(live(1, 4));
        blocks.insert_displaced(live(2, 4));
        assert_eq!(all(&blocks), [(1, 4), (2, 4)]);
        blocks.insert(live(2, 0));
        assert_eq!(all(&blocks), [(2, 0), (1, 4)]);
    }
}
