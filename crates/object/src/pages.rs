// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests for pages of the map: many pages by one, where they lie beside each other.

use crate::books::Books;
use crate::extent::PAGE_SECTORS;
use crate::name::Key;
use crate::near::{self, Placed, span};
use crate::page::Page;
use crate::place::PagePlace;
use crate::table::Table;
use crate::wire::{SECTOR_BYTES, crc};

/// The longest request for pages. All under way are RAM.
const PAGES_BYTES_MAX: u64 = 2 << 20;

impl Placed for (u64, PagePlace) {
    fn object(&self) -> u32 {
        self.1.object
    }

    fn span(&self) -> (u64, u64) {
        (self.1.at, self.1.at + u64::from(self.1.bytes))
    }
}

/// Cuts pages into parts that one request each can fetch.
pub(crate) fn requests(pages: Vec<(u64, PagePlace)>) -> Vec<Vec<(u64, PagePlace)>> {
    near::requests(pages, PAGES_BYTES_MAX)
}

/// A request for pages of the map, made by somebody who checks a volume.
#[derive(Clone, Debug)]
pub struct PageRequest {
    key: Key,
    /// Sorted by their places.
    pages: Vec<(u64, PagePlace)>,
}

impl PageRequest {
    /// Makes the requests that bring the pages in these places, but for those that are not wanted.
    pub(crate) fn all(
        table: &Table,
        places: impl Iterator<Item = (u64, PagePlace)>,
        mut is_wanted: impl FnMut(&Key, u64) -> bool,
    ) -> Vec<Self> {
        let key = |place: &PagePlace| table.get(place.object).key();
        let wanted = places.filter(|(_, place)| is_wanted(&key(place), place.at)).collect();
        requests(wanted).into_iter().map(|pages| Self { key: key(&pages[0].1), pages }).collect()
    }

    /// The object.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// First byte and length.
    #[must_use]
    pub fn range(&self) -> (u64, u64) {
        let (from, to) = span(&self.pages);
        (from, to - from)
    }

    /// Says what is wrong with each page that is not what it should be.
    pub(crate) fn judge(&self, table: &Table, bytes: &[u8]) -> Vec<String> {
        let judge = |page: &(u64, PagePlace)| {
            let mut read = Page::stored(page.1);
            page_of(&self.pages, *page, bytes).and_then(|bytes| read.load(page.1, bytes, &mut Known(table))).err()
        };
        self.pages.iter().filter_map(judge).collect()
    }
}

/// Says which objects the table has, and counts nothing.
struct Known<'a>(&'a Table);

impl Books for Known<'_> {
    fn used(&mut self, object: u32, _: u64) -> bool {
        self.0.try_get(object).is_some()
    }
    fn freed(&mut self, _: u32, _: u64) {}
    fn covered(&mut self, _: u32, _: u64) {}
    fn uncovered(&mut self, _: u32, _: u64) {}
    fn page_freed(&mut self, _: PagePlace) {}
}

/// Takes one of the pages out of what was fetched for all of them.
pub(crate) fn page_of<'a>(
    pages: &[(u64, PagePlace)],
    (number, place): (u64, PagePlace),
    bytes: &'a [u8],
) -> Result<&'a [u8], String> {
    let (from, _) = span(pages);
    let page = usize::try_from(place.at - from).ok().and_then(|at| bytes.get(at..));
    let page = page.and_then(|page| page.get(..place.bytes as usize));
    let page = page.filter(|page| crc(&[page]) == place.crc);
    let from = (number * PAGE_SECTORS * SECTOR_BYTES) >> 20;
    page.ok_or_else(|| {
        format!("the checksum of page {number} of the map is wrong (16 MiB of the volume from {from} MiB on)")
    })
}
