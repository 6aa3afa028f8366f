// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a guest with a log-structured file system, whose cleaner moves live blocks.
//!
//! Published figures:
//!
//! - Segments are 2 MiB. There are three logs: data, the nodes that say where data is, and blocks
//!   that the cleaner moves. A sync writes the file's node behind its data. A checkpoint writes
//!   tables of nodes and of segments, each to one of two places in turn. (Linux,
//!   `Documentation/filesystems/f2fs.rst`; Lee and others, "F2FS", FAST 2015.)
//! - In the background the cleaner chooses segments by cost and benefit. When free segments run
//!   out, it takes those with the fewest live blocks (`f2fs.rst`, "Cleaning process").
//! - A tenth of the files gets nine tenths of the writes. (Rosenblum and Ousterhout, "The design
//!   and implementation of a log-structured file system", SOSP 1991, "hot-and-cold".)
//!
//! Guesses: the size of the disk, the sizes of files and requests, five writes for a read, and the
//! guest's page cache of 32 MiB. Two thirds of the disk are live. F2FS also writes into holes of
//! full segments when the disk is nearly full. This maker doesn't. The seed changes the size of the
//! disk and the page cache.

use flashfront_device::Rng;

use super::files::SECOND_US;
use super::maker::{Asked, Maker, Seed};
use crate::replay::page_cache::PageCache;
use crate::zipf::{Scatter, Zipf};

const SEGMENT: u64 = 512;
const SEGMENTS: u64 = 360;
const PAGE_CACHE_BLOCKS: u64 = 8 << 10;
const FILE_BLOCKS: u64 = 64;
/// The blocks of each table. Checkpoints, and tables of segments and of nodes, are each there
/// twice.
const TABLE_BLOCKS: u64 = 64;
const TABLES: u64 = 3 * 2 * TABLE_BLOCKS;
/// Entries of a block of the table of nodes. `SEGMENTS_A_BLOCK` is for the table of segments.
const NODES_A_BLOCK: u64 = 455;
const SEGMENTS_A_BLOCK: u64 = 55;
const CHECKPOINT_US: u64 = 60 * SECOND_US;
const OPERATIONS: u64 = 150_000;

const DATA: usize = 0;
const NODE: usize = 1;
const COLD: usize = 2;

const FREE: u64 = u64::MAX;

#[derive(Clone, Default)]
struct Segment {
    live: u64,
    /// The number of the operation that last wrote to the segment.
    written: u64,
    free: bool,
}

pub(super) struct Log {
    rng: Rng,
    now_us: u64,
    pages: PageCache,
    /// The place of each block of each file; nodes are behind the files. `blocks` is the reverse.
    places: Vec<u64>,
    blocks: Vec<u64>,
    segments: Vec<Segment>,
    free: Vec<usize>,
    /// The segment and the next block of each log.
    heads: [(usize, u64); 3],
    files: u64,
    read_files: Zipf,
    scattered: Scatter,
    operations: u64,
    checkpoint_us: u64,
    checkpoints: u64,
}

impl Log {
    pub(super) fn new(seed: &mut Seed) -> Self {
        let segments = seed.about(SEGMENTS);
        let files = segments * SEGMENT * 2 / 3 / (FILE_BLOCKS + 1);
        let mut log = Self {
            rng: seed.rng(1991),
            now_us: 0,
            pages: PageCache::new(seed.about(PAGE_CACHE_BLOCKS) as usize),
            places: vec![FREE; (files * (FILE_BLOCKS + 1)) as usize],
            blocks: vec![FREE; (segments * SEGMENT) as usize],
            segments: vec![Segment { free: true, ..Segment::default() }; segments as usize],
            free: (0..segments as usize).rev().collect(),
            heads: [(0, SEGMENT); 3],
            files,
            read_files: Zipf::new(files, 0.9),
            scattered: Scatter::new(files),
            operations: 0,
            checkpoint_us: 0,
            checkpoints: 0,
        };
        // The files were written before the trace begins.
        let mut before = Asked::default();
        for block in 0..files * FILE_BLOCKS {
            log.append(DATA, block, &mut before);
        }
        for file in 0..files {
            log.append(NODE, files * FILE_BLOCKS + file, &mut before);
        }
        log
    }

    /// Writes a block to the end of a log.
    fn append(&mut self, log: usize, block: u64, asked: &mut Asked) {
        if self.heads[log].1 == SEGMENT {
            assert!(!self.free.is_empty(), "the cleaner keeps some");
            let segment = self.free.pop().unwrap_or_default();
            self.segments[segment].free = false;
            self.heads[log] = (segment, 0);
        }
        let (segment, at) = self.heads[log];
        self.heads[log].1 += 1;
        let before = std::mem::replace(&mut self.places[block as usize], segment as u64 * SEGMENT + at);
        if before != FREE {
            self.blocks[before as usize] = FREE;
            self.segments[(before / SEGMENT) as usize].live -= 1;
        }
        self.blocks[(segment as u64 * SEGMENT + at) as usize] = block;
        let segment = &mut self.segments[segment];
        segment.live += 1;
        segment.written = self.operations;
        asked.join(true, TABLES + self.places[block as usize]);
    }

    /// Reads a block where it is.
    fn fetch(&mut self, block: u64, asked: &mut Asked) {
        asked.join(false, TABLES + self.places[block as usize]);
    }

    /// Makes free segments. In the background it cleans the segments with the most gain for their
    /// cost, in need the emptiest.
    fn clean(&mut self, asked: &mut Asked) {
        let background = self.segments.len() / 12;
        while self.free.len() < background {
            let in_need = self.free.len() < 4;
            if !in_need && self.rng.below(4) > 0 {
                return;
            }
            let open = self.heads.map(|head| head.0);
            let worth = |segment: &Segment| {
                let live = segment.live as f64 / SEGMENT as f64;
                let age = if in_need { 1.0 } else { (self.operations - segment.written) as f64 + 1.0 };
                age * (1.0 - live) / (1.0 + live)
            };
            let full = (0..self.segments.len()).filter(|nth| !self.segments[*nth].free && !open.contains(nth));
            let by_worth = |a: &usize, b: &usize| worth(&self.segments[*a]).total_cmp(&worth(&self.segments[*b]));
            let Some(victim) = full.max_by(by_worth) else { return };
            let from = victim as u64 * SEGMENT;
            let live: Vec<u64> = self.blocks[from as usize..(from + SEGMENT) as usize]
                .iter()
                .copied()
                .filter(|it| *it != FREE)
                .collect();
            live.iter().for_each(|&block| self.fetch(block, asked));
            live.iter().for_each(|&block| self.append(COLD, block, asked));
            self.segments[victim].free = true;
            // The segment that was freed first is used first.
            self.free.insert(0, victim);
        }
    }

    /// Writes a checkpoint and both tables, each to the other one of its two places.
    fn checkpoint(&mut self, asked: &mut Asked) {
        if self.now_us < self.checkpoint_us + CHECKPOINT_US {
            return;
        }
        self.checkpoint_us = self.now_us;
        self.checkpoints += 1;
        let copy = self.checkpoints % 2 * TABLE_BLOCKS;
        asked.write(copy, 6);
        let segments = self.segments.len() as u64 / SEGMENTS_A_BLOCK + 1;
        asked.write(2 * TABLE_BLOCKS + copy, segments.min(TABLE_BLOCKS));
        let nodes = self.files / NODES_A_BLOCK + 1;
        asked.write(4 * TABLE_BLOCKS + copy, nodes.min(TABLE_BLOCKS));
    }

    /// Writes a part of a file, and syncs it.
    fn write(&mut self, asked: &mut Asked) {
        let hot = self.files / 10;
        let nth = if self.rng.below(10) > 0 { self.rng.below(hot) } else { hot + self.rng.below(self.files - hot) };
        let file = self.scattered.place(nth);
        let blocks = 1 + self.rng.below(8);
        let from = file * FILE_BLOCKS + self.rng.below(FILE_BLOCKS - blocks + 1);
        for block in from..from + blocks {
            self.pages.touch(block);
            self.append(DATA, block, asked);
        }
        let node = self.files * FILE_BLOCKS + file;
        self.pages.touch(node);
        self.append(NODE, node, asked);
    }

    fn read(&mut self, asked: &mut Asked) {
        let file = self.scattered.place(self.read_files.sample(&mut self.rng));
        let blocks = 1 + self.rng.below(16);
        let from = file * FILE_BLOCKS + self.rng.below(FILE_BLOCKS - blocks + 1);
        for block in std::iter::once(self.files * FILE_BLOCKS + file).chain(from..from + blocks) {
            if !self.pages.touch(block) {
                self.fetch(block, asked);
            }
        }
    }
}

impl Maker for Log {
    fn act(&mut self, asked: &mut Asked) -> bool {
        self.now_us += 1 + self.rng.below(SECOND_US / 5);
        asked.time_us = self.now_us;
        self.operations += 1;
        self.clean(asked);
        self.checkpoint(asked);
        if self.rng.below(6) == 0 {
            self.read(asked);
        } else {
            self.write(asked);
        }
        self.operations < OPERATIONS
    }
}
