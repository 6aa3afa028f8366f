// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cost of a policy's decisions: hits, origin I/O and flash writes, in blocks.

use core::ops::Sub;

/// Counts of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Accesses to blocks.
    pub accesses: u64,
    /// Accesses that read.
    pub reads: u64,
    /// Accesses that found their block.
    pub hits: u64,
    /// Reads that found their block.
    pub read_hits: u64,
    /// Writes in writeback mode that found their block in the log.
    pub write_hits: u64,
    /// Blocks written to flash because they were read.
    pub fill_blocks: u64,
    /// Blocks written to flash because they were written.
    pub absorbed_blocks: u64,
    /// Blocks written to flash once more, so that log segments become free.
    pub reinserted_blocks: u64,
    /// Blocks read from the origin.
    pub origin_read_blocks: u64,
    /// Blocks written to the origin, when they leave the cache or when the trace ends. This is the
    /// least that must be written: a daemon that destages earlier may write a block more than once.
    pub origin_write_blocks: u64,
}

/// Blocks that a log holds at a moment, and what it took to have room for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Blocks that would be a hit.
    pub live_blocks: u64,
    /// Places of blocks that were rewritten or dropped, in segments that are not free yet.
    pub dead_blocks: u64,
    /// Blocks that were written once more because most of their segment was dead.
    pub cleaned_blocks: u64,
}

impl Totals {
    /// Blocks written to flash.
    #[must_use]
    pub fn flash_blocks_written(&self) -> u64 {
        self.fill_blocks + self.absorbed_blocks + self.reinserted_blocks
    }

    /// The share of accesses that found their block; 0 without accesses.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        share(self.hits, self.accesses)
    }

    /// The share of reads that found their block; 0 without reads.
    #[must_use]
    pub fn read_hit_ratio(&self) -> f64 {
        share(self.read_hits, self.reads)
    }
}

impl Sub for Totals {
    type Output = Self;

    /// What was counted since `before`.
    fn sub(self, before: Self) -> Self {
        Self {
            accesses: self.accesses - before.accesses,
            reads: self.reads - before.reads,
            hits: self.hits - before.hits,
            read_hits: self.read_hits - before.read_hits,
            write_hits: self.write_hits - before.write_hits,
            fill_blocks: self.fill_blocks - before.fill_blocks,
            absorbed_blocks: self.absorbed_blocks - before.absorbed_blocks,
            reinserted_blocks: self.reinserted_blocks - before.reinserted_blocks,
            origin_read_blocks: self.origin_read_blocks - before.origin_read_blocks,
            origin_write_blocks: self.origin_write_blocks - before.origin_write_blocks,
        }
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
