// SPDX-License-Identifier: MIT OR Apache-2.0
//! The made machines write through a file system with a journal, and through the page cache above
//! it.
//!
//! Changed metadata goes to the journal, with one commit for all changes of a time (ext4's `commit`
//! of 5 s). Later it goes to its place (Linux's `dirty_expire_centisecs` of 30 s). The journal is
//! at the beginning of the disk, and metadata comes next. Content is written when it is made.

use std::collections::{BTreeSet, VecDeque};

use flashfront_device::Rng;

use super::maker::Asked;
use crate::replay::page_cache::PageCache;
use crate::zipf::Zipf;

pub(super) const SECOND_US: u64 = 1_000_000;
const COMMIT_US: u64 = 5 * SECOND_US;
const EXPIRE_US: u64 = 30 * SECOND_US;

/// The journal is a ring of 32 MiB.
const JOURNAL_BLOCKS: u64 = 8 << 10;

pub(super) struct Files {
    pages: PageCache,
    metadata_blocks: u64,
    metadata: Zipf,
    /// Metadata that is to be committed. `committed` has the times of commits and their metadata,
    /// which is to go to its place.
    changed: BTreeSet<u64>,
    committed: VecDeque<(u64, BTreeSet<u64>)>,
    committed_us: u64,
    journal: u64,
}

impl Files {
    /// Makes the file system of a machine with a page cache of this size. Inodes, bitmaps and
    /// folders take `metadata_blocks` blocks.
    pub(super) fn new(page_cache_blocks: u64, metadata_blocks: u64) -> Self {
        Self {
            pages: PageCache::new(page_cache_blocks as usize),
            metadata_blocks,
            metadata: Zipf::new(metadata_blocks, 0.8),
            changed: BTreeSet::new(),
            committed: VecDeque::new(),
            committed_us: 0,
            journal: 0,
        }
    }

    /// The first block behind journal and metadata.
    pub(super) const fn data(&self) -> u64 {
        JOURNAL_BLOCKS + self.metadata_blocks
    }

    /// Reads the blocks that the page cache doesn't have, run by run.
    pub(super) fn read(&mut self, from: u64, blocks: u64, asked: &mut Asked) {
        let mut run = from..from;
        for block in from..from + blocks {
            if self.pages.touch(block) {
                continue;
            }
            if run.end != block {
                if !run.is_empty() {
                    asked.read(run.start, run.end - run.start);
                }
                run = block..block;
            }
            run.end = block + 1;
        }
        if !run.is_empty() {
            asked.read(run.start, run.end - run.start);
        }
    }

    pub(super) fn write(&mut self, from: u64, blocks: u64, asked: &mut Asked) {
        (from..from + blocks).for_each(|block| _ = self.pages.touch(block));
        asked.write(from, blocks);
    }

    /// Looks at the metadata of a file or a folder.
    pub(super) fn look(&mut self, number: u64, asked: &mut Asked) {
        self.read(JOURNAL_BLOCKS + number % self.metadata_blocks, 1, asked);
    }

    /// Reads all metadata.
    pub(super) fn look_at_all(&mut self, asked: &mut Asked) {
        self.read(JOURNAL_BLOCKS, self.metadata_blocks, asked);
    }

    /// Changes `blocks` blocks of metadata.
    pub(super) fn change(&mut self, blocks: u64, rng: &mut Rng) {
        for _ in 0..blocks {
            self.changed.insert(JOURNAL_BLOCKS + self.metadata.sample(rng));
        }
    }

    /// Does the work that is due: writes old metadata to its place, and commits.
    pub(super) fn tick(&mut self, asked: &mut Asked) {
        while self.committed.front().is_some_and(|(at, _)| at + EXPIRE_US <= asked.time_us) {
            for block in self.committed.pop_front().map(|(_, blocks)| blocks).unwrap_or_default() {
                self.write(block, 1, asked);
            }
        }
        if asked.time_us - self.committed_us >= COMMIT_US {
            self.commit(asked);
        }
    }

    /// Commits all changes at once, as fsync does.
    pub(super) fn commit(&mut self, asked: &mut Asked) {
        if self.changed.is_empty() {
            return;
        }
        self.committed_us = asked.time_us;
        let changed = std::mem::take(&mut self.changed);
        let blocks = changed.len() as u64 + 2;
        if self.journal + blocks > JOURNAL_BLOCKS {
            self.journal = 0;
        }
        self.write(self.journal, blocks, asked);
        self.journal += blocks;
        self.committed.push_back((asked.time_us, changed));
    }
}

/// The number of blocks of a file, by a lognormal law with this mean and deviation of the
/// logarithm.
pub(super) fn file_blocks(mean_log: f64, deviation_log: f64, max: u64, rng: &mut Rng) -> u64 {
    // A sum of uniform numbers is near enough to a normal one.
    let normal = (0..12).map(|_| rng.below(1 << 20) as f64 / f64::from(1 << 20)).sum::<f64>() - 6.0;
    ((mean_log + deviation_log * normal).exp().ceil() as u64).clamp(1, max)
}
