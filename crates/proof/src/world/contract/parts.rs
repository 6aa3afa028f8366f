// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watches that reclaim leaves each volume its smallest part of the cache.
//!
//! A volume that has its part keeps it, whatever reclaim does. It has less only after something
//! else took blocks: a direct write, a discard, or damage. The engine may say, too, that no other
//! room was to be had. This is seen from outside: from what the cache has of a volume, and what
//! reclaim dropped of it.

use std::collections::BTreeMap;

use flashfront_engine::{BLOCK_BYTES, Engine, OriginStatus};

/// The volumes that have a smallest part, by their numbers.
#[derive(Default)]
pub(super) struct Parts(BTreeMap<u32, Part>);

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
        self.0.clear();
    }

    /// Looks at all parts after an input. `whole`: nothing has been chosen to leave yet.
    ///
    /// # Panics
    /// If reclaim took what it had to leave.
    pub(super) fn look(&mut self, engine: &Engine, whole: bool) {
        let superblock = engine.superblock();
        let min_blocks = |id| superblock.origin(id).map_or(0, |record| record.shares.min_bytes / BLOCK_BYTES);
        if self.0.is_empty() && superblock.origins.iter().all(|record| record.shares.min_bytes == 0) {
            return;
        }
        let origins = engine.status().origins;
        self.0.retain(|id, _| origins.iter().any(|it| it.id.0 == *id && min_blocks(it.id) > 0));
        for it in origins.iter().filter(|it| min_blocks(it.id) > 0) {
            let known = self.0.get(&it.id.0).copied();
            let part = Part::after(known, it, min_blocks(it.id), whole);
            assert!(
                part.cached >= part.floor,
                "reclaim takes what it had to leave: {part:?}, {known:?} before, {} at least, {it:?}",
                min_blocks(it.id)
            );
            self.0.insert(it.id.0, part);
        }
    }
}

impl Part {
    /// The part after an input.
    fn after(before: Option<Self>, it: &OriginStatus, min_blocks: u64, whole: bool) -> Self {
        let (cached, evicted, excused) = (it.blocks_cached, it.evicted_blocks, it.evicted_below_min);
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
