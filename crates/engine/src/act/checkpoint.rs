// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checkpoints: the index on the device, so that replay need not start at the beginning.
//!
//! A checkpoint is fuzzy: the index is written part by part while requests go on. Its head names
//! the first commit that replay has to read: the next one when the checkpoint began. What changed
//! since is in the log after that. The head is written last, when all that the parts refer to is
//! durable. Two areas are used in turn, so that the last checkpoint is whole while the next is
//! written.
//!
//! When a mirrored cache opens, one member may have a head that never reached the other member. The
//! other member's only checkpoint then lies in the next area. So before that area is overwritten,
//! the head that was found is written to the other member. Then the head of the next area is made
//! void on both (test: `power_cuts_while_it_opens_leave_a_checkpoint_on_either_device`).

use alloc::vec::Vec;

use crate::act::commit::seal::seal;
use crate::act::commit::unproven::take_proof;
use crate::act::mirror::Copied;
use crate::act::sync::clearing;
use crate::cx::{Cx, blocks_span};
use crate::fact::event::Event;
use crate::fact::io::{DeviceError, Op};
use crate::fact::memory::Buf;
use crate::format::{
    CHECKPOINT_AGES_MAX, CHECKPOINT_ENTRIES_MAX, CheckpointEntry, CheckpointHeader, Stream, encode_checkpoint_ages,
    encode_checkpoint_entries,
};
use crate::lane::Lane;
use crate::organ::flying::LaneIo;
use crate::organ::index::Flat;
use crate::organ::members::device;

/// Blocks written at once.
pub(crate) const BATCH_BLOCKS: u32 = 64;

pub(crate) mod eras;
pub(crate) mod state;

use eras::{can_checkpoint, may_tell_eras, room_for_eras, write_eras};
use state::{Checkpoint, CheckpointPhase};

/// Begins a checkpoint if one is wanted or the log since the last one is long.
pub(crate) fn checkpoint_step(lane: &mut Lane, cx: &mut Cx<'_>) {
    if !lane.checkpoint.resting() || cx.cache_failed() || clearing(lane) {
        return;
    }
    // A quarter of the cache: what replay reads stays small, and what a checkpoint writes
    // (16 bytes a block) stays under 1.6 % of the log.
    let long = lane.log.segments_since_checkpoint() >= (lane.log.segments().len() as u64 / 4).max(4);
    let useful = lane.log.next_seq > lane.checkpoint.covers || lane.checkpoint.generation == 0;
    if (lane.checkpoint.wanted || long) && useful && can_checkpoint(lane, cx) || may_tell_eras(lane, cx) {
        begin_checkpoint(lane, cx);
    }
}

/// Begins the checkpoint of an opening, which found this head on this member.
pub(crate) fn begin_first_checkpoint(lane: &mut Lane, found: Option<(CheckpointHeader, u8)>, cx: &mut Cx<'_>) {
    let to_other = found.and_then(|(header, on)| Some((header, cx.delta.members.beside(on)?)));
    if to_other.is_none() && !cx.delta.members.is_leaving() {
        // A daemon makes durable what is on one device before it opens it.
        begin_checkpoint(lane, cx);
        return;
    }
    let buf = cx.alloc(BATCH_BLOCKS);
    lane.checkpoint.buf = Some(buf);
    let Some((header, to)) = to_other else {
        // Which waits until it is recorded that the other one is out.
        void_next_head(lane, cx);
        return;
    };
    lane.checkpoint.phase = CheckpointPhase::Found { to };
    let block = blocks_span(buf, 0, 1);
    header.encode_into(cx.mem.bytes_mut(block));
    let io = lane.ios.insert(LaneIo::Checkpoint);
    cx.io(lane.id, io, device(to), Op::Write, area_offset(lane, header.generation, cx), Some(block));
}

/// Makes the head of the next area count no more.
fn void_next_head(lane: &mut Lane, cx: &mut Cx<'_>) {
    let Some(buf) = lane.checkpoint.buf else { return };
    lane.checkpoint.phase = CheckpointPhase::Void;
    cx.mem.zero(blocks_span(buf, 0, 1));
    write_first_block(lane, buf, lane.checkpoint.generation + 1, cx);
}

/// Begins a checkpoint: the body comes first.
pub(crate) fn begin_checkpoint(lane: &mut Lane, cx: &mut Cx<'_>) {
    let buf = cx.alloc(BATCH_BLOCKS);
    let (eras_blocks, clean_left) = room_for_eras(lane, cx);
    lane.checkpoint = Checkpoint {
        eras_blocks,
        clean_left,
        eras_from: (eras_blocks > 0).then_some((Flat(0), 0)),
        seq: lane.log.next_seq,
        heads: lane.log.heads(),
        next_segments: lane.log.next_segments(),
        buf: Some(buf),
        ..lane.checkpoint.next()
    };
    write_batch(lane, cx);
}

/// Fills the buffer with the next blocks of the body and writes them.
fn write_batch(lane: &mut Lane, cx: &mut Cx<'_>) {
    let Some(buf) = lane.checkpoint.buf else { return };
    if write_eras(lane, buf, cx) {
        return;
    }
    if lane.checkpoint.eras_from.is_some() {
        // More than there was room for.
        lane.checkpoint.wanted = true;
        abandon_checkpoint(lane, cx);
        return;
    }
    let mut filled = 0;
    let room = cx.facts.superblock.checkpoint_blocks - lane.checkpoint.eras_blocks - lane.checkpoint.block;
    while filled < BATCH_BLOCKS.min(room) {
        let generation = lane.checkpoint.generation;
        let segments = lane.log.segments();
        if lane.checkpoint.ages_written < segments.len() {
            let from = lane.checkpoint.ages_written;
            let to = (from + CHECKPOINT_AGES_MAX).min(segments.len());
            let ages: Vec<u64> = segments[from..to].iter().map(|segment| segment.last_seq).collect();
            encode_checkpoint_ages(generation, &ages, cx.mem.bytes_mut(blocks_span(buf, filled, 1)));
            lane.checkpoint.ages_written = to;
            filled += 1;
            continue;
        }
        while lane.checkpoint.pending.len() < CHECKPOINT_ENTRIES_MAX
            && lane.checkpoint.part < lane.store.index().parts()
        {
            scan_part(lane, cx);
        }
        let count = lane.checkpoint.pending.len().min(CHECKPOINT_ENTRIES_MAX);
        if count == 0 {
            break;
        }
        let entries: Vec<CheckpointEntry> = lane.checkpoint.pending.drain(..count).collect();
        encode_checkpoint_entries(generation, &entries, cx.mem.bytes_mut(blocks_span(buf, filled, 1)));
        lane.checkpoint.entries += count as u64;
        filled += 1;
    }
    if filled == 0 {
        while lane.checkpoint.pending.is_empty() && lane.checkpoint.part < lane.store.index().parts() {
            scan_part(lane, cx);
        }
        if lane.checkpoint.pending.is_empty() {
            body_written(lane, cx);
        } else {
            // More than slots: blocks were put in ahead of the walk, and taken out behind it.
            lane.checkpoint.wanted = true;
            abandon_checkpoint(lane, cx);
        }
        return;
    }
    let offset = area_offset(lane, lane.checkpoint.generation, cx)
        + u64::from(lane.checkpoint.block) * crate::fact::types::BLOCK_BYTES;
    lane.checkpoint.block += filled;
    let io = lane.ios.insert(LaneIo::Checkpoint);
    cx.cache_write(lane.id, io, offset, blocks_span(buf, 0, filled), Copied::All);
}

fn scan_part(lane: &mut Lane, cx: &Cx<'_>) {
    let (log, pending, clean_left) = (&lane.log, &mut lane.checkpoint.pending, &mut lane.checkpoint.clean_left);
    lane.store.index().scan(lane.checkpoint.part, |flat, found| {
        // A clean block of an open commit may never become durable, and then its slot would
        // hold something else. (A dirty one will be: its commit is sealed before the head is
        // written.) Nor may one of a segment that is given up: the entry that says so may be
        // before `seq`. Nor what its origin may still lose.
        let may_vanish = || log.unsealed(found.slot) || log.given_up(found.slot) || log.awaits_proof_of(found.slot);
        if found.dirty || *clean_left > 0 && !may_vanish() {
            *clean_left -= u64::from(!found.dirty);
            let key = cx.facts.key(flat);
            let (slot, dirty, hits, checksum) = (found.slot, found.dirty, found.hits, found.checksum);
            pending.push(CheckpointEntry { key, dirty, hits, slot, checksum });
        }
    });
    lane.checkpoint.part += 1;
}

pub(super) fn area_offset(lane: &Lane, generation: u64, cx: &Cx<'_>) -> u64 {
    cx.facts.superblock.checkpoint_offset(lane.id as u32, (generation % 2) as u32)
}

fn write_first_block(lane: &mut Lane, buf: Buf, generation: u64, cx: &mut Cx<'_>) {
    let io = lane.ios.insert(LaneIo::Checkpoint);
    let offset = area_offset(lane, generation, cx);
    cx.cache_write(lane.id, io, offset, blocks_span(buf, 0, 1), Copied::All);
}

fn body_written(lane: &mut Lane, cx: &mut Cx<'_>) {
    lane.checkpoint.phase = CheckpointPhase::LogDurable;
    seal(lane, Stream::Writes, cx);
    lane.checkpoint.needs = lane.log.last_sealed();
}

fn write_head(lane: &mut Lane, cx: &mut Cx<'_>) {
    let Some(buf) = lane.checkpoint.buf else { return };
    lane.checkpoint.phase = CheckpointPhase::Head;
    let header = CheckpointHeader {
        cache_tag: cx.facts.cache_tag,
        epoch: lane.log.epoch,
        generation: lane.checkpoint.generation,
        seq: lane.checkpoint.seq,
        entries: lane.checkpoint.entries,
        heads: lane.checkpoint.heads,
        next_segments: lane.checkpoint.next_segments,
        lane: lane.id as u16,
        checksum_bits: lane.store.index().checksum_bits(),
        eras_blocks: lane.checkpoint.eras_blocks,
    };
    header.encode_into(cx.mem.bytes_mut(blocks_span(buf, 0, 1)));
    write_first_block(lane, buf, header.generation, cx);
}

/// A write of the checkpoint is over: the next step of it.
pub(crate) fn checkpoint_io_done(lane: &mut Lane, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
    if let (CheckpointPhase::Found { to }, Err(error)) = (lane.checkpoint.phase, result) {
        let offset = area_offset(lane, lane.checkpoint.generation, cx);
        cx.event(Event::DeviceFailed { device: device(to), op: Op::Write, offset, error });
        cx.fail_member(device(to));
        if cx.cache_failed() {
            end_checkpoint(lane, cx);
        } else {
            // The one that is left has the head that was found.
            void_next_head(lane, cx);
        }
        return;
    }
    if let Err(error) = result {
        let offset = area_offset(lane, lane.checkpoint.generation, cx);
        cx.event(Event::DeviceFailed { device: cx.lead(), op: Op::Write, offset, error });
        cx.fail_member(cx.lead());
        abandon_checkpoint(lane, cx);
        return;
    }
    match lane.checkpoint.phase {
        CheckpointPhase::Body => write_batch(lane, cx),
        CheckpointPhase::Found { .. } => lane.checkpoint.phase = CheckpointPhase::FoundDurable,
        CheckpointPhase::Void => lane.checkpoint.phase = CheckpointPhase::VoidDurable,
        CheckpointPhase::Head => lane.checkpoint.phase = CheckpointPhase::HeadDurable,
        CheckpointPhase::Resting
        | CheckpointPhase::FoundDurable
        | CheckpointPhase::VoidDurable
        | CheckpointPhase::LogDurable
        | CheckpointPhase::HeadDurable => {}
    }
}

/// A flush that this checkpoint wanted when it was issued is over.
pub(crate) fn checkpoint_flushed(lane: &mut Lane, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
    if result.is_err() {
        cx.fail_member(cx.lead());
        abandon_checkpoint(lane, cx);
        return;
    }
    match lane.checkpoint.phase {
        CheckpointPhase::FoundDurable => void_next_head(lane, cx),
        CheckpointPhase::VoidDurable => {
            end_checkpoint(lane, cx);
            begin_checkpoint(lane, cx);
        }
        CheckpointPhase::LogDurable => write_head(lane, cx),
        _ => {
            lane.log.mark_checkpoint();
            lane.checkpoint.is_durable();
            cx.delta.counters.checkpoints += 1;
            end_checkpoint(lane, cx);
            take_proof(lane, cx);
        }
    }
}

/// Gives up: the cache device failed, or there are more entries than the area has room for. The
/// next has another generation, but the same area: the other still holds the last whole
/// checkpoint.
fn abandon_checkpoint(lane: &mut Lane, cx: &mut Cx<'_>) {
    let begun = !matches!(
        lane.checkpoint.phase,
        CheckpointPhase::FoundDurable | CheckpointPhase::Void | CheckpointPhase::VoidDurable
    );
    lane.checkpoint.generation += u64::from(begun);
    end_checkpoint(lane, cx);
}

fn end_checkpoint(lane: &mut Lane, cx: &mut Cx<'_>) {
    lane.checkpoint.rest();
    if let Some(buf) = lane.checkpoint.buf.take() {
        cx.free(buf, BATCH_BLOCKS);
    }
}
