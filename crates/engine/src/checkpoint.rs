// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checkpoints: the index on the device, so that replay need not start at the beginning.
//!
//! A checkpoint is fuzzy: the index is written part by part while requests go on. Its head names
//! the first commit that replay has to read, which is the next one when it began; what changed
//! since is in the log after that. The head is written last, when all that the parts refer to is
//! durable. Two areas are used in turn, so that the last checkpoint is whole while the next is
//! written.
//!
//! Of a mirrored cache that opens, one member may have a head that never reached the other, where
//! the area that comes next holds all that there is. So before that is overwritten the head that
//! was found goes to the other one, and then what is at the head of the next area counts no more on
//! either (test: `power_cuts_while_it_opens_leave_a_checkpoint_on_either_device`).

use alloc::vec::Vec;

use crate::cx::{Cx, blocks_span};
use crate::event::Event;
use crate::format::{
    CHECKPOINT_AGES_MAX, CHECKPOINT_ENTRIES_MAX, CheckpointEntry, CheckpointHeader, Stream, encode_checkpoint_ages,
    encode_checkpoint_entries,
};
use crate::io::{DeviceError, Op};
use crate::lane::Lane;
use crate::memory::Buf;
use crate::mirror::Copied;
use crate::organ::flying::LaneIo;
use crate::organ::members::device;

/// Blocks written at once.
pub(crate) const BATCH_BLOCKS: u32 = 64;

pub(crate) mod state;

use state::{Checkpoint, Phase};

impl Lane {
    /// Begins a checkpoint if one is wanted or the log since the last one is long.
    pub(crate) fn checkpoint_step(&mut self, cx: &mut Cx<'_>) {
        if !self.checkpoint.resting() || cx.shared.cache_failed || self.clearing() {
            return;
        }
        // A quarter of the cache: what replay reads stays small, and what a checkpoint writes
        // (16 bytes a block) stays under 1.6 % of the log.
        let long = self.log.segments_since_checkpoint() >= (self.log.segments.len() as u64 / 4).max(4);
        let useful = self.log.next_seq > self.checkpoint.covers || self.checkpoint.generation == 0;
        if (self.checkpoint.wanted || long) && useful {
            self.begin_checkpoint(cx);
        }
    }

    /// Begins the checkpoint of an opening, which found this head on this member.
    pub(crate) fn begin_first_checkpoint(&mut self, found: Option<(CheckpointHeader, u8)>, cx: &mut Cx<'_>) {
        let to_other = found.and_then(|(header, on)| Some((header, cx.shared.members.beside(on)?)));
        if to_other.is_none() && !cx.shared.members.is_leaving() {
            // A daemon makes durable what is on one device before it opens it.
            self.begin_checkpoint(cx);
            return;
        }
        let buf = cx.alloc(BATCH_BLOCKS);
        self.checkpoint.buf = Some(buf);
        let Some((header, to)) = to_other else {
            // Which waits until it is recorded that the other one is out.
            self.void_next_head(cx);
            return;
        };
        self.checkpoint.phase = Phase::Found { to };
        let block = blocks_span(buf, 0, 1);
        header.encode_into(cx.mem.bytes_mut(block));
        let io = self.ios.insert(LaneIo::Checkpoint);
        cx.io(self.id, io, device(to), Op::Write, self.area_offset(header.generation, cx), Some(block));
    }

    /// Makes the head of the next area count no more.
    fn void_next_head(&mut self, cx: &mut Cx<'_>) {
        let Some(buf) = self.checkpoint.buf else { return };
        self.checkpoint.phase = Phase::Void;
        cx.mem.zero(blocks_span(buf, 0, 1));
        self.write_first_block(buf, self.checkpoint.generation + 1, cx);
    }

    pub(crate) fn begin_checkpoint(&mut self, cx: &mut Cx<'_>) {
        let buf = cx.alloc(BATCH_BLOCKS);
        self.checkpoint = Checkpoint {
            wanted: false,
            covers: self.checkpoint.covers,
            generation: self.checkpoint.generation + 1,
            phase: Phase::Body,
            seq: self.log.next_seq,
            heads: self.log.heads(),
            next_segments: self.log.next_segments(),
            block: 1,
            buf: Some(buf),
            ..Checkpoint::default()
        };
        self.write_batch(cx);
    }

    /// Fills the buffer with the next blocks of the body and writes them.
    fn write_batch(&mut self, cx: &mut Cx<'_>) {
        let Some(buf) = self.checkpoint.buf else { return };
        let mut filled = 0;
        let room = cx.shared.superblock.checkpoint_blocks - self.checkpoint.block;
        while filled < BATCH_BLOCKS.min(room) {
            let generation = self.checkpoint.generation;
            let segments = &self.log.segments;
            if self.checkpoint.ages_written < segments.len() {
                let from = self.checkpoint.ages_written;
                let to = (from + CHECKPOINT_AGES_MAX).min(segments.len());
                let ages: Vec<u64> = segments[from..to].iter().map(|segment| segment.last_seq).collect();
                encode_checkpoint_ages(generation, &ages, cx.mem.bytes_mut(blocks_span(buf, filled, 1)));
                self.checkpoint.ages_written = to;
                filled += 1;
                continue;
            }
            while self.checkpoint.pending.len() < CHECKPOINT_ENTRIES_MAX && self.checkpoint.part < self.index.parts() {
                self.scan_part(cx);
            }
            let count = self.checkpoint.pending.len().min(CHECKPOINT_ENTRIES_MAX);
            if count == 0 {
                break;
            }
            let entries: Vec<CheckpointEntry> = self.checkpoint.pending.drain(..count).collect();
            encode_checkpoint_entries(generation, &entries, cx.mem.bytes_mut(blocks_span(buf, filled, 1)));
            self.checkpoint.entries += count as u64;
            filled += 1;
        }
        if filled == 0 {
            while self.checkpoint.pending.is_empty() && self.checkpoint.part < self.index.parts() {
                self.scan_part(cx);
            }
            if self.checkpoint.pending.is_empty() {
                self.body_written(cx);
            } else {
                // More than slots: blocks were put in ahead of the walk, and taken out behind it.
                self.checkpoint.wanted = true;
                self.abandon_checkpoint(cx);
            }
            return;
        }
        let at = self.area_offset(self.checkpoint.generation, cx)
            + u64::from(self.checkpoint.block) * crate::types::BLOCK_BYTES;
        self.checkpoint.block += filled;
        let io = self.ios.insert(LaneIo::Checkpoint);
        cx.cache_write(self.id, io, at, blocks_span(buf, 0, filled), Copied::All);
    }

    fn scan_part(&mut self, cx: &Cx<'_>) {
        let (log, pending) = (&self.log, &mut self.checkpoint.pending);
        self.index.scan(self.checkpoint.part, |flat, found| {
            // A clean block of an open commit may never become durable, and then its slot would
            // hold something else. (A dirty one will be: its commit is sealed before the head is
            // written.) Nor may one of a segment that is given up: the entry that says so may be
            // before `seq`. Nor what its origin may still lose.
            let may_vanish = || log.unsealed(found.slot) || log.given_up(found.slot) || log.awaits_proof_of(found.slot);
            if found.dirty || !may_vanish() {
                let key = cx.shared.key(flat);
                let (slot, dirty, hits, checksum) = (found.slot, found.dirty, found.hits, found.checksum);
                pending.push(CheckpointEntry { key, dirty, hits, slot, checksum });
            }
        });
        self.checkpoint.part += 1;
    }

    fn area_offset(&self, generation: u64, cx: &Cx<'_>) -> u64 {
        cx.shared.superblock.checkpoint_offset(self.id as u32, (generation % 2) as u32)
    }

    fn write_first_block(&mut self, buf: Buf, generation: u64, cx: &mut Cx<'_>) {
        let io = self.ios.insert(LaneIo::Checkpoint);
        let at = self.area_offset(generation, cx);
        cx.cache_write(self.id, io, at, blocks_span(buf, 0, 1), Copied::All);
    }

    fn body_written(&mut self, cx: &mut Cx<'_>) {
        self.checkpoint.phase = Phase::LogDurable;
        self.seal(Stream::Writes, cx);
        self.checkpoint.needs = self.log.last_sealed();
    }

    fn write_head(&mut self, cx: &mut Cx<'_>) {
        let Some(buf) = self.checkpoint.buf else { return };
        self.checkpoint.phase = Phase::Head;
        let header = CheckpointHeader {
            cache_tag: cx.shared.cache_tag,
            epoch: self.log.epoch,
            generation: self.checkpoint.generation,
            seq: self.checkpoint.seq,
            entries: self.checkpoint.entries,
            heads: self.checkpoint.heads,
            next_segments: self.checkpoint.next_segments,
            lane: self.id as u16,
            checksum_bits: self.index.checksum_bits(),
        };
        header.encode_into(cx.mem.bytes_mut(blocks_span(buf, 0, 1)));
        self.write_first_block(buf, header.generation, cx);
    }

    pub(crate) fn checkpoint_io_done(&mut self, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
        if let (Phase::Found { to }, Err(error)) = (self.checkpoint.phase, result) {
            let offset = self.area_offset(self.checkpoint.generation, cx);
            cx.event(Event::DeviceFailed { device: device(to), op: Op::Write, offset, error });
            cx.fail_member(device(to));
            if cx.shared.cache_failed {
                self.end_checkpoint(cx);
            } else {
                // The one that is left has the head that was found.
                self.void_next_head(cx);
            }
            return;
        }
        if let Err(error) = result {
            let offset = self.area_offset(self.checkpoint.generation, cx);
            cx.event(Event::DeviceFailed { device: cx.lead(), op: Op::Write, offset, error });
            cx.fail_member(cx.lead());
            self.abandon_checkpoint(cx);
            return;
        }
        match self.checkpoint.phase {
            Phase::Body => self.write_batch(cx),
            Phase::Found { .. } => self.checkpoint.phase = Phase::FoundDurable,
            Phase::Void => self.checkpoint.phase = Phase::VoidDurable,
            Phase::Head => self.checkpoint.phase = Phase::HeadDurable,
            Phase::Resting | Phase::FoundDurable | Phase::VoidDurable | Phase::LogDurable | Phase::HeadDurable => {}
        }
    }

    /// A flush that this checkpoint wanted when it was issued is over.
    pub(crate) fn checkpoint_flushed(&mut self, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
        if result.is_err() {
            cx.fail_member(cx.lead());
            self.abandon_checkpoint(cx);
            return;
        }
        match self.checkpoint.phase {
            Phase::FoundDurable => self.void_next_head(cx),
            Phase::VoidDurable => {
                self.end_checkpoint(cx);
                self.begin_checkpoint(cx);
            }
            Phase::LogDurable => self.write_head(cx),
            _ => {
                self.log.mark_checkpoint();
                self.checkpoint.covers = self.checkpoint.seq;
                cx.shared.counters.checkpoints += 1;
                self.end_checkpoint(cx);
                self.take_proof(cx);
            }
        }
    }

    /// Gives up: the cache device failed, or there are more entries than the area has room for. The
    /// next has another generation, but the same area: the other still holds the last whole
    /// checkpoint.
    fn abandon_checkpoint(&mut self, cx: &mut Cx<'_>) {
        let begun = !matches!(self.checkpoint.phase, Phase::FoundDurable | Phase::Void | Phase::VoidDurable);
        self.checkpoint.generation += u64::from(begun);
        self.end_checkpoint(cx);
    }

    fn end_checkpoint(&mut self, cx: &mut Cx<'_>) {
        self.checkpoint.phase = Phase::Resting;
        if let Some(buf) = self.checkpoint.buf.take() {
            cx.free(buf, BATCH_BLOCKS);
        }
    }
}
