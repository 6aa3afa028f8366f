// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detours: reads of cached blocks that the origin answers, because the cache device is slower at
//! the moment (`congestion`).
//!
//! Only clean blocks take one: of dirty ones the origin has an older version (canary
//! `congested-dirty`). The piece's lock keeps them clean.
//!
//! Invariant: a hit waits for no origin. The origin has the time that the cache device was expected
//! to take; then the cache device is asked (test:
//! `a_hit_waits_for_no_origin_that_does_not_answer`). So such a read has a buffer of its own, which
//! may be filled late. The slots of its blocks are pinned as long as a hit waits. An origin that
//! fails does no harm, nor does one that has something else than what is cached. Then the block is
//! read from the cache device after all (test: `hits_survive_a_broken_origin`).

use smallvec::{SmallVec, smallvec};

use crate::act::damage::holder;
use crate::act::read::{read_slots, read_step};
use crate::cx::{Cx, blocks_span};
use crate::fact::canary::Canary;
use crate::fact::io::{DeviceError, Op};
use crate::fact::memory::Span;
use crate::fact::types::BLOCK_BYTES;
use crate::lane::Lane;
use crate::organ::flying::{LaneIo, SlotsRead};
use crate::organ::index::{Flat, Found};
use crate::organ::measured::Measured;

pub(crate) mod state;

use state::{Detour, buffer_blocks};

fn may_detour(lane: &Lane, found: Found, cx: &Cx<'_>) -> bool {
    (!found.dirty || cx.facts.planted(Canary::CongestedDirty)) && lane.on_device(found.slot)
}

/// Whether a cached block should be read from the origin: then what the cache device is
/// expected to take.
pub(crate) fn detour(lane: &Lane, found: Found, flat: Flat, cx: &Cx<'_>) -> Option<u64> {
    let origin = &cx.delta.origins[cx.facts.origin_of(flat)];
    let instead_of_ns = cx.delta.gauge.read_past(&origin.gauge, cx.now)?;
    (lane.detours.has_room() && may_detour(lane, found, cx)).then_some(instead_of_ns)
}

/// Asks the origin for a cached block, of which the cache device is expected to take so long.
/// Of the blocks from there on, `blocks` at most, those go along that may. Returns how many
/// that are.
// Rare: what each hit runs through stays short.
#[cold]
pub(crate) fn read_detour(
    lane: &mut Lane,
    piece: usize,
    block: u32,
    found: Found,
    blocks: u32,
    instead_of_ns: u64,
    cx: &mut Cx<'_>,
) -> u32 {
    let first = lane.pieces[piece].first + block;
    let mut cached: SmallVec<[(u32, u32); 1]> = smallvec![(found.slot, found.checksum)];
    let room = lane.detours.room_blocks().min(blocks);
    while (cached.len() as u32) < room {
        let flat = Flat(first.0 + cached.len() as u64);
        let Some(found) = lane.store.get(flat).filter(|found| may_detour(lane, *found, cx)) else { break };
        lane.store.touch(flat);
        cached.push((found.slot, found.checksum));
    }
    for (slot, _) in &cached {
        lane.log.pin(*slot);
    }
    let (origin, blocks) = (cx.facts.origin_of(first), cached.len() as u32);
    cx.delta.counters.bypassed_congested_blocks += u64::from(blocks);
    cx.delta.counters.read_misses += u64::from(blocks);
    lane.pieces[piece].hold();
    *lane.detours.count(blocks) += 1;
    let taken = cx.delta.detour_began(origin, instead_of_ns, cx.now);
    let buf = cx.alloc(buffer_blocks(blocks));
    let (device, offset, len) = cx.origin_range(first, u64::from(blocks));
    let whole = blocks_span(buf, 0, blocks);
    if len < u64::from(whole.len) {
        // The origin ends inside the last block: what is behind its end reads as zeroes.
        cx.mem.zero(Span::new(buf, len as u32, whole.len - len as u32));
    }
    let detour = lane.detours.all.insert(Detour { waits: Some((piece, block)), first, cached, buf, taken });
    let io = lane.ios.insert(LaneIo::Detour { detour });
    let end = first.0 + u64::from(blocks);
    cx.delta.measure(Measured::OriginReadBegan { origin, first: first.0, end }, cx.now);
    cx.io(lane.id, io, device, Op::Read, offset, Some(Span::new(buf, 0, len as u32)));
    blocks
}

/// Asks the cache device where the origin had its time.
pub(crate) fn detour_step(lane: &mut Lane, cx: &mut Cx<'_>) {
    if lane.detours.all.is_empty() {
        return;
    }
    let late = |it: &Detour| it.waits.is_some() && it.taken.due() <= cx.now;
    let late: SmallVec<[usize; 4]> =
        lane.detours.all.iter().filter(|(_, it)| late(it)).map(|(detour, _)| detour).collect();
    for detour in late {
        let it = &mut lane.detours.all[detour];
        let (first, cached) = (it.first, it.cached.clone());
        let Some((piece, block)) = it.waits.take() else { continue };
        for (nth, &(slot, checksum)) in (0..).zip(&cached) {
            read_after_all(lane, piece, block + nth, first + nth, slot, checksum, cx);
        }
        detour_over(lane, piece, &cached);
        read_step(lane, piece, cx);
    }
}

/// The origin has answered.
pub(crate) fn detour_done(lane: &mut Lane, detour: usize, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
    let it = lane.detours.all.remove(detour);
    let (first, blocks) = (it.first, it.blocks());
    *lane.detours.count(blocks) -= 1;
    let origin = cx.facts.origin_of(first);
    cx.delta.origins[origin].client_read_ended(result.is_ok().then_some(blocks), cx.now);
    cx.delta.origins[origin].gauge.detour.ended(it.taken, result.is_ok(), cx.now);
    if let Err(error) = result {
        cx.origin_failed(Op::Read, first, u64::from(blocks), error);
    }
    if let Some((piece, block)) = it.waits {
        for (nth, &(slot, checksum)) in (0..).zip(&it.cached) {
            let (flat, from) = ((first + nth), blocks_span(it.buf, nth, 1));
            if result.is_ok() && is_as_cached(lane, flat, from, checksum, cx) {
                let reading = &mut lane.pieces[piece];
                reading.needs_origin();
                let (buf, to) = (reading.buf.expect("a read has a buffer"), reading.buf_block + block + nth);
                cx.mem.copy(from, buf, to * BLOCK_BYTES as u32);
            } else {
                read_after_all(lane, piece, block + nth, flat, slot, checksum, cx);
            }
        }
        detour_over(lane, piece, &it.cached);
        read_step(lane, piece, cx);
    }
    cx.free(it.buf, buffer_blocks(blocks));
}

/// No hit waits for these blocks of the origin any more.
fn detour_over(lane: &mut Lane, piece: usize, cached: &[(u32, u32)]) {
    lane.pieces[piece].release();
    for (slot, _) in cached {
        lane.log.unpin(*slot);
    }
}

/// Whether the origin has what is cached. If it was changed behind our back, clients must not
/// see now the one and now the other.
fn is_as_cached(lane: &Lane, flat: Flat, read: Span, checksum: u32, cx: &Cx<'_>) -> bool {
    let sum = cx.facts.checksum(cx.mem, flat, read);
    checksum == lane.store.kept(sum) || cx.facts.planted(Canary::CongestedDirty)
}

/// The origin failed, or has something else, or did not answer: a block is read from where it
/// is cached.
fn read_after_all(lane: &mut Lane, piece: usize, block: u32, flat: Flat, slot: u32, checksum: u32, cx: &mut Cx<'_>) {
    let device = holder(lane, flat, cx);
    read_slots(lane, SlotsRead { piece, block, slot, checksums: smallvec![checksum], device }, cx);
}
