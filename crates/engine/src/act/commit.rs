// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log of a lane. Blocks are appended to open commits in RAM. A commit is sealed when it is
//! full and a place in flight is free. Then it is written, and made durable, in order.
//!
//! Rules, each needed by recovery (docs/internals/format.md):
//! - A commit gets its number when it is sealed, and its entries are judged then. So a block
//!   superseded in the meantime (perhaps in another stream) is written as dead. Whoever takes a
//!   block out of its slot says so to the open commit, which saves a look-up for each block.
//! - Each header says where every stream's next commit will start, so that replay can follow the
//!   log without searching. A stream therefore always has its next segment reserved.
//! - Replay takes a clean block only if its content is durable on the origin. A header says of how
//!   many commits of promoted blocks that was not known (see `unproven`).
//! - A FLUSH that comes while a commit made for FLUSHes is in flight shares the next one.

mod depth;
mod end;
pub(crate) mod log;
mod proofs;
pub(crate) mod seal;
mod segments;
pub(crate) mod unproven;
mod waiting;

use alloc::vec::Vec;

use crate::act::checkpoint::eras::may_write_version;
use crate::act::commit::seal::seal_full;
use crate::act::destage::versions::{era_of_write, overwritten};
use crate::act::shares::max::{is_at_max, wake_hand};
use crate::cx::Cx;
use crate::fact::canary::Canary;
use crate::fact::memory::Span;
use crate::fact::types::{BLOCK_BYTES, SegmentId};
use crate::format::{COMMIT_ENTRIES_MAX, Stream};
use crate::lane::Lane;
use crate::organ::eras::Version;
use crate::organ::index::{Flat, Found};
use crate::organ::members;
use crate::organ::segment::SegmentState;
use crate::policy::HITS_MAX;
use log::{CLEANED_WAITING_MAX, For, Open, Put};

/// Appends a dirty block, of which the index knows this, to the writes and maps it there; false
/// if there is no room now.
pub(crate) fn append_write(lane: &mut Lane, flat: Flat, found: Option<Found>, from: Span, cx: &mut Cx<'_>) -> bool {
    if cx.cache_failed() {
        return false;
    }
    if found.is_some_and(|found| overwrite_in_place(lane, flat, found, from, cx)) {
        return true;
    }
    if !may_write_version(lane, cx) || !open(lane, Stream::Writes, For::Clients, cx) {
        return false;
    }
    if cx.facts.any_max {
        wake_hand(lane, flat, cx);
    }
    let hits = match found {
        None => lane.policy.write_missed(flat.0),
        Some(found) => lane.policy.rewritten(lane.log.zone_of(found.slot), found.hits),
    };
    let era = if lane.eras.is_some() { era_of_write(flat, cx) } else { 0 };
    lane.reclaim.made_room();
    put(lane, Stream::Writes, flat, true, era, hits, from, cx)
}

/// Appends a clean block to the stream of what is promoted and maps it there; false if there is no
/// room now.
pub(crate) fn append_promoted(lane: &mut Lane, flat: Flat, hits: u8, from: Span, cx: &mut Cx<'_>) -> bool {
    let stream = Stream::Promoted;
    if cx.facts.any_max {
        wake_hand(lane, flat, cx);
        if is_at_max(flat, cx) {
            return false;
        }
    }
    if cx.cache_failed() || !open(lane, stream, For::Clients, cx) {
        return false;
    }
    lane.reclaim.made_room();
    put(lane, stream, flat, false, 0, hits, from, cx)
}

/// Appends a block to the open commit of a stream and maps it there; false if there is none. `era`:
/// the one that needs a dirty block, where destage is ordered.
#[expect(clippy::too_many_arguments, reason = "the parts of one block; a struct would only name them twice")]
pub(crate) fn put(
    lane: &mut Lane,
    stream: Stream,
    flat: Flat,
    dirty: bool,
    era: u64,
    hits: u8,
    from: Span,
    cx: &mut Cx<'_>,
) -> bool {
    let Some(open) = lane.log.tails[stream as usize].open.as_mut() else { return false };
    let place = open.blocks.len() as u32 + 1;
    let slot = open.header_slot + place;
    let buf = open.buf;
    let checksum = cx.facts.seal(flat, cx.mem.copy_summed(from, buf, place * BLOCK_BYTES as u32));
    open.blocks.push(Put { flat, dirty, checksum, era: era as u32, superseded: false });
    let checksum = lane.store.kept(checksum);
    lane.map(flat, Found { slot, dirty, hits, checksum }, era, cx);
    cx.of_origin(flat).logged.add(1);
    seal_full(lane, stream, cx);
    true
}

/// A dirty block that is still in the open commit is rewritten there.
fn overwrite_in_place(lane: &mut Lane, flat: Flat, found: Found, from: Span, cx: &mut Cx<'_>) -> bool {
    let Some(open) = lane.log.tails[Stream::Writes as usize].open.as_mut() else { return false };
    let place = found.slot.wrapping_sub(open.header_slot);
    if found.slot <= open.header_slot || place > open.blocks.len() as u32 {
        return false;
    }
    let block = &mut open.blocks[place as usize - 1];
    if lane.eras.is_some() && u64::from(block.era) != era_of_write(flat, cx) & u64::from(u32::MAX) {
        // The era before needs what is there.
        return false;
    }
    let checksum = cx.facts.seal(flat, cx.mem.copy_summed(from, open.buf, place * BLOCK_BYTES as u32));
    block.checksum = checksum;
    let checksum = lane.store.kept(checksum);
    if lane.eras.is_some() {
        overwritten(lane, flat, Version { slot: found.slot, checksum }, cx);
    }
    let hits = (found.hits + 1).min(HITS_MAX);
    lane.store.put(flat, Found { checksum, hits, ..found });
    true
}

/// Makes sure that the stream has an open commit with room.
pub(crate) fn open(lane: &mut Lane, stream: Stream, what_for: For, cx: &mut Cx<'_>) -> bool {
    let left = if what_for == For::Clients { lane.reclaim.left } else { 0 };
    if !lane.log.takes(stream, what_for, left) {
        return false;
    }
    if lane.log.tails[stream as usize].open.is_some() {
        return true;
    }
    if cx.cache_failed() {
        return false;
    }
    let full = lane.log.is_segment_full(stream);
    let log = &mut lane.log;
    let buffer_blocks = log.commit_blocks();
    if full {
        let next = log.take_free(stream as usize);
        let tail = &mut log.tails[stream as usize];
        let full = core::mem::replace(&mut tail.segment, core::mem::replace(&mut tail.next_segment, next));
        tail.used = 0;
        if let Some(full) = full {
            let waits = log.is_unproven(full);
            log.set_state(full, if waits { SegmentState::Unproven } else { SegmentState::Closed });
            let segment = &log.segments[full as usize];
            lane.policy.sealed(SegmentId(full), segment.zone);
            lane.reclaim.sparse.filled(full, segment.live, log.segment_slots);
            log.filled += 1;
        }
    }
    let tail = &mut log.tails[stream as usize];
    let Some(segment) = tail.segment else { return false };
    if tail.used == 0 {
        // A segment that was begun with one device stays so: a mirror that comes later lacks
        // what was clean by then.
        log.segments[segment as usize].mirrored =
            stream == Stream::Writes && cx.delta.members.state != members::MembersState::Single;
    }
    let crowded = stream == Stream::Writes && log.cleaned.len() >= CLEANED_WAITING_MAX;
    let blocks_max = if crowded { COMMIT_ENTRIES_MAX / 2 } else { COMMIT_ENTRIES_MAX };
    let size = (log.segment_slots - tail.used).min(blocks_max as u32 + 1);
    let header_slot = segment * log.segment_slots + tail.used;
    if !cx.facts.planted(Canary::StaleInRam) {
        lane.ram_front.forget(header_slot..header_slot + size);
    }
    tail.open = Some(Open {
        buf: cx.alloc(buffer_blocks),
        size,
        header_slot,
        blocks: Vec::with_capacity(size as usize - 1),
        since: cx.now,
    });
    true
}
