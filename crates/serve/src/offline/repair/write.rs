// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes a repaired cache: the new epoch, a fresh checkpoint for each lane, missing headers, and
//! the superblocks last.
//!
//! Each checkpoint goes into the area that nothing was taken from. Its head is written when its
//! body is durable. Until then the lane is what it was, so that a repair that is cut off can be run
//! again (test: `an_interrupted_repair_can_be_run_again`). The new checkpoints have no log behind
//! them: their epoch and commit number are higher than any that can be found.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use flashfront_engine::BLOCK_BYTES;
use flashfront_engine::format::{CheckpointHeader, NO_SLOT, STREAMS};

use super::{FREE_SEGMENTS_MIN, Lane, Older, Repair, RepairError, RepairReport};
use crate::failure;
use crate::offline::blocks::checkpoint_body;
use crate::offline::chain::Chain;
use crate::offline::reader::Reader;
use crate::superblock;

const BLOCK_LEN: usize = BLOCK_BYTES as usize;
/// Blocks written at once.
const BATCH: usize = 256;

impl Repair {
    /// Carries the plan out. `older`: what becomes of dirty blocks that are older than something
    /// lost; needed only if there are any.
    ///
    /// # Errors
    /// [`RepairError`]; only [`RepairError::Write`] comes after the first change.
    pub fn write(mut self, older: Option<Older>) -> Result<RepairReport, RepairError> {
        if !self.report.needed {
            return Ok(self.report);
        }
        let blocks = self.report.older_blocks;
        if blocks > 0 {
            let decision = older.ok_or(RepairError::Undecided { blocks })?;
            self.report.older_decision = Some(decision);
            if decision == Older::Drop {
                self.lanes.iter_mut().for_each(|lane| lane.held.update(|held| (!held.older).then_some(held)));
            }
        }
        let segments = self.superblock.segments_per_lane as usize;
        for lane in &self.lanes {
            let free = segments - self.used(lane).len();
            if free < FREE_SEGMENTS_MIN {
                return Err(RepairError::NoRoom { cache: self.report.cache, lane: lane.lane, free });
            }
        }
        self.write_all().map_err(|source| RepairError::Write { path: self.report.cache.clone(), source })?;
        failure::forget(self.state.as_deref(), &self.superblock);
        self.report.repaired = true;
        Ok(self.report)
    }

    fn write_all(&mut self) -> io::Result<()> {
        self.write_lanes()?;
        if !self.lanes.is_empty() {
            let held = self.lanes.iter().flat_map(|lane| lane.held.iter());
            self.superblock.dirty_blocks = held.filter(|held| held.dirty).count() as u64;
            self.superblock.failed = false;
        }
        superblock::write(&self.device, &mut self.superblock)
    }

    /// Writes the lanes, with a new epoch, which the superblock has first.
    ///
    /// Otherwise the opening after a repair that was cut off would take the same number. If its
    /// checkpoint decayed, its commits would not be known as later ones (test:
    /// `an_opening_after_an_interrupted_repair_is_a_later_one`).
    pub(super) fn write_lanes(&mut self) -> io::Result<()> {
        if self.lanes.is_empty() {
            return Ok(());
        }
        self.superblock.epoch = self.lanes.iter().map(|lane| lane.epoch).fold(self.superblock.epoch, u64::max) + 1;
        superblock::write(&self.device, &mut self.superblock)?;
        self.lanes.iter().try_for_each(|lane| self.write_lane(lane, self.superblock.epoch))
    }

    fn write_lane(&self, lane: &Lane, epoch: u64) -> io::Result<()> {
        let reader = Reader { device: &self.device, superblock: &self.superblock, damage: Vec::new() };
        let chain = |segment| (segment, reader.chain(lane.lane, segment, &lane.held));
        let chains: BTreeMap<u32, Chain> = self.used(lane).into_iter().map(chain).collect();
        // Generation g lies in area g mod 2.
        let area = lane.area.map_or(0, |area| 1 - area);
        let generation = lane.generation + 1 + u64::from((lane.generation + 1) % 2 != u64::from(area));
        let start = self.superblock.checkpoint_offset(lane.lane, area);
        let mut blocks = self.body(lane, generation, &chains);
        let mut at = start + BLOCK_BYTES;
        loop {
            let batch: Vec<u8> = blocks.by_ref().take(BATCH).flatten().collect();
            if batch.is_empty() {
                break;
            }
            self.device.write_at(at, &batch)?;
            at += batch.len() as u64;
        }
        self.device.sync()?;
        // Rebuilt headers have numbers behind the last one found. With lower numbers the log would
        // seem to lack commits that were durable.
        let last_seq = chains.values().map(|chain| chain.last_seq).fold(lane.seq, u64::max);
        let header = CheckpointHeader {
            cache_tag: self.superblock.cache_tag(),
            epoch,
            generation,
            seq: last_seq + 1,
            entries: lane.held.iter().count() as u64,
            heads: [NO_SLOT; STREAMS],
            next_segments: [NO_SLOT; STREAMS],
            lane: lane.lane as u16,
            checksum_bits: 32,
            eras_blocks: 0,
        };
        let mut block = vec![0; BLOCK_LEN];
        header.encode_into(&mut block);
        self.device.write_at(start, &block)?;
        self.device.sync()?;
        // From here on the lane is what it will be; the rest is for reclaim and for `check`.
        for (slot, header) in chains.values().flat_map(|chain| &chain.rebuilt) {
            header.encode_into(&mut block);
            self.device.write_at(self.superblock.slot_offset(lane.lane, *slot), &block)?;
        }
        // If the new head decays, the old checkpoint must not be taken for current.
        let other = self.superblock.checkpoint_offset(lane.lane, 1 - area);
        self.device.write_at(other, &vec![0; BLOCK_LEN])?;
        self.device.sync()
    }

    /// The segments in which something is kept.
    fn used(&self, lane: &Lane) -> BTreeSet<u32> {
        lane.held.iter().map(|held| held.slot / self.superblock.segment_blocks).collect()
    }

    /// The blocks of a checkpoint behind its head.
    fn body(&self, lane: &Lane, generation: u64, chains: &BTreeMap<u32, Chain>) -> impl Iterator<Item = Vec<u8>> {
        let ages: Vec<u64> = (0..self.superblock.segments_per_lane)
            .map(|segment| chains.get(&segment).map_or(0, |chain| chain.last_seq))
            .collect();
        checkpoint_body(generation, &ages, &lane.held)
    }
}
