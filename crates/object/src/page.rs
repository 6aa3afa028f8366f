// SPDX-License-Identifier: MIT OR Apache-2.0
//! A page of the map: 16 MiB of the volume, and the unit of checkpoints.
//!
//! A page has a base, as a checkpoint stored it, and the changes that came after it. The base may
//! be in the store alone: changes don't need it. A checkpoint stores few changes beside the base,
//! and puts many into it (ADR 0083). The changes of a base that is damaged are always stored beside
//! it (ADR 0080).
//!
//! The store's base still names what changes lie over. Those sectors are not in use, but their
//! object is not to be deleted: they are covered. As long as the base is not here nobody knows
//! which those are, and all of them count as used.

use crate::books::Books;
use crate::canary::{Canary, planted};
use crate::extent::{EXTENT_BYTES, Extent, PAGE_SECTORS, decode, encode, gaps, over, replace};
use crate::place::{PLACE_BYTES, PagePlace};

/// Changes of more than one part in so many of a page's sectors are put into the base. So what
/// changes lie over is at most that part of the volume.
const COVERED_SHARE: u64 = 4;

/// A page.
#[derive(Debug)]
pub(crate) struct Page {
    /// Where the base is stored as it is. Without a place the base is here alone, and is changed
    /// itself.
    place: Option<PagePlace>,
    /// Sorted, without overlaps; `None`: it is in the store alone.
    base: Option<Vec<Extent>>,
    /// Sorted, without overlaps. They lie over the base.
    changes: Vec<Extent>,
    /// Where the changes are stored as they are.
    changes_place: Option<PagePlace>,
    /// Bytes of changes that were stored since the base was.
    changes_stored: usize,
    /// When somebody needed it last.
    used: u64,
}

/// How many extents of a page are in RAM, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Extents that the store has, too.
    pub(crate) stored: usize,
    /// Extents that are here alone.
    pub(crate) unstored: usize,
    /// Extents of both kinds that are changes.
    pub(crate) changes: usize,
}

impl Weight {
    /// This sum, after one of its parts has changed.
    pub(crate) const fn changed(self, before: Self, after: Self) -> Self {
        Self {
            stored: self.stored + after.stored - before.stored,
            unstored: self.unstored + after.unstored - before.unstored,
            changes: self.changes + after.changes - before.changes,
        }
    }
}

impl Page {
    /// A page of which nothing is stored.
    pub(crate) const fn new() -> Self {
        Self::with(None, Some(Vec::new()))
    }

    /// A page that is in the store alone.
    pub(crate) const fn stored(place: PagePlace) -> Self {
        Self::with(Some(place), None)
    }

    const fn with(place: Option<PagePlace>, base: Option<Vec<Extent>>) -> Self {
        Self { place, base, changes: Vec::new(), changes_place: None, changes_stored: 0, used: 0 }
    }

    pub(crate) const fn place(&self) -> Option<PagePlace> {
        self.place
    }

    pub(crate) const fn is_loaded(&self) -> bool {
        self.base.is_some()
    }

    /// Where its changes are stored, if they are.
    pub(crate) const fn changes_place(&self) -> Option<PagePlace> {
        self.changes_place
    }

    pub(crate) const fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Whether the store has it as it is.
    pub(crate) const fn is_stored(&self) -> bool {
        self.place.is_some() && (self.changes.is_empty() || self.changes_place.is_some())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.base.as_ref().is_some_and(Vec::is_empty)
    }

    pub(crate) fn weight(&self) -> Weight {
        let (base, changes) = (self.base.as_ref().map_or(0, Vec::len), self.changes.len());
        let (stored, unstored) = match (self.place, self.changes_place) {
            (Some(_), None) => (base, changes),
            (Some(_), Some(_)) => (base + changes, 0),
            (None, _) => (0, base + changes),
        };
        Weight { stored, unstored, changes }
    }

    /// Bytes that it will have in the store as a whole, about.
    pub(crate) fn bytes(&self) -> u64 {
        let base = self.base.as_ref().map_or(0, |base| base.len() * EXTENT_BYTES);
        let stored = self.place.filter(|_| self.base.is_none()).map_or(0, |place| place.bytes as usize);
        (base + stored) as u64 + self.changes_bytes()
    }

    /// Bytes that its changes will have in the store.
    pub(crate) const fn changes_bytes(&self) -> u64 {
        (self.changes.len() * EXTENT_BYTES) as u64
    }

    /// Whether the changes are worth to be stored beside the base. Every checkpoint stores all of
    /// them once more. When that has cost what the base costs, they are put into it.
    pub(crate) fn are_changes_few(&self) -> bool {
        let next = self.changes.len() * EXTENT_BYTES + PLACE_BYTES;
        let sectors: u64 = self.changes.iter().map(Extent::sectors).sum();
        let is_cheap = self.place.is_some_and(|place| self.changes_stored + 2 * next <= place.bytes as usize);
        is_cheap && self.has_changes() && sectors * COVERED_SHARE <= PAGE_SECTORS
    }

    pub(crate) const fn used(&self) -> u64 {
        self.used
    }

    pub(crate) const fn use_at(&mut self, now: u64) {
        self.used = now;
    }

    /// Puts an extent, or zeroes, in place of a range.
    pub(crate) fn put(&mut self, from: u64, to: u64, extent: Option<Extent>, books: &mut impl Books) {
        if self.place.is_none() {
            let base = self.base.as_mut().expect("bug: a page that is nowhere");
            replace(base, from, to, extent, books);
            return;
        }
        if extent.is_none() && self.is_loaded() && self.extents(from, to).is_empty() {
            return;
        }
        for (from, to) in gaps(&self.changes, from, to) {
            self.base_sectors(from, to, |object, sectors| books.covered(object, sectors));
        }
        if !planted(Canary::ChangesStale) {
            self.free_changes_place(books);
        }
        replace(&mut self.changes, from, to, Some(extent.unwrap_or(Extent::zeroes(from, to))), books);
    }

    /// Tells of each extent of a base that is here, in a range, how many sectors of which object
    /// it is.
    fn base_sectors(&self, from: u64, to: u64, mut tell: impl FnMut(u32, u64)) {
        for it in over(self.base.as_deref().unwrap_or_default(), from, to) {
            tell(it.object, it.cut(from, to).sectors());
        }
    }

    /// The base has come: what changes lie over is known from now on.
    fn cover(&self, books: &mut impl Books) {
        for change in &self.changes {
            self.base_sectors(change.from(), change.end(), |object, sectors| books.covered(object, sectors));
        }
    }

    /// The base goes.
    fn uncover(&self, books: &mut impl Books) {
        for change in &self.changes {
            self.base_sectors(change.from(), change.end(), |object, sectors| books.uncovered(object, sectors));
        }
    }

    fn free_changes_place(&mut self, books: &mut impl Books) {
        if let Some(place) = self.changes_place.take() {
            books.page_freed(place);
        }
    }

    /// Puts the changes into the base, which must be here.
    pub(crate) fn merge(&mut self, books: &mut impl Books) {
        self.free_changes_place(books);
        self.uncover(books);
        let base = self.base.as_mut().expect("bug: a page that is changed is here");
        let changes = std::mem::take(&mut self.changes);
        if let Some(place) = self.place.take_if(|_| !changes.is_empty()) {
            books.page_freed(place);
        }
        for change in changes {
            replace(base, change.from(), change.end(), Some(change).filter(|it| !it.is_zeroes()), books);
        }
    }

    /// Whether the extents of this range are known without the store.
    pub(crate) fn knows(&self, from: u64, to: u64) -> bool {
        self.is_loaded() || gaps(&self.changes, from, to).is_empty()
    }

    /// The extents of a range, cut to it.
    pub(crate) fn extents(&self, from: u64, to: u64) -> Vec<Extent> {
        debug_assert!(self.knows(from, to), "bug: a page is asked that is in the store alone");
        let base = self.base.as_deref().unwrap_or_default();
        let mut found: Vec<Extent> = over(base, from, to).map(|it| it.cut(from, to)).collect();
        for change in over(&self.changes, from, to) {
            let change = change.cut(from, to);
            replace(&mut found, change.from(), change.end(), Some(change), &mut ());
        }
        found.retain(|it| !it.is_zeroes());
        found
    }

    /// All extents of a base that is here and has no changes.
    pub(crate) fn all(&self) -> &[Extent] {
        debug_assert!(self.changes.is_empty(), "bug: the page was not merged");
        self.base.as_deref().expect("bug: the page is in the store alone")
    }

    /// Notes where it is stored now.
    pub(crate) fn store(&mut self, store: impl FnOnce(Vec<u8>) -> PagePlace) {
        self.place = Some(store(encode(self.all())));
        self.changes_stored = 0;
    }

    /// Stores the changes beside the base.
    pub(crate) fn store_changes(&mut self, books: &mut impl Books, store: impl FnOnce(Vec<u8>) -> PagePlace) {
        self.free_changes_place(books);
        let changes = encode(&self.changes);
        self.changes_stored += changes.len() + PLACE_BYTES;
        self.changes_place = Some(store(changes));
    }

    /// Lets a base be forgotten that is not here, if the changes lie over all of it.
    pub(crate) fn replace_base(&mut self, books: &mut impl Books) {
        if !self.is_loaded() && self.knows(0, PAGE_SECTORS) {
            self.base = Some(Vec::new());
            self.merge(books);
        }
    }

    /// Takes the changes as they were stored.
    pub(crate) fn load_changes(
        &mut self,
        place: PagePlace,
        bytes: &[u8],
        books: &mut impl Books,
    ) -> Result<(), String> {
        let changes = decode(bytes).ok_or("changes of a page of the map are not sorted, or cut short")?;
        are_known(changes.iter().filter(|it| !it.is_zeroes()), books)?;
        (self.changes_stored, self.changes_place) = (bytes.len(), Some(place));
        self.changes = changes;
        self.cover(books);
        Ok(())
    }

    /// Takes the base as it was stored at this place.
    pub(crate) fn load(&mut self, place: PagePlace, bytes: &[u8], books: &mut impl Books) -> Result<(), String> {
        if self.place != Some(place) || self.is_loaded() {
            return Ok(());
        }
        let base = decode(bytes).ok_or("a page of the map is not sorted, or cut short")?;
        are_known(base.iter(), books)?;
        self.base = Some(base);
        if planted(Canary::ChangesLost) {
            self.changes.clear();
        }
        self.cover(books);
        Ok(())
    }

    /// Leaves the base to the store, if that has it.
    pub(crate) fn unload(&mut self, books: &mut impl Books) {
        if self.place.is_some() {
            self.uncover(books);
            self.base = None;
        }
    }
}

/// Tells which sectors of which objects are used. The root must have all of these.
fn are_known<'a>(mut extents: impl Iterator<Item = &'a Extent>, books: &mut impl Books) -> Result<(), String> {
    match extents.find(|it| !books.used(it.object, it.sectors())) {
        Some(it) => Err(format!("a page of the map uses object {}, which the root does not have", it.object)),
        None => Ok(()),
    }
}
