// SPDX-License-Identifier: MIT OR Apache-2.0
//! The objects that a volume uses, how much of each is live, and those that wait to be deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::books::Books;
use crate::canary::{Canary, planted};
use crate::name::{Key, Name, Stamp};
use crate::place::PagePlace;
use crate::wire::SECTOR_BYTES;

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// With data: sectors are live.
    Data,
    /// A checkpoint: bytes of pages are live.
    Map,
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// The volume that it belongs to; `None`: this one.
    pub source: Option<Arc<str>>,
    /// Its number.
    pub stamp: Stamp,
    /// Bytes of its head.
    pub head: u32,
    /// Its bytes.
    pub bytes: u64,
    /// A manifest that is not after the first one with the object.
    pub born: u64,
    /// Sectors of data, or bytes of pages, that are in use.
    pub live: u64,
    /// Sectors that pages in the store name, and that changes of these pages lie over. The object
    /// is not to be deleted. Of pages that are not in RAM such sectors are among the live ones.
    pub covered: u64,
    /// Sectors of its extents, if those are stored in frames; 0: they are stored as they are.
    pub content: u64,
}

impl Entry {
    /// The object's key.
    #[must_use]
    pub fn key(&self) -> Key {
        let name = match self.kind {
            Kind::Data => Name::Data(self.stamp),
            Kind::Map => Name::Map(self.stamp),
        };
        Key { source: self.source.clone(), name }
    }

    /// Whether its extents are stored in frames, which say their form.
    pub(crate) const fn is_framed(&self) -> bool {
        self.content > 0
    }

    /// Bytes of it that are in use.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        match self.kind {
            Kind::Data => match self.content {
                0 => self.live * SECTOR_BYTES,
                content => self.bytes.saturating_sub(self.head.into()) * self.live / content,
            },
            Kind::Map => self.live,
        }
    }
}

/// An object that is not in use any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retired {
    /// The object.
    pub entry: Entry,
    /// The first manifest without it; 0: the one that will first name the checkpoint under way.
    pub gone: u64,
}

/// The objects of a volume.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: BTreeMap<u32, Entry>,
    next: u32,
    retired: Vec<Retired>,
}

impl Table {
    pub(crate) fn new(entries: BTreeMap<u32, Entry>, retired: Vec<Retired>) -> Self {
        let next = entries.last_key_value().map_or(0, |(number, _)| number + 1);
        Self { entries, next, retired }
    }

    /// Lets all uses be counted anew. Returns what they were.
    pub(crate) fn forget_uses(&mut self) -> BTreeMap<u32, u64> {
        self.entries.iter_mut().map(|(number, entry)| (*number, std::mem::take(&mut entry.live))).collect()
    }

    /// Takes all uses as they were before somebody began to count. What is covered was among them.
    pub(crate) fn set_uses(&mut self, uses: &BTreeMap<u32, u64>) {
        for (number, entry) in &mut self.entries {
            entry.live = uses.get(number).copied().unwrap_or(0).saturating_sub(entry.covered);
        }
    }

    /// Gives an object a number.
    pub(crate) fn add(&mut self, entry: Entry) -> u32 {
        let number = self.next;
        self.next = number.checked_add(1).expect("bug: a volume has had 2^32 objects");
        self.entries.insert(number, entry);
        number
    }

    pub(crate) fn get(&self, number: u32) -> &Entry {
        self.entries.get(&number).expect("bug: the map uses an object that is not in the table")
    }

    pub(crate) fn try_get(&self, number: u32) -> Option<&Entry> {
        self.entries.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> &mut Entry {
        self.entries.get_mut(&number).expect("bug: the map uses an object that is not in the table")
    }

    /// Counts a use, if there is such an object.
    pub(crate) fn use_of(&mut self, number: u32, live: u64) -> bool {
        self.entries.get_mut(&number).map(|entry| entry.live += live).is_some()
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (u32, &Entry)> {
        self.entries.iter().map(|(number, entry)| (*number, entry))
    }

    pub(crate) fn retired(&self) -> &[Retired] {
        &self.retired
    }

    /// Retires the objects that are not in use. `gone` is set later.
    pub(crate) fn retire(&mut self, keeps: impl Fn(u32) -> bool) {
        let unused = |number: &u32, entry: &mut Entry| entry.live + entry.covered == 0 && !keeps(*number);
        for (_, entry) in self.entries.extract_if(.., |number, entry| unused(number, entry)) {
            // Objects of other volumes are never deleted.
            if entry.source.is_none() {
                self.retired.push(Retired { entry, gone: 0 });
            }
        }
    }

    /// Makes all objects those of another volume, which this one shares.
    pub(crate) fn belong_to(&mut self, source: &Arc<str>) {
        self.retired.clear();
        self.entries.values_mut().for_each(|entry| _ = entry.source.get_or_insert_with(|| Arc::clone(source)));
    }

    /// Sets the first manifest without the objects that a checkpoint has retired.
    pub(crate) fn settle(&mut self, gone: u64) {
        self.retired.iter_mut().filter(|it| it.gone == 0).for_each(|it| it.gone = gone);
    }

    /// Removes an object that was deleted.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.retired.retain(|it| it.entry.key() != *key);
    }

    /// Puts the objects of an older state in place of these, which are retired.
    pub(crate) fn roll_back(&mut self, older: &Self) {
        let keys: BTreeSet<Key> = older.entries.values().map(Entry::key).collect();
        let replaced = std::mem::take(&mut self.entries);
        self.retired.retain(|it| !keys.contains(&it.entry.key()));
        for (_, entry) in replaced {
            if entry.source.is_none() && !keys.contains(&entry.key()) {
                self.retired.push(Retired { entry, gone: 0 });
            }
        }
        self.entries = older.entries.clone();
        self.next = self.next.max(older.next);
    }
}

impl Books for Table {
    fn used(&mut self, object: u32, sectors: u64) -> bool {
        self.use_of(object, sectors)
    }

    fn freed(&mut self, object: u32, sectors: u64) {
        self.get_mut(object).live -= sectors;
    }

    fn covered(&mut self, object: u32, sectors: u64) {
        let entry = self.get_mut(object);
        entry.live -= sectors;
        entry.covered += if planted(Canary::CoveredForgotten) { 0 } else { sectors };
    }

    fn uncovered(&mut self, object: u32, sectors: u64) {
        let entry = self.get_mut(object);
        entry.live += sectors;
        entry.covered = entry.covered.saturating_sub(sectors);
    }

    fn page_freed(&mut self, place: PagePlace) {
        self.get_mut(place.object).live -= u64::from(place.bytes);
    }
}

/// The table, where the root has counted already what pages that are read use.
pub(crate) struct Counted<'a>(pub(crate) &'a mut Table);

impl Books for Counted<'_> {
    fn used(&mut self, object: u32, sectors: u64) -> bool {
        self.0.use_of(object, if planted(Canary::UsesTwice) { sectors } else { 0 })
    }

    fn freed(&mut self, object: u32, sectors: u64) {
        self.0.freed(object, sectors);
    }

    fn covered(&mut self, object: u32, sectors: u64) {
        self.0.covered(object, sectors);
    }

    fn uncovered(&mut self, object: u32, sectors: u64) {
        self.0.uncovered(object, sectors);
    }

    fn page_freed(&mut self, place: PagePlace) {
        self.0.page_freed(place);
    }
}
