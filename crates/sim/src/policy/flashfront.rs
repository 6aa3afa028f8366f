// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flashfront's own: the policy that the daemon runs by default, from the same crate, over a log like the engine's.
//!
//! The log is the cache: a block rewritten leaves a hole until its segment is reclaimed, free segments and half-full ones hold
//! nothing, and what is copied forward counts. The window is part of the cache's size too, though it is RAM. Unlike the engine's,
//! segments of a small cache are small, as a cache of 300 blocks has else no two of them; there are no commit headers (0.4 % of a
//! segment), one lane, and dirty blocks are taken for destaged when their segment is reclaimed.

use flashfront_engine::SegmentId;
use flashfront_engine::policy::{self, Capacity, Spec, Window, Zone};

use super::table::Table;
use super::{Access, Build, Changes, Policy};

pub(super) const SPEC: Spec<Build> = Spec {
    name: "flashfront",
    summary: "what the daemon does",
    source: "engine: the default policy",
    build: Build { new: |capacity| Box::new(Flashfront::new(capacity)), unit_blocks: 1, foresees: false, is_log: true },
};

/// Segments of a small cache; with fewer its open and free ones would be a large part of it.
const SEGMENTS: usize = 256;
/// Blocks of a segment of a large one: 1 MiB, as `format` makes it.
const SEGMENT_BLOCKS_MAX: usize = 256;
/// Free ones that reclaim keeps: for both zones, and one more. Free room of up to this many blocks is not charged to
/// a cache whose segments are blocks.
const FREE_SEGMENTS: usize = 3;
/// A cache of fewer blocks copies none forward, and keeps one free.
const BLOCKS_MIN: usize = 16;

const NOBODY: u64 = u64::MAX;

struct Flashfront {
    policy: Box<dyn policy::Policy>,
    window: Window,
    blocks: Table<Cached>,
    /// Slot of the log -> key.
    owners: Vec<u64>,
    segment_blocks: usize,
    /// What each segment is filled with.
    zones: Vec<Zone>,
    free: Vec<u32>,
    /// Segments that were used at all: memory is for these.
    begun: u32,
    segments: u32,
    free_wanted: usize,
    /// Each zone's open segment, and how much of it is used.
    open: [Option<(u32, usize)>; 2],
    /// Never needed to reclaim yet.
    room: bool,
}

struct Cached {
    slot: u32,
    hits: u8,
}

impl Flashfront {
    fn new(capacity: usize) -> Self {
        let window = Window::new(capacity as u64, 1);
        let capacity = capacity - window.capacity();
        let segment_blocks = (capacity / SEGMENTS).clamp(1, SEGMENT_BLOCKS_MAX);
        let free_wanted = if capacity < BLOCKS_MIN { 1 } else { FREE_SEGMENTS };
        let segments = (capacity / segment_blocks + if segment_blocks == 1 { free_wanted } else { 0 }) as u32;
        Self {
            policy: (policy::ALL[0].build)(Capacity { segments, segment_blocks: segment_blocks as u32 }),
            window,
            blocks: Table::new(),
            owners: Vec::new(),
            segment_blocks,
            zones: Vec::new(),
            free: Vec::new(),
            begun: 0,
            segments,
            free_wanted,
            open: [None; 2],
            room: true,
        }
    }

    /// Puts a block into the log, or once more.
    fn append(&mut self, key: u64, zone: Zone, hits: u8) {
        let (segment, used) = self.open[zone as usize].unwrap_or_else(|| (self.take_free(zone), 0));
        self.open[zone as usize] = Some((segment, used + 1)).filter(|_| used + 1 < self.segment_blocks);
        if used + 1 == self.segment_blocks {
            self.policy.sealed(SegmentId(segment), zone);
        }
        let slot = segment as usize * self.segment_blocks + used;
        self.owners[slot] = key;
        let cached = Cached { slot: slot as u32, hits };
        if let Some(at) = self.blocks.find(key) {
            let old = std::mem::replace(&mut self.blocks[at], cached);
            self.owners[old.slot as usize] = NOBODY;
        } else {
            self.blocks.insert(key, cached);
        }
    }

    fn take_free(&mut self, zone: Zone) -> u32 {
        let segment = self.free.pop().unwrap_or_else(|| {
            assert!(self.begun < self.segments, "reclaim keeps some free");
            self.begun += 1;
            self.owners.resize(self.begun as usize * self.segment_blocks, NOBODY);
            self.zones.resize(self.begun as usize, zone);
            self.begun - 1
        });
        self.zones[segment as usize] = zone;
        segment
    }

    fn reclaim(&mut self, changes: &mut Changes) {
        while self.free.len() + ((self.segments - self.begun) as usize) < self.free_wanted {
            self.room = false;
            let Some(segment) = self.policy.victim(&|_| true) else { break };
            let zone = self.zones[segment.0 as usize];
            let first = segment.0 as usize * self.segment_blocks;
            let mut kept = 0;
            for slot in first..first + self.segment_blocks {
                let key = self.owners[slot];
                let Some(at) = self.blocks.find(key).filter(|_| key != NOBODY) else { continue };
                let hits = self.blocks[at].hits;
                let survives = self.policy.survives(zone, hits, kept, self.segment_blocks as u32);
                if let Some(hits) = survives.filter(|_| self.free_wanted > 1) {
                    kept += 1;
                    changes.reinserted += 1;
                    self.append(key, Zone::Main, hits);
                } else {
                    self.owners[slot] = NOBODY;
                    self.blocks.remove(at);
                    self.policy.dropped(key, zone, hits);
                    changes.evicted.push(key);
                }
            }
            self.free.push(segment.0);
        }
    }

    fn write(&mut self, key: u64, found: Option<u32>) {
        let hits = match found {
            None => {
                self.window.forget(key..key + 1);
                self.policy.write_missed(key)
            }
            Some(at) => {
                let old = &self.blocks[at];
                self.policy.rewritten(self.zones[old.slot as usize / self.segment_blocks], old.hits)
            }
        };
        self.append(key, Zone::Writes, hits);
    }

    /// Reads a block that is not in the log; returns whether it was in the window, and whether it is in the log now.
    fn read_missed(&mut self, key: u64) -> (bool, bool) {
        if let Some(place) = self.window.find(key) {
            self.window.touch(place, |seen| self.policy.seen_waiting(seen));
            return (true, false);
        }
        let verdict = self.policy.missed(key, self.room);
        if verdict.admit {
            self.append(key, Zone::Main, 0);
            return (false, true);
        }
        match self.window.put(key, verdict.seen) {
            Some((_, None)) => {}
            Some((_, Some((key, seen)))) => self.policy.left_window(key, seen),
            None => self.policy.left_window(key, verdict.seen),
        }
        (false, false)
    }
}

impl Policy for Flashfront {
    fn access(&mut self, access: &Access, changes: &mut Changes) -> bool {
        let found = self.blocks.find(access.key);
        if access.write {
            changes.waited = found.is_none() && self.window.find(access.key).is_some();
            self.write(access.key, found);
            changes.admitted = found.is_none();
            self.reclaim(changes);
            return found.is_some() || changes.waited;
        }
        if let Some(at) = found {
            self.blocks[at].hits = (self.blocks[at].hits + 1).min(policy::HITS_MAX);
            return true;
        }
        (changes.waited, changes.admitted) = self.read_missed(access.key);
        if changes.admitted {
            self.reclaim(changes);
        }
        changes.waited
    }
}
