// SPDX-License-Identifier: MIT OR Apache-2.0
//! What eras need, in a checkpoint: at the end of its area, written before its body.

use alloc::vec::Vec;

use super::area_offset;
use crate::act::mirror::Copied;
use crate::cx::{Cx, blocks_span};
use crate::fact::memory::Buf;
use crate::format::{
    CHECKPOINT_AGES_MAX, CHECKPOINT_ENTRIES_MAX, CHECKPOINT_ERAS_MAX, EraEntry, encode_checkpoint_eras,
};
use crate::lane::Lane;
use crate::organ::eras::Version;
use crate::organ::flying::LaneIo;
use crate::organ::index::Flat;

/// Blocks written at once.
const BATCH_BLOCKS: u32 = super::BATCH_BLOCKS;

/// How many blocks what eras need may take, where destage is ordered, and how many clean blocks
/// then have room in a checkpoint. It is made for one entry of each slot, and a dirty block takes
/// more. So after a crash a full cache may have forgotten clean blocks.
pub(super) fn room_for_eras(lane: &Lane, cx: &Cx<'_>) -> (u32, u64) {
    let Some(eras) = &lane.eras else { return (0, u64::MAX) };
    // More may come while it is written.
    let more = |count: u64| count + count / 8 + 1;
    let entries = more(eras.len()) + cx.facts.origins.len() as u64;
    let ages = lane.log.segments().len().div_ceil(CHECKPOINT_AGES_MAX) as u64;
    let room = u64::from(cx.facts.superblock.checkpoint_blocks).saturating_sub(1 + ages);
    let blocks = (entries.div_ceil(CHECKPOINT_ERAS_MAX as u64)).min(room);
    let left = (room - blocks) * CHECKPOINT_ENTRIES_MAX as u64;
    (blocks as u32, left.saturating_sub(more(lane.store.dirty())))
}

/// What eras need, from where the checkpoint is.
fn next_eras(lane: &mut Lane, cx: &Cx<'_>) -> Vec<EraEntry> {
    let (Some(eras), Some(from)) = (&lane.eras, lane.checkpoint.eras_from) else { return Vec::new() };
    let mut entries = Vec::new();
    if from == (Flat(0), 0) {
        let sent = cx.facts.origins.iter().zip(&cx.delta.origins);
        let sent = sent.map(|(record, it)| EraEntry::Sent { origin: record.id, era: it.cuts.sent() });
        lane.checkpoint.eras_sent.extend(sent.filter(|it| !matches!(it, EraEntry::Sent { era: 0, .. })));
    }
    while entries.len() < CHECKPOINT_ERAS_MAX
        && let Some(sent) = lane.checkpoint.eras_sent.pop()
    {
        entries.push(sent);
    }
    lane.checkpoint.eras_from = None;
    for (flat, era, Version { slot, checksum }) in eras.from(from) {
        if entries.len() == CHECKPOINT_ERAS_MAX {
            lane.checkpoint.eras_from = Some((flat, era));
            break;
        }
        entries.push(EraEntry::Version { key: cx.facts.key(flat), slot, checksum, era });
    }
    entries
}

/// Writes the next blocks of what eras need. Returns whether there were any.
pub(super) fn write_eras(lane: &mut Lane, buf: Buf, cx: &mut Cx<'_>) -> bool {
    let left = lane.checkpoint.eras_blocks - lane.checkpoint.eras_written;
    let blocks = left.min(BATCH_BLOCKS);
    for nth in 0..blocks {
        let entries = next_eras(lane, cx);
        encode_checkpoint_eras(lane.checkpoint.generation, &entries, cx.mem.bytes_mut(blocks_span(buf, nth, 1)));
    }
    if blocks > 0 {
        let offset = area_offset(lane, lane.checkpoint.generation, cx)
            + u64::from(cx.facts.superblock.checkpoint_blocks - left) * crate::fact::types::BLOCK_BYTES;
        lane.checkpoint.eras_written += blocks;
        let io = lane.ios.insert(LaneIo::Checkpoint);
        cx.cache_write(lane.id, io, offset, blocks_span(buf, 0, blocks), Copied::All);
    }
    blocks > 0
}
