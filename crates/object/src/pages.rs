// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests for pages of the map: many pages by one, where they lie beside each other.

use crate::page::PagePlace;
use crate::wire::crc;

/// Pages with gaps up to this size are fetched by one request.
const GAP_BYTES: u64 = 64 << 10;
/// The longest request for pages. All under way are RAM.
const PAGES_BYTES_MAX: u64 = 2 << 20;

/// First byte of some pages of an object, which are sorted, and the end of the last.
pub(crate) fn span(pages: &[(u64, PagePlace)]) -> (u64, u64) {
    let from = pages.first().map_or(0, |(_, place)| place.at);
    let to = pages.last().map_or(0, |(_, place)| place.at + u64::from(place.bytes));
    (from, to)
}

/// Cuts pages into parts that one request each can fetch.
pub(crate) fn requests(mut pages: Vec<(u64, PagePlace)>) -> Vec<Vec<(u64, PagePlace)>> {
    pages.sort_by_key(|(_, place)| (place.object, place.at));
    let mut parts: Vec<Vec<(u64, PagePlace)>> = Vec::new();
    for page in pages {
        if let Some(part) = parts.last_mut() {
            let (from, to) = span(part);
            let is_near = part[0].1.object == page.1.object && page.1.at <= to + GAP_BYTES;
            if is_near && page.1.at + u64::from(page.1.bytes) - from <= PAGES_BYTES_MAX {
                part.push(page);
                continue;
            }
        }
        parts.push(vec![page]);
    }
    parts
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
    page.ok_or_else(|| format!("the checksum of page {number} is wrong"))
}
