// SPDX-License-Identifier: MIT OR Apache-2.0
//! The map: which extent of which object has the newest content of each sector.
//!
//! The map is cut into pages of 16 MiB, which are the unit of checkpoints. Within a page extents
//! are sorted and don't overlap. What no extent covers reads as zeroes.

use std::collections::BTreeMap;

use crate::batch::Record;
use crate::form::FRAME_BYTES_MAX;
use crate::wire::{Put, SECTOR_BYTES, Take};

/// Sectors of a page.
pub(crate) const PAGE_SECTORS: u64 = 1 << 15;

const EXTENT_BYTES: usize = 24;

/// A part of the volume, and where its content is stored. Sectors are counted within the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    start: u16,
    /// Sectors - 1.
    last: u16,
    /// Number of the object in the table.
    pub(crate) object: u32,
    /// Where the stored extent begins in the object's payload.
    pub(crate) at: u32,
    /// Bytes of the stored extent.
    pub(crate) stored: u32,
    pub(crate) crc: u32,
    /// Sectors of the stored extent before this part.
    skip: u16,
    /// Sectors of the stored extent - 1.
    whole: u16,
}

impl Extent {
    fn from(&self) -> u64 {
        self.start.into()
    }

    fn end(&self) -> u64 {
        self.from() + self.sectors()
    }

    pub(crate) fn sectors(&self) -> u64 {
        u64::from(self.last) + 1
    }

    /// Sectors of the stored extent.
    pub(crate) fn whole(&self) -> u64 {
        u64::from(self.whole) + 1
    }

    pub(crate) fn skip(&self) -> u64 {
        self.skip.into()
    }

    /// The part of it that lies in this range of the page.
    fn cut(&self, from: u64, to: u64) -> Self {
        let (start, end) = (self.from().max(from), self.end().min(to));
        let skipped = start - self.from();
        let narrow = |value: u64| u16::try_from(value).expect("bug: a sector outside its page");
        Self { start: narrow(start), last: narrow(end - start - 1), skip: narrow(self.skip() + skipped), ..*self }
    }
}

/// Where a page was stored last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PagePlace {
    pub(crate) object: u32,
    pub(crate) at: u64,
    pub(crate) bytes: u32,
    pub(crate) crc: u32,
}

#[derive(Debug, Default)]
struct Page {
    extents: Vec<Extent>,
    /// Where it is stored as it is; `None` after a change.
    place: Option<PagePlace>,
}

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

/// What a change has freed.
pub(crate) trait Freed {
    /// Tells that some sectors of an object with data are not in use any more.
    fn sectors(&mut self, object: u32, sectors: u64);
    /// Tells that a page in a checkpoint is not in use any more.
    fn page(&mut self, place: PagePlace);
}

/// The map of a volume.
#[derive(Debug, Default)]
pub(crate) struct Map {
    pages: BTreeMap<u64, Page>,
    extents: usize,
}

impl Map {
    /// Extents in it.
    pub(crate) const fn extents(&self) -> usize {
        self.extents
    }

    /// Maps the sectors of a record, which has payload, to this object.
    pub(crate) fn put(&mut self, object: u32, record: &Record, freed: &mut impl Freed) {
        let narrow = |value: u64| u16::try_from(value).expect("bug: an extent crosses pages");
        let at = u32::try_from(record.at).expect("bug: an object has at most 4 GiB");
        let last = narrow(record.sectors - 1);
        let extent = Extent {
            start: narrow(record.start % PAGE_SECTORS),
            last,
            object,
            at,
            stored: record.stored,
            crc: record.crc,
            skip: 0,
            whole: last,
        };
        let page = self.pages.entry(record.start / PAGE_SECTORS).or_default();
        let before = page.extents.len();
        page.replace(extent.from(), extent.end(), Some(extent), freed);
        self.extents = self.extents + page.extents.len() - before;
    }

    /// Makes a range zeroes.
    pub(crate) fn zero(&mut self, start: u64, sectors: u64, freed: &mut impl Freed) {
        let end = start + sectors;
        let pages = self.pages.range_mut(start / PAGE_SECTORS..end.div_ceil(PAGE_SECTORS));
        for (number, page) in pages {
            let first = number * PAGE_SECTORS;
            let before = page.extents.len();
            page.replace(start.max(first) - first, end.min(first + PAGE_SECTORS) - first, None, freed);
            self.extents = self.extents + page.extents.len() - before;
        }
    }

    /// Cuts a range into pieces.
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
            let (from, to) = (start.max(first) - first, end.min(first + PAGE_SECTORS) - first);
            let begin = page.extents.partition_point(|it| it.end() <= from);
            for extent in page.extents[begin..].iter().take_while(|it| it.from() < to) {
                let part = extent.cut(from, to);
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

    /// Lets pages of these objects be stored anew.
    pub(crate) fn forget_places(&mut self, is_worn: impl Fn(u32) -> bool, freed: &mut impl Freed) {
        for page in self.pages.values_mut() {
            if let Some(place) = page.place.take_if(|place| is_worn(place.object)) {
                freed.page(place);
            }
        }
    }

    /// Bytes of the pages that the next checkpoint has to store.
    pub(crate) fn changed_bytes(&self) -> u64 {
        let changed = self.pages.values().filter(|page| page.place.is_none());
        changed.map(|page| (page.extents.len() * EXTENT_BYTES) as u64).sum()
    }

    /// Lets all pages be stored anew.
    pub(crate) fn drop_places(&mut self) {
        self.pages.values_mut().for_each(|page| page.place = None);
    }

    /// Returns all extents, each with its first sector in the volume.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, &Extent)> {
        let first = |page: u64, it: &Extent| page * PAGE_SECTORS + it.from();
        self.pages.iter().flat_map(move |(page, it)| it.extents.iter().map(move |it| (first(*page, it), it)))
    }

    /// Stores all pages that have no place, by `store`, which returns where. Empty pages go.
    pub(crate) fn store_pages(&mut self, mut store: impl FnMut(Vec<u8>) -> PagePlace) {
        self.pages.retain(|_, page| !page.extents.is_empty());
        for page in self.pages.values_mut().filter(|page| page.place.is_none()) {
            page.place = Some(store(page.encode()));
        }
    }

    /// Tells where all pages are stored: their numbers and places. Changed pages have none.
    pub(crate) fn places(&self) -> impl Iterator<Item = (u64, PagePlace)> {
        self.pages.iter().filter_map(|(number, page)| Some((*number, page.place?)))
    }

    /// Takes a page as it was stored. Says which sectors of which objects it uses.
    pub(crate) fn load(
        &mut self,
        number: u64,
        place: PagePlace,
        bytes: &[u8],
        mut used: impl FnMut(u32, u64) -> bool,
    ) -> Result<(), String> {
        let page = Page::decode(bytes).ok_or("a page of the map is not sorted, or cut short")?;
        for extent in &page.extents {
            if !used(extent.object, extent.sectors()) {
                return Err(format!("a page of the map uses object {}, which the root does not have", extent.object));
            }
        }
        self.extents += page.extents.len();
        self.pages.insert(number, Page { place: Some(place), ..page });
        Ok(())
    }
}

impl Page {
    /// Puts an extent, or nothing, in place of a range.
    fn replace(&mut self, from: u64, to: u64, extent: Option<Extent>, freed: &mut impl Freed) {
        let begin = self.extents.partition_point(|it| it.end() <= from);
        let len = self.extents[begin..].partition_point(|it| it.from() < to);
        let old = &self.extents[begin..begin + len];
        if old.is_empty() && extent.is_none() {
            return;
        }
        for it in old {
            freed.sectors(it.object, it.cut(from, to).sectors());
        }
        let left = old.first().filter(|it| it.from() < from).map(|it| it.cut(0, from));
        let right = old.last().filter(|it| it.end() > to).map(|it| it.cut(to, PAGE_SECTORS));
        self.extents.splice(begin..begin + len, [left, extent, right].into_iter().flatten());
        if let Some(place) = self.place.take() {
            freed.page(place);
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut put = Put(Vec::with_capacity(self.extents.len() * EXTENT_BYTES));
        for it in &self.extents {
            put.u16(it.start).u16(it.last).u32(it.object).u32(it.at).u32(it.stored).u32(it.crc);
            put.u16(it.skip).u16(it.whole);
        }
        put.0
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut take = Take(bytes);
        let mut extents = Vec::with_capacity(bytes.len() / EXTENT_BYTES);
        let mut before = 0;
        while !take.0.is_empty() {
            let (start, last, object, at) = (take.u16()?, take.u16()?, take.u32()?, take.u32()?);
            let (stored, crc, skip, whole) = (take.u32()?, take.u32()?, take.u16()?, take.u16()?);
            let extent = Extent { start, last, object, at, stored, crc, skip, whole };
            let fits = extent.from() >= before
                && extent.end() <= PAGE_SECTORS
                && u32::from(skip) + u32::from(last) <= u32::from(whole)
                && skip <= start
                && (1..=(u64::from(whole) + 1) * SECTOR_BYTES + FRAME_BYTES_MAX).contains(&u64::from(stored));
            if !fits {
                return None;
            }
            before = extent.end();
            extents.push(extent);
        }
        Some(Self { extents, place: None })
    }
}

#[cfg(test)]
mod tests;
