// SPDX-License-Identifier: MIT OR Apache-2.0
//! The blocks that a lane has: in which slot each is, and which of them are dirty.
//!
//! The index knows both. The sets have the dirty blocks in their order, for destage. Index and sets
//! change together, and here alone (checked by `check`).

use alloc::vec::Vec;

use crate::organ::dirty::DirtySet;
use crate::organ::index::{Flat, Found, Index};

/// Dirty blocks that are sorted at a time: 8 MiB of them.
const GATHERED: usize = 1 << 20;

/// The blocks that a lane has.
pub(crate) struct Store {
    index: Index,
    /// The slots that the index was made for.
    slots: u64,
    /// The sets are kept. While the lane opens they are empty, until [`Store::gather`].
    gathered: bool,
    dirty: DirtySet,
    /// Dirty blocks that were written again since the sweep of destage came by.
    rewritten: DirtySet,
}

impl Store {
    /// An empty one, for so many keys and slots; `None` if the index can't hold so many.
    pub(crate) fn new(keys: u64, slots: u64) -> Option<Self> {
        let index = Index::new(keys, slots)?;
        Some(Self { index, slots, gathered: true, dirty: DirtySet::default(), rewritten: DirtySet::default() })
    }

    /// Whether the index has room for so many keys. An error: it never can.
    pub(crate) fn has_room(&self, keys: u64) -> Result<bool, ()> {
        if self.index.has_room(keys) { Ok(true) } else { Index::new(keys, self.slots).map(|_| false).ok_or(()) }
    }

    /// Makes the index anew if it has no room for so many keys. Checksums of its blocks get shorter
    /// then. An error: it never can have that room.
    pub(crate) fn make_room(&mut self, keys: u64) -> Result<bool, ()> {
        if self.index.has_room(keys) {
            return Ok(true);
        }
        let mut wider = Index::new(keys, self.slots).ok_or(())?;
        wider.limit_checksum_bits(self.index.checksum_bits());
        self.index.for_each(|flat, found| {
            wider.insert(flat, Found { checksum: wider.kept(found.checksum), ..found });
        });
        self.index = wider;
        Ok(true)
    }

    /// Where each block is.
    pub(crate) const fn index(&self) -> &Index {
        &self.index
    }

    /// What is known of a block, if it is there.
    pub(crate) fn get(&self, flat: Flat) -> Option<Found> {
        self.index.get(flat)
    }

    /// What the index keeps of a checksum.
    pub(crate) const fn kept(&self, checksum: u32) -> u32 {
        self.index.kept(checksum)
    }

    /// Counts one more hit of a block, if it is there.
    pub(crate) fn touch(&mut self, flat: Flat) {
        self.index.touch(flat);
    }

    /// Counts one hit less of a block, if it is there and had any.
    pub(crate) fn cool(&mut self, flat: Flat) {
        self.index.cool(flat);
    }

    /// What is known of a block, if it is there and `wanted`; then that counts as one more hit.
    pub(crate) fn hit(&mut self, flat: Flat, wanted: impl FnOnce(Found) -> bool) -> Option<Found> {
        self.index.hit(flat, wanted)
    }

    /// A block is in this slot from now on. Returns what was known of it.
    pub(crate) fn put(&mut self, flat: Flat, found: Found) -> Option<Found> {
        let old = self.index.insert(flat, found);
        if self.gathered {
            match (old.is_some_and(|old| old.dirty), found.dirty) {
                (true, true) => self.rewritten.insert(flat),
                (false, true) => self.dirty.insert(flat),
                (true, false) => self.forget_dirty(flat),
                (false, false) => {}
            }
        }
        old
    }

    /// A block is not there any more. Returns what was known of it.
    pub(crate) fn remove(&mut self, flat: Flat) -> Option<Found> {
        let old = self.index.remove(flat)?;
        if old.dirty {
            self.forget_dirty(flat);
        }
        Some(old)
    }

    /// A dirty block is clean from now on.
    pub(crate) fn set_clean(&mut self, flat: Flat) {
        self.index.set_dirty(flat, false);
        self.forget_dirty(flat);
    }

    fn forget_dirty(&mut self, flat: Flat) {
        self.dirty.remove(flat);
        self.rewritten.remove(flat);
    }

    /// The first dirty block from this one on.
    pub(crate) fn next_dirty(&self, from: Flat) -> Option<Flat> {
        self.dirty.next(from)
    }

    /// Whether a block is in the set of dirty ones.
    pub(crate) fn is_dirty(&self, flat: Flat) -> bool {
        self.dirty.next(flat) == Some(flat)
    }

    /// Dirty blocks in the set.
    pub(crate) const fn dirty(&self) -> u64 {
        self.dirty.len()
    }

    /// Whether a dirty block was written again since the sweep of destage came by.
    pub(crate) fn is_rewritten(&self, flat: Flat) -> bool {
        self.rewritten.next(flat) == Some(flat)
    }

    /// The sweep of destage needn't pass over this block.
    pub(crate) fn forget_rewritten(&mut self, flat: Flat) {
        self.rewritten.remove(flat);
    }

    /// The lane opens: the sets are gathered later.
    pub(crate) const fn begin_opening(&mut self) {
        self.gathered = false;
    }

    /// Whether the lane opens, and the sets are not gathered yet.
    pub(crate) const fn is_opening(&self) -> bool {
        !self.gathered
    }

    /// A checkpoint was found whose checksums have only so many bits.
    pub(crate) fn limit_checksum_bits(&mut self, bits: u8) {
        self.index.limit_checksum_bits(bits);
    }

    /// Gathers the dirty blocks from the index.
    ///
    /// In the order of the checkpoint and the log each would wait for RAM three times: that took
    /// half of the time of an opening. Many at a time, sorted, find their neighbours in the
    /// processor's caches.
    pub(crate) fn gather(&mut self) {
        let mut gathered = Vec::new();
        for part in 0..self.index.parts() {
            self.index.scan(part, |flat, found| gathered.extend(found.dirty.then_some(flat)));
            if gathered.len() >= GATHERED || part + 1 == self.index.parts() {
                gathered.sort_unstable();
                gathered.drain(..).for_each(|flat| self.dirty.insert(flat));
            }
        }
        self.gathered = true;
    }

    /// Memory of the tables.
    pub(crate) fn bytes(&self) -> u64 {
        self.index.bytes() + self.dirty.bytes() + self.rewritten.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(slot: u32, dirty: bool) -> Found {
        Found { slot, dirty, hits: 0, checksum: 0 }
    }

    #[test]
    fn the_sets_follow_the_index() {
        let mut store = Store::new(1 << 20, 1 << 10).expect("few keys");
        let (flat, other) = (Flat(7), Flat(9));
        store.put(flat, found(1, true));
        assert!(store.is_dirty(flat) && !store.is_rewritten(flat));
        store.put(flat, found(2, true));
        assert!(store.is_rewritten(flat));
        store.set_clean(flat);
        assert!(!store.is_dirty(flat) && !store.is_rewritten(flat) && store.get(flat).is_some());
        store.put(other, found(3, true));
        store.remove(other);
        assert_eq!(store.next_dirty(Flat(0)), None);
    }

    #[test]
    fn what_came_while_the_lane_opened_is_gathered() {
        let mut store = Store::new(1 << 20, 1 << 10).expect("few keys");
        store.begin_opening();
        for nth in 0..100 {
            store.put(Flat(nth), found(nth as u32, nth % 2 == 0));
        }
        assert_eq!(store.next_dirty(Flat(0)), None);
        store.gather();
        assert_eq!((store.dirty(), store.next_dirty(Flat(3))), (50, Some(Flat(4))));
    }
}
