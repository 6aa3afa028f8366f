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
use crate::look::Look;
use crate::organ::eras::{Eras, Version};
use crate::organ::flying::LaneIo;
use crate::organ::index::Flat;

/// Blocks written at once.
const BATCH_BLOCKS: u32 = super::BATCH_BLOCKS;

/// Blocks of a checkpoint's area beside its head and its ages.
fn room(lane: &Lane, cx: &Cx<'_>) -> u64 {
    let ages = lane.log.segments().len().div_ceil(CHECKPOINT_AGES_MAX) as u64;
    u64::from(cx.facts.superblock.checkpoint_blocks).saturating_sub(1 + ages)
}

/// Blocks that what eras need takes.
fn blocks_of_eras(versions: u64, cx: &Cx<'_>) -> u64 {
    // Two entries for each origin say which of its eras are sent, and which may be. So there is one
    // block at least.
    (versions + 2 * cx.facts.origins.len() as u64).div_ceil(CHECKPOINT_ERAS_MAX as u64).max(1)
}

/// Whether a checkpoint has room for what eras need and so many versions more. A dirty block takes
/// more of it than a clean one, for which it is made.
fn has_room_for(more: u64, lane: &Lane, cx: &Cx<'_>) -> bool {
    let Some(eras) = &lane.eras else { return true };
    let dirty = (lane.store.dirty() + more).div_ceil(CHECKPOINT_ENTRIES_MAX as u64);
    blocks_of_eras(eras.len() + more, cx) + dirty <= room(lane, cx)
}

/// Whether a dirty block may be written: the next checkpoint must have room for it, and the last
/// one must tell of eras. So after a restart none of them is forgotten. Lanes fill unevenly, so the
/// dirty limit alone does not see to that (test: `one_lane_full_of_versions_can_be_opened`).
pub(crate) fn may_write_version(lane: &Lane, cx: &Cx<'_>) -> bool {
    // After a crash there may be a few more: the log tells of what was destaged only afterwards.
    let more = |eras: &Eras| 1 + eras.len() / 8;
    lane.eras.as_ref().is_none_or(|eras| lane.checkpoint.tells_eras() && has_room_for(more(eras), lane, cx))
}

impl Look<'_> {
    /// Whether writes wait until eras need fewer versions, of whatever origin.
    pub(crate) fn awaits_versions(self, cx: &Cx<'_>) -> bool {
        match self {
            Self::Now(lane) => !lane.awaiting_room.is_empty() && !may_write_version(lane, cx),
            Self::Seen(seen, _) => seen.pressure.versions,
        }
    }
}

/// Whether a checkpoint can be made. One that does not tell of eras says that all that is dirty is
/// one era. That is right until the first one that tells of them.
pub(crate) fn can_checkpoint(lane: &Lane, cx: &Cx<'_>) -> bool {
    !lane.checkpoint.tells_eras() || has_room_for(0, lane, cx)
}

/// Whether the first checkpoint that tells of eras has room by now.
pub(super) fn may_tell_eras(lane: &Lane, cx: &Cx<'_>) -> bool {
    lane.eras.is_some() && !lane.checkpoint.tells_eras() && has_room_for(0, lane, cx)
}

/// How many blocks what eras need may take, where destage is ordered, and how many clean blocks
/// then have room in a checkpoint. So after a crash a full cache may have forgotten clean blocks.
/// No blocks: what was dirty before destage was ordered is too much.
pub(super) fn room_for_eras(lane: &Lane, cx: &Cx<'_>) -> (u32, u64) {
    let Some(eras) = &lane.eras else { return (0, u64::MAX) };
    // More may come while it is written.
    let more = |count: u64| count + count / 8 + 1;
    let (room, dirty) = (room(lane, cx), lane.store.dirty());
    let blocks = if has_room_for(0, lane, cx) {
        blocks_of_eras(more(eras.len()), cx).min(room - dirty.div_ceil(CHECKPOINT_ENTRIES_MAX as u64))
    } else {
        0
    };
    let left = (room - blocks) * CHECKPOINT_ENTRIES_MAX as u64;
    (blocks as u32, left.saturating_sub(more(dirty)))
}

/// What eras need, from where the checkpoint is.
fn next_eras(lane: &mut Lane, cx: &Cx<'_>) -> Vec<EraEntry> {
    let (Some(eras), Some(from)) = (&lane.eras, lane.checkpoint.eras_from) else { return Vec::new() };
    let mut entries = Vec::new();
    if from == (Flat(0), 0) {
        for (record, it) in cx.facts.origins.iter().zip(&cx.delta.origins) {
            let (origin, era, last) = (record.id, it.cuts.sent(), it.cuts.group_noted());
            let sent = (era > 0).then_some(EraEntry::Sent { origin, era });
            let group = (last > 0).then_some(EraEntry::Group { origin, last });
            lane.checkpoint.eras_sent.extend(sent.into_iter().chain(group));
        }
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
