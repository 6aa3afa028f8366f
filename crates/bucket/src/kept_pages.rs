// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of one volume's map in the map file.

use std::ops::Range;

use flashfront_object::StoredPage;

use crate::map_file::{PageKey, Pages};

/// The pages of one volume.
#[derive(Debug)]
pub(crate) struct KeptPages {
    pages: Pages,
    volume: [u8; 16],
    bucket: String,
}

impl KeptPages {
    pub(crate) fn new(pages: Pages, volume: [u8; 16], bucket: &str) -> Self {
        Self { pages, volume, bucket: bucket.to_owned() }
    }

    fn key(&self, name: &str, page: StoredPage) -> PageKey {
        PageKey { volume: self.volume, name: format!("{}/{name}", self.bucket), page }
    }

    /// A range of an object with these pages, if all of them are kept. What lies between them is
    /// zeroes.
    pub(crate) fn find(&self, name: &str, (from, bytes): (u64, u64), pages: &[StoredPage]) -> Option<Vec<u8>> {
        let keys: Vec<PageKey> = pages.iter().map(|page| self.key(name, *page)).collect();
        let found = self.pages.find(&keys).and_then(|found| {
            let mut all = vec![0; bytes as usize];
            for (page, content) in pages.iter().zip(&found) {
                all.get_mut(place(from, page)?)?.copy_from_slice(content);
            }
            Some(all)
        });
        self.pages.count(found.is_some());
        found
    }

    /// Keeps these pages, which the store has sent among other bytes. What is damaged is not kept.
    pub(crate) fn keep(&self, name: &str, from: u64, pages: &[StoredPage], bytes: &[u8]) {
        let whole = |page: &StoredPage| bytes.get(place(from, page)?).filter(|it| page.is(it));
        let kept = pages.iter().filter_map(|page| Some((self.key(name, *page), whole(page)?.to_vec())));
        self.pages.keep(kept.collect());
    }
}

/// Where a page is in a range that begins there.
fn place(from: u64, page: &StoredPage) -> Option<Range<usize>> {
    let at = page.at.checked_sub(from)? as usize;
    Some(at..at + page.bytes as usize)
}
