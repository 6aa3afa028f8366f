// SPDX-License-Identifier: MIT OR Apache-2.0
//! The map: which extent of which object has the newest content of each sector.
//!
//! The map is cut into pages. What no extent covers reads as zeroes. Pages are in the store, and
//! some of them are in RAM, too: as many as a limit allows. Extents that the store does not have
//! come on top of that, until a checkpoint has stored them.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::batch::Record;
use crate::books::Books;
use crate::extent::{EXTENT_BYTES, Extent, PAGE_SECTORS};
use crate::page::{Page, Weight};
use crate::place::PagePlace;

/// A piece of a range: its first sector and length, and the extent with its content; `None`: it
/// is zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) start: u64,
    pub(crate) sectors: u64,
    pub(crate) extent: Option<Extent>,
}

impl Piece {
    /// First sector of the whole stored extent.
    pub(crate) fn stored_start(&self, extent: &Extent) -> u64 {
        self.start - extent.skip()
    }
}

/// Stored changes take at most one part in so many of what the map may take of RAM. They stay there
/// until they are put into their pages.
const CHANGES_SHARE: usize = 4;

/// What a checkpoint wants of a page that the store has as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// Nothing.
    No,
    /// Its changes once more.
    Changes,
    /// The page once more, with its changes put into it.
    Whole,
}

/// A page that a checkpoint has to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) number: u64,
    /// All of it, and not its changes alone.
    pub(crate) is_whole: bool,
    /// What is to be stored is in RAM.
    pub(crate) is_here: bool,
}

/// The map of a volume.
#[derive(Debug)]
pub(crate) struct Map {
    pages: BTreeMap<u64, Page>,
    weight: Weight,
    /// Extents that may be in RAM although the store has them.
    loaded_max: usize,
    /// Counts what is needed, to know the pages that nobody has needed for long.
    now: u64,
}

impl Map {
    /// A map without content. So many bytes of it may be in RAM although the store has them.
    pub(crate) const fn new(bytes_max: usize) -> Self {
        let weight = Weight { stored: 0, unstored: 0, changes: 0 };
        Self { pages: BTreeMap::new(), weight, loaded_max: bytes_max / EXTENT_BYTES, now: 0 }
    }

    /// Extents in RAM.
    pub(crate) const fn extents(&self) -> usize {
        self.weight.stored + self.weight.unstored
    }

    /// Bytes of the extents that the store does not have.
    pub(crate) const fn unstored_bytes(&self) -> usize {
        self.weight.unstored * EXTENT_BYTES
    }

    /// Notes that a page is in the store.
    pub(crate) fn note_stored(&mut self, number: u64, place: PagePlace) {
        self.pages.insert(number, Page::stored(place));
    }

    /// Maps the sectors of a record, which has payload, to this object.
    pub(crate) fn put(&mut self, object: u32, record: &Record, books: &mut impl Books) {
        let at = u32::try_from(record.at).expect("bug: an object has at most 4 GiB");
        let from = record.start % PAGE_SECTORS;
        let extent = Extent::new(from, record.sectors, object, at, (record.stored, record.crc));
        let page = self.pages.entry(record.start / PAGE_SECTORS).or_insert_with(Page::new);
        let before = page.weight();
        page.put(from, from + record.sectors, Some(extent), books);
        self.weight = self.weight.changed(before, page.weight());
    }

    /// Makes a range zeroes.
    pub(crate) fn zero(&mut self, start: u64, sectors: u64, books: &mut impl Books) {
        let end = start + sectors;
        for (number, page) in self.pages.range_mut(start / PAGE_SECTORS..end.div_ceil(PAGE_SECTORS)) {
            let first = number * PAGE_SECTORS;
            let before = page.weight();
            page.put(start.max(first) - first, end.min(first + PAGE_SECTORS) - first, None, books);
            self.weight = self.weight.changed(before, page.weight());
        }
    }

    /// Says which pages must be loaded before a range is cut into pieces.
    pub(crate) fn missing(&mut self, start: u64, sectors: u64) -> Vec<u64> {
        let (end, mut missing) = (start + sectors, Vec::new());
        self.now += 1;
        for (number, page) in self.pages.range_mut(start / PAGE_SECTORS..end.div_ceil(PAGE_SECTORS)) {
            let first = number * PAGE_SECTORS;
            page.use_at(self.now);
            if !page.knows(start.max(first) - first, end.min(first + PAGE_SECTORS) - first) {
                missing.push(*number);
            }
        }
        missing
    }

    /// Returns the pages of a range.
    pub(crate) fn pages_of(&self, start: u64, sectors: u64) -> impl Iterator<Item = u64> {
        let end = start + sectors;
        self.pages.range(start / PAGE_SECTORS..end.div_ceil(PAGE_SECTORS)).map(|(number, _)| *number)
    }

    /// Cuts a range, of which nothing is missing, into pieces.
    pub(crate) fn pieces(&self, start: u64, sectors: u64) -> Vec<Piece> {
        let end = start + sectors;
        let mut pieces = Vec::new();
        let mut at = start;
        let until = |at: &mut u64, to: u64, pieces: &mut Vec<Piece>| {
            if *at < to {
                pieces.push(Piece { start: *at, sectors: to - *at, extent: None });
                *at = to;
            }
        };
        for (number, page) in self.pages.range(start / PAGE_SECTORS..end.div_ceil(PAGE_SECTORS)) {
            let first = number * PAGE_SECTORS;
            for part in page.extents(start.max(first) - first, end.min(first + PAGE_SECTORS) - first) {
                until(&mut at, first + part.from(), &mut pieces);
                pieces.push(Piece { start: at, sectors: part.sectors(), extent: Some(part) });
                at += part.sectors();
            }
        }
        until(&mut at, end, &mut pieces);
        pieces
    }

    /// Returns the parts of a record that still are the newest content: first sector and sectors.
    pub(crate) fn live_parts(&self, object: u32, record: &Record) -> Vec<Piece> {
        let mut pieces = self.pieces(record.start, record.sectors);
        pieces.retain(|piece| {
            let own = piece.extent.filter(|it| it.object == object && u64::from(it.at) == record.at);
            own.is_some_and(|it| piece.stored_start(&it) == record.start)
        });
        pieces
    }

    /// Whether pages have changes that are not in them.
    pub(crate) const fn has_changes(&self) -> bool {
        self.weight.changes > 0
    }

    /// Bytes of pages that the next checkpoint has to store, about.
    pub(crate) fn changed_bytes(&self) -> u64 {
        let bytes = |page: &Page| if self.may_store_changes(page) { page.changes_bytes() } else { page.bytes() };
        self.pages.values().filter(|page| !page.is_stored()).map(bytes).sum()
    }

    /// Whether the changes of a page may be stored without it.
    fn may_store_changes(&self, page: &Page) -> bool {
        self.weight.changes <= self.loaded_max / CHANGES_SHARE && page.are_changes_few()
    }

    /// Pages, and changes beside pages, that a root has to name.
    pub(crate) fn places_count(&self) -> usize {
        self.pages.values().map(|page| 1 + usize::from(page.has_changes())).sum()
    }

    /// Returns the extents of some pages that are in RAM, each with its first sector in the volume.
    pub(crate) fn extents_of(&self, pages: &Range<u64>) -> impl Iterator<Item = (u64, Extent)> {
        self.pages.range(pages.clone()).flat_map(|(number, page)| {
            page.extents(0, PAGE_SECTORS).into_iter().map(move |it| (number * PAGE_SECTORS + it.from(), it))
        })
    }

    /// Returns the pages from this number on that may be in RAM together: at least one, if there is
    /// one.
    pub(crate) fn part_from(&self, first: u64) -> Range<u64> {
        let (mut bytes, mut end) = (0, first);
        for (number, page) in self.pages.range(first..) {
            bytes += page.bytes();
            if end > first && bytes > (self.loaded_max * EXTENT_BYTES) as u64 {
                break;
            }
            end = number + 1;
        }
        first..end
    }

    /// Tells where the pages are stored that are not in RAM: their numbers and places.
    pub(crate) fn places_in_store(&self) -> impl Iterator<Item = (u64, PagePlace)> {
        let in_store = self.pages.iter().filter(|(_, page)| !page.is_loaded());
        in_store.filter_map(|(number, page)| Some((*number, page.place()?)))
    }

    /// The first page from this number on that a checkpoint has to store. `again` tells what it
    /// wants of pages that are stored.
    pub(crate) fn next_to_store(&self, from: u64, again: impl Fn(u64, &Page) -> Again) -> Option<Due> {
        self.pages.range(from..).find_map(|(number, page)| {
            let again = again(*number, page);
            if page.is_stored() && again == Again::No {
                return None;
            }
            let is_whole = again == Again::Whole || !self.may_store_changes(page);
            Some(Due { number: *number, is_whole, is_here: !is_whole || page.is_loaded() })
        })
    }

    /// Stores a page by `store`, which returns where; of a page that is not due as a whole the
    /// changes. An empty page goes. Of a page whose base can't be had the changes are stored.
    pub(crate) fn store(&mut self, due: Due, books: &mut impl Books, store: impl FnOnce(Vec<u8>) -> PagePlace) {
        let Some(page) = self.pages.get_mut(&due.number) else { return };
        let before = page.weight();
        if due.is_whole {
            page.replace_base(books);
        }
        if !due.is_whole || !page.is_loaded() {
            page.store_changes(books, store);
            self.weight = self.weight.changed(before, page.weight());
            return;
        }
        page.merge(books);
        if let Some(place) = page.place() {
            books.page_freed(place);
        }
        if page.is_empty() {
            self.pages.remove(&due.number);
            self.weight = self.weight.changed(before, Weight::default());
        } else {
            page.store(store);
            self.weight = self.weight.changed(before, page.weight());
        }
    }

    /// Tells where all pages are stored: their numbers and places.
    pub(crate) fn places(&self) -> impl Iterator<Item = (u64, PagePlace)> {
        self.pages.iter().map(|(number, page)| {
            debug_assert!(page.is_stored(), "bug: a checkpoint without the changes of page {number}");
            (*number, page.place().expect("bug: a checkpoint without a page"))
        })
    }

    /// Tells where changes are stored beside their pages.
    pub(crate) fn changes_places(&self) -> impl Iterator<Item = (u64, PagePlace)> {
        self.pages.iter().filter_map(|(number, page)| Some((*number, page.changes_place()?)))
    }

    /// Takes changes of a page as they were stored.
    pub(crate) fn load_changes(
        &mut self,
        number: u64,
        place: PagePlace,
        bytes: &[u8],
        books: &mut impl Books,
    ) -> Result<(), String> {
        let page = self.pages.get_mut(&number).ok_or("changes of a page that the map does not have")?;
        let before = page.weight();
        page.load_changes(place, bytes, books)?;
        self.weight = self.weight.changed(before, page.weight());
        Ok(())
    }

    /// Where these pages are stored.
    pub(crate) fn places_of(&self, numbers: &[u64]) -> Vec<(u64, PagePlace)> {
        let place = |number: &u64| Some((*number, self.pages.get(number)?.place()?));
        numbers.iter().filter_map(place).collect()
    }

    /// Takes a page as it was stored.
    pub(crate) fn load(
        &mut self,
        number: u64,
        place: PagePlace,
        bytes: &[u8],
        books: &mut impl Books,
    ) -> Result<(), String> {
        let Some(page) = self.pages.get_mut(&number) else { return Ok(()) };
        let before = page.weight();
        page.use_at(self.now);
        page.load(place, bytes, books)?;
        self.weight = self.weight.changed(before, page.weight());
        Ok(())
    }

    /// Leaves pages to the store that nobody has needed for long, if there are too many in RAM.
    /// Some must stay: their numbers and places tell.
    pub(crate) fn evict(&mut self, books: &mut impl Books, must_stay: impl Fn(u64, PagePlace) -> bool) {
        if self.weight.stored <= self.loaded_max {
            return;
        }
        // Somewhat more goes, so that this look at all pages is rare.
        let stays = self.loaded_max - self.loaded_max / 8;
        let may_go =
            |number: u64, page: &Page| page.is_loaded() && page.place().is_some_and(|place| !must_stay(number, place));
        let mut oldest: Vec<(u64, u64)> = self
            .pages
            .iter()
            .filter(|(number, page)| may_go(**number, page))
            .map(|(number, page)| (page.used(), *number))
            .collect();
        oldest.sort_unstable();
        for (_, number) in oldest {
            if self.weight.stored <= stays {
                break;
            }
            let page = self.pages.get_mut(&number).expect("bug: a page that was here a moment ago");
            let before = page.weight();
            page.unload(books);
            self.weight = self.weight.changed(before, page.weight());
        }
    }
}

#[cfg(test)]
mod tests;
