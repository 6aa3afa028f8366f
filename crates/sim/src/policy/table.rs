// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policies keep their state in tables: entries by key, and lists through them.
//!
//! A table has one slab, a hash index over the slab, and doubly linked lists whose links are in the
//! entries. Finding, moving and removing an entry costs the same however many there are, and no
//! entry is allocated on its own. An entry is in at most one list of each set of links. Code that
//! moves an entry names the list that the entry is in.

use std::ops::{Index, IndexMut};

use hashbrown::HashTable;

/// The place of an entry in the slab, as long as the entry is in the table.
pub(crate) type Slot = u32;

const NONE: Slot = Slot::MAX;

/// Entries by key, each in up to `SETS` lists.
pub(crate) struct Table<T, const SETS: usize = 1> {
    index: HashTable<Slot>,
    entries: Vec<Entry<T, SETS>>,
    /// Places in the slab that hold nothing.
    free: Vec<Slot>,
}

struct Entry<T, const SETS: usize> {
    key: u64,
    links: [Links; SETS],
    value: T,
}

#[derive(Clone, Copy)]
struct Links {
    older: Slot,
    newer: Slot,
}

const UNLINKED: Links = Links { older: NONE, newer: NONE };

/// Some entries of a table in order, from the oldest to the newest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    oldest: Slot,
    newest: Slot,
    len: usize,
    set: usize,
}

impl List {
    /// Makes an empty list of the first set of links.
    pub(crate) const fn new() -> Self {
        Self::of_set(0)
    }

    /// Makes an empty list of that set of links.
    pub(crate) const fn of_set(set: usize) -> Self {
        Self { oldest: NONE, newest: NONE, len: 0, set }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn oldest(&self) -> Option<Slot> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    pub(crate) fn newest(&self) -> Option<Slot> {
        (self.newest != NONE).then_some(self.newest)
    }
}

/// Multiplies and folds the two halves of the product, as foldhash does. The seed is fixed, so that
/// runs repeat.
pub(crate) fn hash(key: u64) -> u64 {
    let product = u128::from(key ^ 0x243f_6a88_85a3_08d3) * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ product as u64
}

impl<T, const SETS: usize> Table<T, SETS> {
    pub(crate) fn new() -> Self {
        Self { index: HashTable::new(), entries: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn find(&self, key: u64) -> Option<Slot> {
        self.index.find(hash(key), |slot| self.entries[*slot as usize].key == key).copied()
    }

    /// Adds an entry for a key that has none. The entry is in no list.
    pub(crate) fn insert(&mut self, key: u64, value: T) -> Slot {
        let entry = Entry { key, links: [UNLINKED; SETS], value };
        let slot = if let Some(slot) = self.free.pop() {
            self.entries[slot as usize] = entry;
            slot
        } else {
            self.entries.push(entry);
            (self.entries.len() - 1) as Slot
        };
        let entries = &self.entries;
        self.index.insert_unique(hash(key), slot, |slot| hash(entries[*slot as usize].key));
        slot
    }

    /// Removes an entry that is in no list; returns its key.
    pub(crate) fn remove(&mut self, slot: Slot) -> u64 {
        let key = self.entries[slot as usize].key;
        self.index.find_entry(hash(key), |it| *it == slot).expect("a slot in use is in the index").remove();
        self.free.push(slot);
        key
    }

    pub(crate) fn key(&self, slot: Slot) -> u64 {
        self.entries[slot as usize].key
    }

    /// The next newer entry in `list`, which the entry is in.
    pub(crate) fn newer(&self, slot: Slot, list: &List) -> Option<Slot> {
        let newer = self.links(slot, list.set).newer;
        (newer != NONE).then_some(newer)
    }

    /// Makes an entry the newest of the list. It must be in no list of the same set.
    pub(crate) fn push(&mut self, list: &mut List, slot: Slot) {
        *self.links_mut(slot, list.set) = Links { older: list.newest, newer: NONE };
        match list.newest {
            NONE => list.oldest = slot,
            newest => self.links_mut(newest, list.set).newer = slot,
        }
        list.newest = slot;
        list.len += 1;
    }

    /// Takes an entry out of the list that it is in.
    pub(crate) fn unlink(&mut self, list: &mut List, slot: Slot) {
        let Links { older, newer } = self.links(slot, list.set);
        match older {
            NONE => list.oldest = newer,
            older => self.links_mut(older, list.set).newer = newer,
        }
        match newer {
            NONE => list.newest = older,
            newer => self.links_mut(newer, list.set).older = older,
        }
        list.len -= 1;
    }

    /// Makes an entry of the list its newest.
    pub(crate) fn touch(&mut self, list: &mut List, slot: Slot) {
        if list.newest != slot {
            self.unlink(list, slot);
            self.push(list, slot);
        }
    }

    /// Takes the oldest out of the list.
    pub(crate) fn pop(&mut self, list: &mut List) -> Option<Slot> {
        let slot = list.oldest()?;
        self.unlink(list, slot);
        Some(slot)
    }

    /// Removes the oldest of the list; returns its key.
    pub(crate) fn remove_oldest(&mut self, list: &mut List) -> Option<u64> {
        let slot = self.pop(list)?;
        Some(self.remove(slot))
    }

    /// Moves all of `younger` to the end of `list`.
    pub(crate) fn append(&mut self, list: &mut List, younger: &mut List) {
        debug_assert_eq!(list.set, younger.set, "lists of one set of links");
        match (list.newest, younger.oldest) {
            (_, NONE) => return,
            (NONE, _) => list.oldest = younger.oldest,
            (newest, oldest) => {
                self.links_mut(newest, list.set).newer = oldest;
                self.links_mut(oldest, list.set).older = newest;
            }
        }
        list.newest = younger.newest;
        list.len += younger.len;
        *younger = List::of_set(list.set);
    }

    fn links(&self, slot: Slot, set: usize) -> Links {
        self.entries[slot as usize].links[set]
    }

    fn links_mut(&mut self, slot: Slot, set: usize) -> &mut Links {
        &mut self.entries[slot as usize].links[set]
    }
}

impl<T, const SETS: usize> Index<Slot> for Table<T, SETS> {
    type Output = T;

    fn index(&self, slot: Slot) -> &T {
        &self.entries[slot as usize].value
    }
}

impl<T, const SETS: usize> IndexMut<Slot> for Table<T, SETS> {
    fn index_mut(&mut self, slot: Slot) -> &mut T {
        &mut self.entries[slot as usize].value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys<const SETS: usize>(table: &Table<(), SETS>, list: &List) -> Vec<u64> {
        let mut keys = Vec::new();
        let mut at = list.oldest();
        while let Some(slot) = at {
            keys.push(table.key(slot));
            at = table.newer(slot, list);
        }
        assert_eq!(list.len(), keys.len());
        assert_eq!(list.newest().map(|slot| table.key(slot)), keys.last().copied());
        keys
    }

    #[test]
    fn lists_keep_their_order() {
        let mut table = Table::<()>::new();
        let (mut one, mut other) = (List::new(), List::new());
        let slots: Vec<Slot> = (0..5).map(|key| table.insert(key, ())).collect();
        for slot in &slots[..3] {
            table.push(&mut one, *slot);
        }
        table.touch(&mut one, slots[0]);
        table.touch(&mut one, slots[0]);
        assert_eq!(keys(&table, &one), [1, 2, 0]);
        table.unlink(&mut one, slots[2]);
        assert_eq!(keys(&table, &one), [1, 0]);
        table.push(&mut other, slots[3]);
        table.push(&mut other, slots[4]);
        table.append(&mut one, &mut other);
        assert_eq!((keys(&table, &one), keys(&table, &other)), (vec![1, 0, 3, 4], vec![]));
        table.append(&mut one, &mut other);
        table.append(&mut other, &mut one);
        assert_eq!((keys(&table, &one), keys(&table, &other)), (vec![], vec![1, 0, 3, 4]));
        assert_eq!(table.remove_oldest(&mut other), Some(1));
        assert_eq!((table.find(1), table.len()), (None, 4));
        assert_eq!(table.remove_oldest(&mut one), None);
    }

    #[test]
    fn an_entry_is_in_a_list_of_each_set() {
        let mut table = Table::<(), 2>::new();
        let (mut one, mut other) = (List::of_set(0), List::of_set(1));
        let slots: Vec<Slot> = (0..3).map(|key| table.insert(key, ())).collect();
        for slot in &slots {
            table.push(&mut one, *slot);
        }
        for slot in slots.iter().rev() {
            table.push(&mut other, *slot);
        }
        table.unlink(&mut one, slots[1]);
        assert_eq!((keys(&table, &one), keys(&table, &other)), (vec![0, 2], vec![2, 1, 0]));
    }

    #[test]
    fn keys_are_found_after_others_took_the_places_of_removed_ones() {
        let mut table = Table::<u64>::new();
        for round in 0..10 {
            for key in 0..1000 {
                let slot = table.insert(key << 20 | round, key);
                assert_eq!(table.find(key << 20 | round), Some(slot));
            }
            for key in (0..1000).filter(|key| key % 3 > 0) {
                let slot = table.find(key << 20 | round).unwrap();
                assert_eq!((table[slot], table.remove(slot)), (key, key << 20 | round));
            }
        }
        assert_eq!((table.len(), table.entries.len()), (3340, 1000 + 9 * 334));
        for round in 0..10 {
            assert!((0..1000).all(|key| table.find(key << 20 | round).is_some() == (key % 3 == 0)));
        }
    }
}
