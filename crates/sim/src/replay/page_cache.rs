// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page cache of the machine above is an LRU. Whatever is written to it goes down at once.
//!
//! A block cache lives behind one, which takes the blocks that are read again soon. Writes are
//! passed on when they are made, as those of databases and virtual machines are; a kernel that
//! holds them back would merge some.

use crate::policy::table::{List, Table};

/// Blocks that were used last.
pub(crate) struct PageCache {
    pages: Table<()>,
    used: List,
    capacity: usize,
}

impl PageCache {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { pages: Table::new(), used: List::new(), capacity: capacity.max(1) }
    }

    /// A block is used; whether it was there. Now it is.
    pub(crate) fn touch(&mut self, key: u64) -> bool {
        if let Some(page) = self.pages.find(key) {
            self.pages.touch(&mut self.used, page);
            return true;
        }
        if self.pages.len() == self.capacity {
            self.pages.remove_oldest(&mut self.used);
        }
        let page = self.pages.insert(key, ());
        self.pages.push(&mut self.used, page);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::PageCache;

    #[test]
    fn the_least_recently_used_block_goes() {
        let mut cache = PageCache::new(2);
        assert!(!cache.touch(1) && !cache.touch(2) && cache.touch(1));
        assert!(!cache.touch(3), "2 goes");
        assert!(cache.touch(1) && cache.touch(3) && !cache.touch(2));
        assert!(cache.touch(3) && !cache.touch(1));
    }
}
