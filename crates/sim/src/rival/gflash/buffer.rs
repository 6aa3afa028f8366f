// SPDX-License-Identifier: MIT OR Apache-2.0
//! gflash's write buffer in RAM holds what waits to be destaged, and what is on its way to the
//! disk.
//!
//! Runs of dirty blocks leave in batches. RAM is free again once the disk was flushed after a
//! batch.

use super::blocks::Blocks;

/// The largest I/O of FreeBSD 10: 128 KiB.
const RUN_BLOCKS_MAX: u64 = 32;
/// Writes to the disk at a time; no source. The disk's cache takes more than the disk can.
const WRITES_MAX: u32 = 8;
/// A FLUSH of the disk comes after this part of RAM: 32 MiB of 4 GiB. Fitted to what was dirty
/// after tasks 7 to 13: 20 to 48 MiB less than RAM.
const FLUSH_PART: u64 = 128;

/// The first block of a run, and its length in blocks.
pub(super) type Run = (u64, u64);

pub(super) struct Buffer {
    blocks_max: u64,
    dirty: Blocks,
    /// Blocks that are on their way to the disk, or in its cache.
    leaving: Blocks,
    /// Destage has come so far.
    cursor: u64,
    writes: u32,
    batch: Vec<Run>,
    batch_blocks: u64,
    flushing: Option<Vec<Run>>,
}

impl Buffer {
    pub(super) fn new(origin_blocks: u64, blocks_max: u64) -> Self {
        Self {
            blocks_max,
            dirty: Blocks::new(origin_blocks),
            leaving: Blocks::new(origin_blocks),
            cursor: 0,
            writes: 0,
            batch: Vec::new(),
            batch_blocks: 0,
            flushing: None,
        }
    }

    pub(super) fn contains(&self, block: u64) -> bool {
        self.dirty.contains(block) || self.leaving.contains(block)
    }

    /// Blocks in the buffer.
    pub(super) fn used(&self) -> u64 {
        self.dirty.count() + self.leaving.count()
    }

    pub(super) fn has_room(&self, blocks: u64) -> bool {
        self.used() + blocks <= self.blocks_max
    }

    /// With two batches free the buffer is as good as full. One batch is on its way to the disk,
    /// and one is in the disk's cache.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.used() + 2 * self.flush_blocks() > self.blocks_max
    }

    pub(super) fn has_dirty(&self) -> bool {
        self.dirty.count() > 0
    }

    /// A client has written blocks.
    pub(super) fn write(&mut self, first: u64, blocks: u64) {
        for block in first..first + blocks {
            self.dirty.insert(block);
        }
    }

    const fn flush_blocks(&self) -> u64 {
        self.blocks_max / FLUSH_PART
    }

    /// Whether the disk takes another write before its next flush.
    pub(super) const fn takes_write(&self) -> bool {
        self.writes < WRITES_MAX && self.batch_blocks < self.flush_blocks()
    }

    /// Takes the next run of dirty blocks into the batch, to be written to the disk.
    pub(super) fn take_run(&mut self) -> Option<Run> {
        let (first, blocks) = self.next_run()?;
        for block in first..first + blocks {
            self.dirty.remove(block);
            self.leaving.insert(block);
        }
        self.writes += 1;
        self.batch.push((first, blocks));
        self.batch_blocks += blocks;
        Some((first, blocks))
    }

    /// Finds the next run of dirty blocks, upwards and from the beginning again.
    fn next_run(&mut self) -> Option<Run> {
        // What was written again while it leaves has to wait until it has left.
        for _ in 0..=2 * self.flush_blocks() {
            let first = self.dirty.next(self.cursor).or_else(|| self.dirty.next(0))?;
            let fits = |block: u64| self.dirty.contains(block) && !self.leaving.contains(block);
            let end = (first..first + RUN_BLOCKS_MAX).find(|block| *block >= self.dirty.bound() || !fits(*block));
            let end = end.unwrap_or(first + RUN_BLOCKS_MAX);
            self.cursor = end.max(first + 1);
            if end > first {
                return Some((first, end - first));
            }
        }
        None
    }

    /// A run is written.
    pub(super) const fn written(&mut self) {
        self.writes -= 1;
    }

    /// Ends the batch if the disk has to be flushed now; `is_over`: no more runs come soon.
    pub(super) fn end_batch(&mut self, is_over: bool) -> bool {
        let due = self.batch_blocks >= self.flush_blocks() || (is_over && self.batch_blocks > 0);
        if !due || self.writes > 0 || self.flushing.is_some() {
            return false;
        }
        self.flushing = Some(std::mem::take(&mut self.batch));
        self.batch_blocks = 0;
        true
    }

    /// The disk was flushed: the batch before that leaves RAM.
    pub(super) fn flushed(&mut self) {
        for (first, blocks) in self.flushing.take().into_iter().flatten() {
            for block in first..first + blocks {
                self.leaving.remove(block);
            }
        }
    }
}
