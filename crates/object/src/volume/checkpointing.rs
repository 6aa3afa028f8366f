// SPDX-License-Identifier: MIT OR Apache-2.0
//! A checkpoint under way: what it has stored, and what it wants.

use std::collections::BTreeSet;

use crate::map::Again;
use crate::page::Page;
use crate::place::PagePlace;
use crate::wire::Put;

/// A checkpoint that is being made.
#[derive(Debug, Default)]
pub(super) struct Checkpointing {
    /// Objects whose pages are stored once more, so that these objects can go.
    pub(super) worn: Vec<u32>,
    /// No changes are left beside pages.
    pub(super) is_whole: bool,
    /// The page that is looked at next.
    pub(super) at: u64,
    /// The object with the pages that were stored last, and its bytes.
    pub(super) object: Option<u32>,
    pub(super) body: Put,
    /// Objects before this one are queued.
    pub(super) has_queued: bool,
    /// Pages that it waits for.
    pub(super) pages: Vec<u64>,
    pub(super) retries: u32,
    /// Pages that can't be had.
    pub(super) damaged: BTreeSet<u64>,
}

impl Checkpointing {
    /// What is stored once more of a page, although the store has it.
    pub(super) fn wants_again(&self, number: u64, page: &Page) -> Again {
        let is_worn = |place: Option<PagePlace>| place.is_some_and(|place| self.worn.contains(&place.object));
        match self.damaged.contains(&number) {
            true => Again::No,
            false if is_worn(page.place()) || self.is_whole && page.has_changes() => Again::Whole,
            false if is_worn(page.changes_place()) => Again::Changes,
            false => Again::No,
        }
    }
}
