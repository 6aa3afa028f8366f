// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flashfront's own policy is the one that the daemon runs by default, over a log like the
//! engine's. Both come from the engine's crate ([`flashfront_engine::shadow::Model`], [`Duel`]).
//! This file says how large their parts are.
//!
//! The window is part of the cache's size, though it is RAM. Unlike the engine's, segments of a
//! small cache are small, as a cache of 300 blocks has else no two of them.

use flashfront_engine::Time;
use flashfront_engine::policy::{self, Spec, Window};
use flashfront_engine::shadow::{self, Duel, Model, Occupancy, Reaction, Shape, Totals};

use super::contract::{Access, Build, Changes, Policy};

pub(super) const SPEC: Spec<Build> = Spec {
    name: "flashfront",
    summary: "what the daemon does",
    source: "engine: the default policy",
    build: Build { new: |capacity| Box::new(Flashfront::new(capacity)), unit_blocks: 1, foresees: false, is_log: true },
};

pub(super) const SPEC_DISK: Spec<Build> = Spec {
    name: "flashfront_disk",
    summary: "the same before a disk: reads around what it misses",
    source: "engine: the default policy and neighbours",
    build: Build {
        new: |capacity| Box::new(Flashfront::before_disk(capacity)),
        unit_blocks: 1,
        foresees: false,
        is_log: true,
    },
};

/// Segments of a small cache; with fewer its open and free ones would be a large part of it.
const SEGMENTS: usize = 256;
/// Blocks of a segment of a large one: 1 MiB, as `format` makes it.
const SEGMENT_BLOCKS_MAX: usize = 256;
/// Free ones that reclaim keeps: for both zones, and one more. Free room of up to this many blocks
/// is not charged to a cache whose segments are blocks.
const FREE_SEGMENTS: usize = 3;
/// A cache of fewer blocks copies none forward, and keeps one free.
const BLOCKS_MIN: usize = 16;

/// What is read around a miss from a disk: the daemon's default.
const READ_AROUND_BLOCKS: u64 = 16;

/// The parts of a cache of that many blocks.
#[must_use]
pub fn shape(capacity: usize) -> Shape {
    shape_with(capacity, window_blocks(capacity))
}

fn window_blocks(capacity: usize) -> usize {
    Window::new(capacity as u64, 1).capacity()
}

/// The parts of a cache of that many blocks, of which so many are its window.
fn shape_with(capacity: usize, window_blocks: usize) -> Shape {
    let capacity = capacity - window_blocks;
    let segment_blocks = (capacity / SEGMENTS).clamp(1, SEGMENT_BLOCKS_MAX);
    let free_segments = if capacity < BLOCKS_MIN { 1 } else { FREE_SEGMENTS };
    Shape {
        segments: (capacity / segment_blocks + if segment_blocks == 1 { free_segments } else { 0 }) as u32,
        segment_blocks: segment_blocks as u32,
        free_segments: free_segments as u32,
        window_blocks,
        stands_for: 1,
        read_around_blocks: 1,
    }
}

/// The shape before a disk, with the daemon's default of what is read around a miss. All that comes
/// with a miss fits into the window, if that is at most half of the cache. In a smaller
/// window neighbours push each other out (`lirs_scan` at 5 %: 5 % hits instead of 94).
#[must_use]
pub fn shape_before_disk(capacity: usize) -> Shape {
    let window_blocks = window_blocks(capacity).max((capacity / 2).min(READ_AROUND_BLOCKS as usize));
    Shape { read_around_blocks: READ_AROUND_BLOCKS, ..shape_with(capacity, window_blocks) }
}

/// A cache as the daemon runs it.
pub struct Flashfront {
    model: Model,
    duel: Option<Duel>,
    /// What may be written to flash in a day, until the first access tells what time it is.
    budget: Option<u64>,
}

impl Flashfront {
    /// An empty one of that many blocks, before an origin whose reads are cheap.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self::of(shape(capacity))
    }

    /// The policy before a disk.
    #[must_use]
    pub fn before_disk(capacity: usize) -> Self {
        Self::of(shape_before_disk(capacity))
    }

    fn of(shape: Shape) -> Self {
        let policy = policy::ALL[0].build;
        Self { model: Model::new(shape, policy), duel: Duel::of(shape, policy), budget: None }
    }

    /// A block is read or written, in writeback mode.
    pub fn ask(&mut self, key: u64, write: bool) -> Reaction {
        let kind = if write { shadow::Access::Write } else { shadow::Access::Read };
        if let Some(hold) = self.duel.as_mut().and_then(|duel| duel.note(kind, key..key + 1)) {
            self.model.hold_gate(hold);
        }
        if write { self.model.write(key) } else { self.model.read(key) }
    }

    /// A request is over; how many blocks come along with what it missed.
    pub fn request_over(&mut self) -> u64 {
        self.model.neighbours_come()
    }

    /// The figures so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.model.totals()
    }
}

impl Policy for Flashfront {
    fn limit_flash_writes(&mut self, bytes_per_day: u64) -> bool {
        self.budget = Some(bytes_per_day);
        true
    }

    fn occupancy(&self) -> Option<Occupancy> {
        Some(self.model.occupancy())
    }

    fn access(&mut self, access: &Access, changes: &mut Changes) -> bool {
        self.model.time_is(Time(access.time_ns));
        if let Some(bytes_per_day) = self.budget.take() {
            self.model.limit_flash_writes(bytes_per_day);
        }
        let before = self.model.totals().reinserted_blocks;
        if access.first {
            changes.brought = self.request_over();
        }
        let outcome = self.ask(access.key, access.write);
        (changes.waited, changes.admitted) = (outcome.waited, outcome.admitted);
        changes.evicted.extend_from_slice(self.model.evicted());
        changes.reinserted = self.model.totals().reinserted_blocks - before;
        outcome.hit
    }
}
