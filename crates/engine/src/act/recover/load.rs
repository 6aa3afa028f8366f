// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading a checkpoint: the ages of segments, then the entries of the index.

use alloc::vec::Vec;

use super::state::Recovery;
use crate::act::expect::expect_key;
use crate::cx::{Cx, blocks_span};
use crate::fact::open_error::OpenError;
use crate::fact::types::BLOCK_BYTES;
use crate::format::{
    CHECKPOINT_AGES_MAX, CHECKPOINT_ENTRIES_MAX, CheckpointHeader, EraEntry, decode_checkpoint_ages,
    decode_checkpoint_entries, decode_checkpoint_eras,
};
use crate::lane::Lane;
use crate::organ::index::Found;

const BATCH_BLOCKS: u32 = 64;

impl Recovery {
    pub(crate) fn next_body_read(
        &mut self,
        lane: &mut Lane,
        header: CheckpointHeader,
        cx: &Cx<'_>,
    ) -> Option<(u64, u32)> {
        let segments = lane.log.segments().len() as u64;
        let blocks =
            1 + segments.div_ceil(CHECKPOINT_AGES_MAX as u64) + header.entries.div_ceil(CHECKPOINT_ENTRIES_MAX as u64);
        self.body = blocks as u32;
        // What eras need is at the end of the area.
        let eras = if lane.eras.is_some() { header.eras_blocks } else { 0 };
        self.eras.has_any = eras > 0;
        let end = if self.block < self.body { self.body } else { self.body + eras };
        self.batch = end.saturating_sub(self.block).min(BATCH_BLOCKS);
        (self.batch > 0).then(|| (self.body_offset(lane, header, 0, cx), self.batch))
    }

    /// Where the nth block of the batch is.
    fn body_offset(&self, lane: &Lane, header: CheckpointHeader, nth: u32, cx: &Cx<'_>) -> u64 {
        let block = self.block + nth;
        let eras = cx.facts.superblock.checkpoint_blocks - header.eras_blocks;
        let block = if block < self.body { block } else { eras + (block - self.body) };
        cx.facts.superblock.checkpoint_offset(lane.id as u32, self.area) + u64::from(block) * BLOCK_BYTES
    }

    /// Takes a batch of blocks: all of them, or none if one is damaged, so that it can be read
    /// again.
    pub(crate) fn take_body(
        &mut self,
        lane: &mut Lane,
        header: CheckpointHeader,
        cx: &mut Cx<'_>,
    ) -> Result<(), OpenError> {
        let slots = lane.log.segments().len() as u64 * u64::from(lane.log.segment_slots());
        let (mut ages, mut entries, mut eras) = (Vec::new(), Vec::new(), Vec::new());
        for nth in 0..self.batch {
            let block = cx.mem.bytes(blocks_span(self.buf, nth, 1));
            let offset = self.body_offset(lane, header, nth, cx);
            let damaged = OpenError::CheckpointDamaged { lane: lane.id as u32, offset };
            let missing = lane.log.segments().len() - self.ages_read - ages.len();
            if missing > 0 {
                let more = decode_checkpoint_ages(header.generation, block).ok_or(damaged)?;
                if more.len() != missing.min(CHECKPOINT_AGES_MAX) {
                    return Err(damaged);
                }
                ages.extend(more);
                continue;
            }
            if self.block + nth >= self.body {
                let more = decode_checkpoint_eras(header.generation, block).ok_or(damaged)?;
                let inside = |slot: u32| u64::from(slot) < slots;
                if more.iter().any(|it| matches!(it, EraEntry::Version { slot, .. } if !inside(*slot))) {
                    return Err(damaged);
                }
                eras.extend(more);
                continue;
            }
            let more = decode_checkpoint_entries(header.generation, block).ok_or(damaged)?;
            if more.iter().any(|entry| u64::from(entry.slot) >= slots) {
                return Err(damaged);
            }
            entries.push(more);
        }
        // All that a checkpoint refers to was flushed before its head was written.
        self.durable_seq = ages.iter().fold(self.durable_seq, |durable, age| durable.max(*age));
        lane.log.ages_found(self.ages_read, &ages);
        self.ages_read += ages.len();
        for entries in entries {
            entries.iter().for_each(|entry| expect_key(lane, entry.key, cx));
            for entry in entries {
                self.entries_read += 1;
                if let Some(flat) = cx.facts.flat(entry.key) {
                    let checksum = lane.store.kept(entry.checksum);
                    let (slot, dirty, hits) = (entry.slot, entry.dirty, entry.hits);
                    lane.map(flat, Found { slot, dirty, hits, checksum }, 0, cx);
                }
            }
        }
        eras.into_iter().for_each(|entry| self.eras.take_era(lane, entry, cx));
        self.block += self.batch;
        Ok(())
    }
}
