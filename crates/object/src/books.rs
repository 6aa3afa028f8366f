// SPDX-License-Identifier: MIT OR Apache-2.0
//! The books: how much of each object is in use.

use crate::place::PagePlace;

/// The books of the objects, as changes of pages keep them.
pub(crate) trait Books {
    /// Tells that a page which was read uses some sectors of an object. Returns whether the object
    /// is known.
    fn used(&mut self, object: u32, sectors: u64) -> bool;
    /// Tells that some sectors of an object with data are not in use any more.
    fn freed(&mut self, object: u32, sectors: u64);
    /// Tells that changes lie over some sectors in use of a base that is in the store.
    fn covered(&mut self, object: u32, sectors: u64);
    /// Takes that back.
    fn uncovered(&mut self, object: u32, sectors: u64);
    /// Tells that a page in a checkpoint is not in use any more.
    fn page_freed(&mut self, place: PagePlace);
}

/// For callers that count nothing.
impl Books for () {
    fn used(&mut self, _: u32, _: u64) -> bool {
        true
    }
    fn freed(&mut self, _: u32, _: u64) {}
    fn covered(&mut self, _: u32, _: u64) {}
    fn uncovered(&mut self, _: u32, _: u64) {}
    fn page_freed(&mut self, _: PagePlace) {}
}
