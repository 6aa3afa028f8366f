// SPDX-License-Identifier: MIT OR Apache-2.0
//! A week of a workstation's disk, two thirds writes.
//!
//! Taken from what was published:
//!
//! - Most requests that reach a disk are writes, and 67 to 78 % of writes go to metadata. 8 to 12 %
//!   of writes are in sequence, 18 to 33 % of reads (Ruemmler and Wilkes, "UNIX disk access
//!   patterns", USENIX Winter 1993).
//! - Some files are written again and again and never read, others are nearly only read (Roselli,
//!   Lorch and Anderson, "A comparison of file system workloads", USENIX 2000).
//! - Sizes of files are lognormal: most are small, and most bytes are in the few large ones
//!   (Agrawal and others, "A five-year study of file-system metadata", FAST 2007).
//! - A file system commits its journal every 5 s, and writes what is 30 s old to its place
//!   (ext4's `commit`, Linux's `dirty_expire_centisecs`).
//!
//! A guess: the sizes of all parts, how often a person does something, and the exponents. The
//! machine's own page cache, 64 MiB, answers what it can before the disk is asked.

use std::collections::{BTreeSet, VecDeque};

use flashfront_device::Rng;

use super::{Asked, Maker};
use crate::replay::PageCache;
use crate::zipf::{Scatter, Zipf};

const SECOND_US: u64 = 1_000_000;
const HOUR_US: u64 = 3600 * SECOND_US;
const DAY_US: u64 = 24 * HOUR_US;
const WEEK_US: u64 = 7 * DAY_US;

const PAGE_CACHE_BLOCKS: usize = 16 << 10;
/// The journal is a ring of 32 MiB.
const JOURNAL_BLOCKS: u64 = 8 << 10;
/// Inodes, bitmaps and folders.
const METADATA_BLOCKS: u64 = 6000;
/// Databases of programs: mail, browser, index.
const PROFILE_BLOCKS: u64 = 25_000;
const LOG_BLOCKS: u64 = 4000;
/// What a build or an update makes and deletes, in turn in so much room.
const SCRATCH_BLOCKS: u64 = 24_000;
const FILES: u64 = 30_000;
/// Documents: those that are saved again and again.
const DOCUMENTS: u64 = 4000;

const METADATA: u64 = JOURNAL_BLOCKS;
const PROFILE: u64 = METADATA + METADATA_BLOCKS;
const LOG: u64 = PROFILE + PROFILE_BLOCKS;
const SCRATCH: u64 = LOG + LOG_BLOCKS;
const DATA: u64 = SCRATCH + SCRATCH_BLOCKS;

const COMMIT_US: u64 = 5 * SECOND_US;
const EXPIRE_US: u64 = 30 * SECOND_US;

pub(super) struct Workstation {
    rng: Rng,
    now_us: u64,
    pages: PageCache,
    /// First block and length of each file.
    files: Vec<(u64, u64)>,
    read_files: Zipf,
    saved_files: Zipf,
    scattered: Scatter,
    profile: Zipf,
    metadata: Zipf,
    /// Metadata that is to be committed, and when what was committed is to go to its place.
    changed: BTreeSet<u64>,
    committed: VecDeque<(u64, BTreeSet<u64>)>,
    committed_us: u64,
    journal: u64,
    log: u64,
    scratch: u64,
    /// The night's work that was done last.
    night: u64,
}

impl Workstation {
    pub(super) fn new() -> Self {
        let mut rng = Rng::new(1993);
        let mut files = Vec::new();
        let mut at = DATA;
        for _ in 0..FILES {
            // A sum of uniforms is near enough to a normal: a median of 2 blocks.
            let normal = (0..12).map(|_| rng.below(1 << 20) as f64 / f64::from(1 << 20)).sum::<f64>() - 6.0;
            let blocks = ((0.7 + 1.7 * normal).exp().ceil() as u64).clamp(1, 4096);
            files.push((at, blocks));
            at += blocks;
        }
        Self {
            rng,
            now_us: 0,
            pages: PageCache::new(PAGE_CACHE_BLOCKS),
            files,
            read_files: Zipf::new(FILES, 0.9),
            saved_files: Zipf::new(DOCUMENTS, 1.0),
            scattered: Scatter::new(FILES),
            profile: Zipf::new(PROFILE_BLOCKS, 0.9),
            metadata: Zipf::new(METADATA_BLOCKS, 0.8),
            changed: BTreeSet::new(),
            committed: VecDeque::new(),
            committed_us: 0,
            journal: 0,
            log: 0,
            scratch: 0,
            night: 0,
        }
    }

    fn is_at_work(&self) -> bool {
        let hour = self.now_us % DAY_US / HOUR_US;
        self.now_us / DAY_US < 5 && (9..18).contains(&hour)
    }

    /// Reads what the page cache hasn't, run by run.
    fn read(&mut self, from: u64, blocks: u64, asked: &mut Asked) {
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

    fn write(&mut self, from: u64, blocks: u64, asked: &mut Asked) {
        (from..from + blocks).for_each(|block| _ = self.pages.touch(block));
        asked.write(from, blocks);
    }

    /// So many blocks of metadata are changed.
    fn change(&mut self, blocks: u64) {
        for _ in 0..blocks {
            let rank = self.metadata.sample(&mut self.rng);
            self.changed.insert(METADATA + rank);
        }
    }

    /// The file system's own clock.
    fn commit(&mut self, asked: &mut Asked) {
        while self.committed.front().is_some_and(|(at, _)| at + EXPIRE_US <= self.now_us) {
            for block in self.committed.pop_front().map(|(_, blocks)| blocks).unwrap_or_default() {
                self.write(block, 1, asked);
            }
        }
        if self.changed.is_empty() || self.now_us - self.committed_us < COMMIT_US {
            return;
        }
        self.committed_us = self.now_us;
        let changed = std::mem::take(&mut self.changed);
        let blocks = changed.len() as u64 + 2;
        if self.journal + blocks > JOURNAL_BLOCKS {
            self.journal = 0;
        }
        self.write(self.journal, blocks, asked);
        self.journal += blocks;
        self.committed.push_back((self.now_us, changed));
    }

    fn read_a_file(&mut self, asked: &mut Asked) {
        let rank = self.read_files.sample(&mut self.rng);
        let (from, blocks) = self.files[self.scattered.place(rank) as usize];
        self.read(METADATA + self.scattered.place(rank) % METADATA_BLOCKS, 1, asked);
        self.read(from, blocks, asked);
        self.change(1);
    }

    fn save_a_document(&mut self, asked: &mut Asked) {
        let rank = self.saved_files.sample(&mut self.rng);
        let (from, blocks) = self.files[self.scattered.place(FILES - 1 - rank) as usize];
        self.write(from, blocks.min(64), asked);
        self.change(4);
    }

    /// A program changes some pages of its database.
    fn use_a_profile(&mut self, asked: &mut Asked) {
        for _ in 0..=self.rng.below(4) {
            let block = PROFILE + self.profile.sample(&mut self.rng);
            self.read(block, 1, asked);
            if self.rng.below(2) == 0 {
                self.write(block, 1, asked);
            }
        }
        self.change(2);
    }

    fn log_something(&mut self, asked: &mut Asked) {
        // The last block of a log is written again as it fills.
        self.write(LOG + self.log / 8 % LOG_BLOCKS, 1, asked);
        self.log += 1;
        self.change(1);
    }

    fn build(&mut self, asked: &mut Asked) {
        for nth in 0..40 {
            let blocks = 1 + self.rng.below(16);
            if self.scratch + blocks > SCRATCH_BLOCKS {
                self.scratch = 0;
            }
            if nth % 4 == 0 {
                self.read_a_file(asked);
            }
            self.write(SCRATCH + self.scratch, blocks, asked);
            self.scratch += blocks;
        }
        self.change(40);
    }

    /// Each night an index reads much of what there is; in the last one a backup reads all.
    fn work_at_night(&mut self, asked: &mut Asked) {
        let all = self.night == 6;
        self.read(METADATA, METADATA_BLOCKS, asked);
        for nth in 0..self.files.len() {
            let (from, blocks) = self.files[nth];
            if all || self.rng.below(50) == 0 {
                self.read(from, blocks, asked);
            }
        }
        self.change(200);
    }
}

impl Maker for Workstation {
    fn act(&mut self, asked: &mut Asked) -> bool {
        let mean_us = if self.is_at_work() { 2 * SECOND_US } else { 40 * SECOND_US };
        self.now_us += 1 + self.rng.below(2 * mean_us);
        asked.time_us = self.now_us;
        self.commit(asked);
        if self.now_us >= self.night * DAY_US + 2 * HOUR_US {
            self.work_at_night(asked);
            self.night += 1;
        }
        if !self.is_at_work() {
            self.log_something(asked);
            return self.now_us < WEEK_US;
        }
        match self.rng.below(100) {
            0..20 => self.read_a_file(asked),
            20..40 => self.save_a_document(asked),
            40..85 => self.use_a_profile(asked),
            85..99 => self.log_something(asked),
            _ => self.build(asked),
        }
        true
    }
}
