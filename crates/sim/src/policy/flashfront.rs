// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flashfront's own: the policies that the daemon runs by default, from the same crate, over a log like the engine's.
//!
//! The log is the cache: a block rewritten leaves a hole until its segment is reclaimed, free segments and half-full ones hold
//! nothing, and what is copied forward counts. Unlike the engine's, segments of a small cache are small, as a cache of 300 blocks has else no
//! two of them; there are no commit headers (0.4 % of a segment), and dirty blocks are taken for destaged when their segment is
//! reclaimed.

use flashfront_engine::SegmentId;
use flashfront_engine::admission::{self, Admission, View};
use flashfront_engine::policy::Spec;
use flashfront_engine::replacement::{self, Replacement};

use super::table::Table;
use super::{Access, Build, Changes, Policy};

pub(super) const SPEC: Spec<Build> = Spec {
    name: "flashfront",
    summary: "what the daemon does",
    source: "engine: admission and replacement, the defaults",
    build: Build { new: |capacity| Box::new(Flashfront::new(capacity)), unit_blocks: 1, foresees: false, is_log: true },
};

/// Segments of a small cache; with fewer its open and free ones would be a large part of it.
const SEGMENTS: usize = 256;
/// Blocks of a segment of a large one: 1 MiB, as `format` makes it.
const SEGMENT_BLOCKS_MAX: usize = 256;
/// Free ones that reclaim keeps: for both streams, and one more. Free room of up to this many blocks is not charged to
/// a cache whose segments are blocks.
const FREE_SEGMENTS: usize = 3;
/// A cache of fewer blocks copies none forward, and keeps one free.
const BLOCKS_MIN: usize = 16;

const NOBODY: u64 = u64::MAX;

/// A stream of the log, as the engine has them: what clients write and what is filled, and what is copied forward.
#[derive(Clone, Copy)]
enum Stream {
    Writes,
    Survivors,
}

struct Flashfront {
    admission: Box<dyn Admission>,
    replacement: Box<dyn Replacement>,
    blocks: Table<Cached>,
    /// Slot of the log -> key.
    owners: Vec<u64>,
    segment_blocks: usize,
    free: Vec<u32>,
    /// Segments that were used at all: memory is for these.
    begun: u32,
    segments: u32,
    free_wanted: usize,
    /// Each stream's open segment, and how much of it is used.
    open: [Option<(u32, usize)>; 2],
    /// Never needed to reclaim yet.
    room: bool,
    /// Slots for which survivors are counted together: a segment of the engine's, or a quarter of a small cache; how many of
    /// them were reclaimed, and how many blocks of those survived.
    window: u32,
    passed: u32,
    kept: u32,
}

struct Cached {
    slot: u32,
    hits: u8,
}

impl Flashfront {
    fn new(capacity: usize) -> Self {
        let segment_blocks = (capacity / SEGMENTS).clamp(1, SEGMENT_BLOCKS_MAX);
        let free_wanted = if capacity < BLOCKS_MIN { 1 } else { FREE_SEGMENTS };
        let segments = (capacity / segment_blocks + if segment_blocks == 1 { free_wanted } else { 0 }) as u32;
        Self {
            admission: (admission::ALL[0].build)(capacity as u64),
            replacement: (replacement::ALL[0].build)(segments),
            blocks: Table::new(),
            owners: Vec::new(),
            segment_blocks,
            free: Vec::new(),
            begun: 0,
            segments,
            free_wanted,
            open: [None; 2],
            room: true,
            window: (capacity / 4).clamp(4, SEGMENT_BLOCKS_MAX).max(segment_blocks) as u32,
            passed: 0,
            kept: 0,
        }
    }

    /// Puts a block into the log, or once more; its hits count from then on.
    fn append(&mut self, key: u64, stream: Stream) {
        let (segment, used) = self.open[stream as usize].unwrap_or_else(|| (self.take_free(), 0));
        self.open[stream as usize] = Some((segment, used + 1)).filter(|_| used + 1 < self.segment_blocks);
        if used + 1 == self.segment_blocks {
            self.replacement.sealed(SegmentId(segment));
        }
        let slot = segment as usize * self.segment_blocks + used;
        self.owners[slot] = key;
        let cached = Cached { slot: slot as u32, hits: 0 };
        if let Some(at) = self.blocks.find(key) {
            let old = std::mem::replace(&mut self.blocks[at], cached);
            self.owners[old.slot as usize] = NOBODY;
        } else {
            self.blocks.insert(key, cached);
        }
    }

    fn take_free(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            assert!(self.begun < self.segments, "reclaim keeps some free");
            self.begun += 1;
            self.owners.resize(self.begun as usize * self.segment_blocks, NOBODY);
            self.begun - 1
        })
    }

    fn reclaim(&mut self, changes: &mut Changes) {
        while self.free.len() + ((self.segments - self.begun) as usize) < self.free_wanted {
            self.room = false;
            let Some(segment) = self.replacement.victim(&|_| true) else { break };
            let first = segment.0 as usize * self.segment_blocks;
            for slot in first..first + self.segment_blocks {
                let key = self.owners[slot];
                let Some(at) = self.blocks.find(key).filter(|_| key != NOBODY) else { continue };
                let hits = self.blocks[at].hits;
                if self.free_wanted > 1 && self.replacement.survives(hits, self.kept, self.window) {
                    self.kept += 1;
                    changes.reinserted += 1;
                    self.append(key, Stream::Survivors);
                } else {
                    self.owners[slot] = NOBODY;
                    self.blocks.remove(at);
                    self.admission.evicted(key);
                    changes.evicted.push(key);
                }
            }
            self.replacement.freed(segment);
            self.free.push(segment.0);
            self.passed += self.segment_blocks as u32;
            if self.passed >= self.window {
                (self.passed, self.kept) = (0, 0);
            }
        }
    }
}

impl Policy for Flashfront {
    fn access(&mut self, access: &Access, changes: &mut Changes) -> bool {
        let found = self.blocks.find(access.key);
        if let Some(at) = found
            && !access.write
        {
            self.blocks[at].hits = (self.blocks[at].hits + 1).min(3);
            return true;
        }
        if access.write || self.admission.admit(access.key, View { room: self.room }) {
            self.append(access.key, Stream::Writes);
            self.reclaim(changes);
            changes.admitted = found.is_none();
        }
        found.is_some()
    }
}
