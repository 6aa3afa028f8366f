// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carries out the plan of a cache that shrinks: see the order at the top of `shrink`.

use std::io;

use flashfront_device::real::DeviceFile;
use flashfront_engine::BLOCK_BYTES;
use flashfront_engine::format::{CheckpointHeader, NO_SLOT, STREAMS, Superblock};

use super::LanePlan;
use crate::offline::blocks::{Live, checkpoint_body};

/// Blocks written at once.
const BATCH: usize = 256;

/// What is done to the cache device.
pub(super) enum Put<'a> {
    /// Bytes are written at a place.
    Write(u64, &'a [u8]),
    /// All that was written is made durable.
    Sync,
}

impl Put<'_> {
    pub(super) fn carry_out(&self, device: &DeviceFile) -> io::Result<()> {
        match *self {
            Self::Write(offset, bytes) => device.write_at(offset, bytes),
            Self::Sync => device.sync(),
        }
    }
}

/// A cache that is made smaller.
pub(super) struct Writer<'a> {
    pub(super) device: &'a DeviceFile,
    /// As it is until the new superblock counts.
    pub(super) before: Superblock,
    pub(super) put: &'a mut dyn FnMut(Put<'_>) -> io::Result<()>,
    /// Whether it was a read that failed.
    pub(super) failed_read: bool,
}

impl Writer<'_> {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        (self.put)(Put::Write(offset, bytes))
    }

    fn sync(&mut self) -> io::Result<()> {
        (self.put)(Put::Sync)
    }

    /// Makes it smaller, and says from which size to which.
    pub(super) fn write_all(
        &mut self,
        mut plans: Vec<LanePlan>,
        mut next: Superblock,
        progress: &mut dyn FnMut(u64, u64),
    ) -> io::Result<(u64, u64)> {
        let from_bytes = self.before.cache_bytes;
        // A checkpoint has no log behind it if no commit has its epoch.
        self.before.epoch += 1;
        self.before.update += 1;
        let before = self.before.clone();
        self.superblocks(&before)?;
        let all: u64 = plans.iter().map(|plan| plan.moves.len() as u64).sum();
        let mut moved = 0;
        for plan in &mut plans {
            // What is dropped is in the way until nothing speaks of it any more.
            self.checkpoint(plan)?;
            if plan.moves.is_empty() {
                continue;
            }
            for (from, to) in plan.moves.clone() {
                self.copy(plan.lane, from, to)?;
                moved += 1;
                progress(moved, all);
            }
            self.sync()?;
            plan.follow_moves(self.before.segment_blocks);
            self.checkpoint(plan)?;
        }
        next.epoch = self.before.epoch;
        for plan in &mut plans {
            plan.ages.truncate(next.segments_per_lane as usize);
            plan.generation += 1;
            let area = (plan.generation % 2) as u32;
            self.body(plan, &next, area)?;
            self.head(plan, &next, area)?;
            self.write(next.checkpoint_offset(plan.lane, 1 - area), &vec![0; BLOCK_BYTES as usize])?;
        }
        self.sync()?;
        next.update = self.before.update + 1;
        self.superblocks(&next)?;
        // A start whose first copy can't be read must not find what the cache was.
        let [_, old] = Superblock::offsets(from_bytes);
        self.write(old, &vec![0; BLOCK_BYTES as usize])?;
        self.sync()?;
        Ok((from_bytes, next.cache_bytes))
    }

    /// Writes both copies of a superblock, durably, the first one last.
    fn superblocks(&mut self, superblock: &Superblock) -> io::Result<()> {
        let block = superblock.encode();
        for offset in Superblock::offsets(superblock.cache_bytes).into_iter().rev() {
            self.write(offset, &block)?;
            self.sync()?;
        }
        Ok(())
    }

    /// Writes a lane's next checkpoint, durably, into the area that does not count now.
    fn checkpoint(&mut self, plan: &mut LanePlan) -> io::Result<()> {
        let before = self.before.clone();
        plan.area = 1 - plan.area;
        plan.generation += 1;
        plan.generation += u64::from(plan.generation % 2 != u64::from(plan.area));
        self.body(plan, &before, plan.area)?;
        self.sync()?;
        self.head(plan, &before, plan.area)?;
        self.sync()
    }

    fn body(&mut self, plan: &LanePlan, superblock: &Superblock, area: u32) -> io::Result<()> {
        let mut at = superblock.checkpoint_offset(plan.lane, area) + BLOCK_BYTES;
        let mut blocks = checkpoint_body(plan.generation, &plan.ages, &plan.held);
        loop {
            let batch: Vec<u8> = blocks.by_ref().take(BATCH).flatten().collect();
            if batch.is_empty() {
                return Ok(());
            }
            self.write(at, &batch)?;
            at += batch.len() as u64;
        }
    }

    fn head(&mut self, plan: &LanePlan, superblock: &Superblock, area: u32) -> io::Result<()> {
        let header = CheckpointHeader {
            cache_tag: superblock.cache_tag(),
            epoch: superblock.epoch,
            generation: plan.generation,
            seq: plan.seq,
            entries: plan.held.iter().count() as u64,
            heads: [NO_SLOT; STREAMS],
            next_segments: [NO_SLOT; STREAMS],
            lane: plan.lane as u16,
            checksum_bits: plan.checksum_bits,
            eras_blocks: 0,
        };
        let mut block = vec![0; BLOCK_BYTES as usize];
        header.encode_into(&mut block);
        self.write(superblock.checkpoint_offset(plan.lane, area), &block)
    }

    /// Copies a segment, as it is: its blocks keep their checksums.
    fn copy(&mut self, lane: u32, from: u32, to: u32) -> io::Result<()> {
        let slots = self.before.segment_blocks;
        let mut bytes = vec![0; slots as usize * BLOCK_BYTES as usize];
        if let Err(error) = self.device.read_at(self.before.slot_offset(lane, from * slots), &mut bytes) {
            self.failed_read = true;
            return Err(error);
        }
        self.write(self.before.slot_offset(lane, to * slots), &bytes)
    }
}

impl LanePlan {
    /// The segments that were to move have moved.
    fn follow_moves(&mut self, slots: u32) {
        for (from, to) in std::mem::take(&mut self.moves) {
            let held: Vec<Live> = self.held.range(from * slots..(from + 1) * slots).collect();
            for live in held {
                self.held.clear(live.slot);
                self.held.put(Live { slot: to * slots + live.slot % slots, ..live });
            }
            self.ages[to as usize] = std::mem::take(&mut self.ages[from as usize]);
        }
    }
}
