// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a week of a workstation's disk. Two thirds are writes.
//!
//! Published figures:
//!
//! - Most requests that reach a disk are writes, and 67 to 78 % of writes go to metadata. 8 to 12 %
//!   of writes are in sequence, 18 to 33 % of reads (Ruemmler and Wilkes, "UNIX disk access
//!   patterns", USENIX Winter 1993).
//! - Some files are written again and again and never read, others are nearly only read. (Roselli,
//!   Lorch and Anderson, "A comparison of file system workloads", USENIX 2000.)
//! - Sizes of files are lognormal: most are small, and most bytes are in the few large ones.
//!   (Agrawal and others, "A five-year study of file-system metadata", FAST 2007.)
//!
//! Guesses: the sizes of all parts, how often a person does something, and the exponents. The
//! machine's own page cache, 64 MiB, answers what it can before the disk is asked. The seed changes
//! the page cache and the number of files.

use flashfront_device::Rng;

use super::files::{Files, SECOND_US, file_blocks};
use super::maker::{Asked, Maker, Seed};
use crate::zipf::{Scatter, Zipf};

const HOUR_US: u64 = 3600 * SECOND_US;
const DAY_US: u64 = 24 * HOUR_US;
const WEEK_US: u64 = 7 * DAY_US;

const PAGE_CACHE_BLOCKS: u64 = 16 << 10;
/// The blocks of inodes, bitmaps and folders.
const METADATA_BLOCKS: u64 = 6000;
/// The blocks of programs' databases: mail, browser, index.
const PROFILE_BLOCKS: u64 = 25_000;
const LOG_BLOCKS: u64 = 4000;
/// The room of the files that a build or an update makes and deletes, in turn.
const SCRATCH_BLOCKS: u64 = 24_000;
const FILES: u64 = 30_000;
/// The number of documents, which are saved again and again.
const DOCUMENTS: u64 = 4000;

pub(super) struct Workstation {
    rng: Rng,
    now_us: u64,
    system: Files,
    /// The places where the parts of the disk begin.
    profiles: u64,
    logs: u64,
    scratches: u64,
    /// The first block and the length of each file.
    files: Vec<(u64, u64)>,
    read_files: Zipf,
    saved_files: Zipf,
    scattered: Scatter,
    profile: Zipf,
    log: u64,
    scratch: u64,
    /// The number of the last night whose work was done.
    night: u64,
}

impl Workstation {
    pub(super) fn new(seed: &mut Seed) -> Self {
        let mut rng = seed.rng(1993);
        let system = Files::new(seed.about(PAGE_CACHE_BLOCKS), METADATA_BLOCKS);
        let profiles = system.data();
        let logs = profiles + PROFILE_BLOCKS;
        let scratches = logs + LOG_BLOCKS;
        let count = seed.about(FILES);
        let mut files = Vec::new();
        let mut at = scratches + SCRATCH_BLOCKS;
        for _ in 0..count {
            // The median is 2 blocks.
            let blocks = file_blocks(0.7, 1.7, 4096, &mut rng);
            files.push((at, blocks));
            at += blocks;
        }
        Self {
            rng,
            now_us: 0,
            system,
            profiles,
            logs,
            scratches,
            files,
            read_files: Zipf::new(count, 0.9),
            saved_files: Zipf::new(DOCUMENTS, 1.0),
            scattered: Scatter::new(count),
            profile: Zipf::new(PROFILE_BLOCKS, 0.9),
            log: 0,
            scratch: 0,
            night: 0,
        }
    }

    fn is_at_work(&self) -> bool {
        let hour = self.now_us % DAY_US / HOUR_US;
        self.now_us / DAY_US < 5 && (9..18).contains(&hour)
    }

    fn change(&mut self, blocks: u64) {
        self.system.change(blocks, &mut self.rng);
    }

    fn read_a_file(&mut self, asked: &mut Asked) {
        let number = self.scattered.place(self.read_files.sample(&mut self.rng));
        let (from, blocks) = self.files[number as usize];
        self.system.look(number, asked);
        self.system.read(from, blocks, asked);
        self.change(1);
    }

    fn save_a_document(&mut self, asked: &mut Asked) {
        let rank = self.saved_files.sample(&mut self.rng);
        let last = self.files.len() as u64 - 1;
        let (from, blocks) = self.files[self.scattered.place(last - rank) as usize];
        self.system.write(from, blocks.min(64), asked);
        self.change(4);
    }

    /// A program changes some pages of its database.
    fn use_a_profile(&mut self, asked: &mut Asked) {
        for _ in 0..=self.rng.below(4) {
            let block = self.profiles + self.profile.sample(&mut self.rng);
            self.system.read(block, 1, asked);
            if self.rng.below(2) == 0 {
                self.system.write(block, 1, asked);
            }
        }
        self.change(2);
    }

    fn log_something(&mut self, asked: &mut Asked) {
        // The last block of a log is written again as it fills.
        self.system.write(self.logs + self.log / 8 % LOG_BLOCKS, 1, asked);
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
            self.system.write(self.scratches + self.scratch, blocks, asked);
            self.scratch += blocks;
        }
        self.change(40);
    }

    /// Lets an index read much of the disk each night. In the last night a backup reads all.
    fn work_at_night(&mut self, asked: &mut Asked) {
        let all = self.night == 6;
        self.system.look_at_all(asked);
        for nth in 0..self.files.len() {
            let (from, blocks) = self.files[nth];
            if all || self.rng.below(50) == 0 {
                self.system.read(from, blocks, asked);
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
        self.system.tick(asked);
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
