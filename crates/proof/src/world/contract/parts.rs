// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watches that reclaim leaves each volume its smallest part of the cache, and that none has more
//! than its largest part for long.
//!
//! A volume that has its part keeps it, whatever reclaim does. It has less only after something
//! else took blocks: a direct write, a discard, or damage. The engine may say, too, that no other
//! room was to be had. This is seen from outside: from what the cache has of a volume, and what
//! reclaim dropped of it.
//!
//! A volume may have more than its largest part after writes, or after that part became smaller.
//! Then its clean blocks go, before long.

use std::collections::BTreeMap;

use flashfront_engine::{BLOCK_BYTES, Engine, OriginStatus};

/// The volumes that have a smallest part, by their numbers.
#[derive(Default)]
pub(super) struct Parts {
    of: BTreeMap<u32, Part>,
    /// What each volume has, and the inputs since it had its largest part at most, no clean block,
    /// or more than after the input.
    largest: BTreeMap<u32, (u64, u64)>,
}

/// Inputs after which a volume that has too much must have less.
const INPUTS_MAX: u64 = 1000;

/// What is known of a volume's part.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Reclaim leaves the volume that many blocks, at most its smallest part.
    floor: u64,
    /// The counts at the last look.
    cached: u64,
    evicted: u64,
    excused: u64,
}

impl Parts {
    /// The engine is a new one.
    pub(super) fn begin_opening(&mut self) {
        *self = Self::default();
    }

    /// Looks at all parts after an input. `whole`: nothing has been chosen to leave yet.
    ///
    /// # Panics
    /// If reclaim took what it had to leave.
    pub(super) fn look(&mut self, engine: &Engine, whole: bool) {
        self.look_at_largest(engine);
        let superblock = engine.superblock();
        let min_blocks = |id| superblock.origin(id).map_or(0, |record| record.shares.min_bytes / BLOCK_BYTES);
        if self.of.is_empty() && superblock.origins.iter().all(|record| record.shares.min_bytes == 0) {
            return;
        }
        let origins = engine.status().origins;
        self.of.retain(|id, _| origins.iter().any(|it| it.id.0 == *id && min_blocks(it.id) > 0));
        for it in origins.iter().filter(|it| min_blocks(it.id) > 0) {
            let known = self.of.get(&it.id.0).copied();
            let part = Part::after(known, it, min_blocks(it.id), whole);
            assert!(
                part.cached >= part.floor,
                "reclaim takes what it had to leave: {part:?}, {known:?} before, {} at least, {it:?}",
                min_blocks(it.id)
            );
            self.of.insert(it.id.0, part);
        }
    }
}

impl Parts {
    fn look_at_largest(&mut self, engine: &Engine) {
        let superblock = engine.superblock();
        let max_blocks = |id| superblock.origin(id).map_or(0, |record| record.shares.max_bytes / BLOCK_BYTES);
        if self.largest.is_empty() && superblock.origins.iter().all(|record| record.shares.max_bytes == 0) {
            return;
        }
        let status = engine.status();
        self.largest.retain(|id, _| status.origins.iter().any(|it| it.id.0 == *id));
        for it in &status.origins {
            let (cached, max) = (it.blocks_cached, max_blocks(it.id));
            let (before, inputs) = self.largest.entry(it.id.0).or_default();
            let fine = max == 0 || cached <= max || cached == it.blocks_dirty || status.cache_failed;
            *inputs = if fine || cached < *before { 0 } else { *inputs + 1 };
            *before = cached;
            assert!(*inputs < INPUTS_MAX, "a volume has more than its largest part, {max} blocks: {it:?}");
        }
    }
}

impl Part {
    /// The part after an input.
    fn after(before: Option<Self>, it: &OriginStatus, min_blocks: u64, whole: bool) -> Self {
        // What leaves at the largest part makes room for the volume's own.
        let evicted = it.evicted_blocks - it.evicted_at_max;
        let (cached, excused) = (it.blocks_cached, it.evicted_below_min);
        let floor = match before {
            Some(before) => {
                // What came or went beside reclaim.
                let kept = (before.floor + cached + evicted).saturating_sub(before.cached + before.evicted);
                kept.saturating_sub(excused - before.excused)
            }
            None if whole => cached,
            None => 0,
        };
        Self { floor: floor.min(min_blocks), cached, evicted, excused }
    }
}
