// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells hold what dm-writeboost has read from the origin and will cache (`read_cache_cells`).
//!
//! A read that misses takes a cell when it is looked up; one of a block that has a cell takes none.
//! When all are taken and all their reads have ended, they go into segments, the last first, and
//! are taken anew. So a block isn't found in the cache before 2048 others were missed. The blocks
//! that were missed first, often the hottest, come into the open segment last. Runs longer than the
//! threshold, and what was written meanwhile, are cancelled; their cells stay taken.

use std::collections::BTreeMap;

/// `nr_read_cache_cells`.
const CELLS: usize = 2048;

#[derive(Debug)]
pub(super) struct Cells {
    /// `read_cache_threshold`; 0 = nothing is cached.
    threshold: u32,
    /// Blocks, in the order of their reads; `None`: cancelled.
    taken: Vec<Option<u32>>,
    /// The cell of each block.
    of: BTreeMap<u32, usize>,
    ended: usize,
}

impl Cells {
    pub(super) const fn new(threshold: u32) -> Self {
        Self { threshold, taken: Vec::new(), of: BTreeMap::new(), ended: 0 }
    }

    /// Takes a cell for a block that is going to be read.
    pub(super) fn reserve(&mut self, block: u32) -> bool {
        let takes = self.threshold > 0 && self.of.len() < CELLS && !self.of.contains_key(&block);
        if takes {
            self.of.insert(block, self.taken.len());
            self.taken.push(Some(block));
        }
        takes
    }

    /// A block was written: what was read of it is old.
    pub(super) fn cancel(&mut self, block: u32) {
        if let Some(at) = self.of.get(&block)
            && let Some(cell) = self.taken.get_mut(*at)
        {
            *cell = None;
        }
    }

    /// Reads of so many cells have ended; whether they were the last ones.
    pub(super) fn ended(&mut self, cells: usize) -> bool {
        self.ended += cells;
        let last = cells > 0 && self.ended == CELLS;
        if last {
            self.cancel_runs();
        }
        last
    }

    /// The foreground's own cancelling (`read_cache_cancel_foreground`) only spares copies of what
    /// is found here.
    fn cancel_runs(&mut self) {
        let mut run: Vec<usize> = Vec::new();
        let mut end = None;
        for (block, at) in &self.of {
            if end != Some(*block) {
                run.clear();
            }
            run.push(*at);
            end = Some(block + 1);
            if run.len() > self.threshold as usize {
                run.iter().for_each(|at| self.taken[*at] = None);
            }
        }
    }

    /// Whether they are full, and what is in them goes into segments.
    pub(super) const fn are_emptied(&self) -> bool {
        self.ended == CELLS
    }

    /// The next block that goes into a segment.
    pub(super) fn next(&mut self) -> Option<u32> {
        if !self.are_emptied() {
            return None;
        }
        while self.taken.pop_if(|cell| cell.is_none()).is_some() {}
        if self.taken.is_empty() {
            (self.ended, self.of) = (0, BTreeMap::new());
        }
        self.taken.last().copied().flatten()
    }

    /// Notes that the last one is there.
    pub(super) fn pop(&mut self) {
        self.taken.pop();
    }
}
