// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sync: a new mirror is filled while the cache serves.
//!
//! From the moment it is there the new member gets all writes. Blocks that were dirty before are
//! copied, slot by slot, in the order of the dirty set. Then each lane writes a checkpoint, so that
//! replay needs nothing older. With that the new member holds all that it must, and the superblocks
//! may say so.
//!
//! A device that is to lead gets clean data, too. It gets all commits in full from the beginning
//! on, and then what was clean before, in the order of the index. While it is filled everything is
//! on the present lead as before
//! ([ADR 0059](../../../../docs/adr/0059-a-cache-moves-by-way-of-a-mirror.md)).
//!
//! A block that can't be read is tried again later, also a block that was taken for lost. If it
//! can't be read then either, it is left out, and the status tells that. The block is no worse off
//! on two devices than on one.

use crate::act::checkpoint::begin_checkpoint;
use crate::act::checkpoint::eras::can_checkpoint;
use crate::act::commit::log::Bytes;
use crate::act::damage::{damaged, found_again};
use crate::act::destage::versions::is_held;
use crate::cx::{Cx, blocks_span};
use crate::fact::event::Event;
use crate::fact::io::{DeviceError, DeviceId, Op};
use crate::fact::memory::{Buf, Span};
use crate::fact::types::BLOCK_BYTES;
use crate::lane::Lane;
use crate::organ::flying::LaneIo;
use crate::organ::index::{Flat, Found};
use crate::organ::members::device;
use crate::organ::trouble::Finding;

/// Blocks that a lane copies at a time: 64 KiB, so that clients hardly notice.
pub(crate) const COPIES_MAX: u32 = 16;
/// Clean blocks that a lane copies at a time while clients wait for it.
const COPIES_BESIDE_CLIENTS: u32 = 4;
/// The most reads of a lane that are tried again at once, because they failed or brought another
/// content.
const READ_TRIES_MAX: u32 = 16;

pub(crate) mod order;
pub(crate) mod part;
pub(crate) mod state;

use part::holds_dirty;
use state::{Fill, SyncPhase};

const fn new_member(cx: &Cx<'_>) -> DeviceId {
    device(1 - cx.delta.members.lead)
}

/// Whether a checkpoint begun now would lack its beginning on a new mirror.
pub(crate) fn clearing(lane: &Lane) -> bool {
    lane.sync.as_ref().is_some_and(|sync| sync.phase == SyncPhase::Clearing)
}

/// Copies the next blocks, or goes on to the next phase.
pub(crate) fn sync_step(lane: &mut Lane, cx: &mut Cx<'_>) {
    let Some(sync) = &mut lane.sync else { return };
    if !cx.delta.members.is_filling() || cx.facts.stopping {
        if sync.flying == 0 {
            lane.sync = None;
        }
        return;
    }
    match sync.phase {
        SyncPhase::Waiting if lane.checkpoint.resting() => {
            (sync.phase, sync.flying) = (SyncPhase::Clearing, sync.flying + 2);
            for area in 0..2 {
                let buf = cx.alloc(1);
                cx.mem.zero(blocks_span(buf, 0, 1));
                let offset = cx.facts.superblock.checkpoint_offset(lane.id as u32, area);
                sync_write(lane, None, buf, offset, cx);
            }
        }
        SyncPhase::Clearing if sync.flying == 0 => {
            sync.phase = SyncPhase::Copying;
            sync.eras = cx.delta.origins.iter().map(|origin| origin.cuts.era()).collect();
            copy_dirty(lane, cx);
        }
        SyncPhase::Copying => copy_dirty(lane, cx),
        SyncPhase::Clean => copy_clean(lane, cx),
        SyncPhase::Checkpoint if lane.checkpoint.resting() => sync.phase = SyncPhase::Done,
        SyncPhase::Waiting | SyncPhase::Clearing | SyncPhase::Checkpoint | SyncPhase::Done => {}
    }
}

fn copy_dirty(lane: &mut Lane, cx: &mut Cx<'_>) {
    while let Some(sync) = &mut lane.sync
        && sync.flying < COPIES_MAX
    {
        let (flat, missed_in) = if let Some(flat) = lane.store.next_dirty(sync.next) {
            sync.next = flat.next();
            (flat, None)
        } else if let Some((flat, slot)) = sync.next_missed(cx.now) {
            (flat, Some(slot))
        } else {
            if sync.flying > 0 {
                return;
            }
            if !sync.tries_again(cx.now) {
                if sync.what == Fill::All {
                    sync.phase = SyncPhase::Clean;
                    copy_clean(lane, cx);
                } else {
                    conclude(lane, cx);
                }
                return;
            }
            if sync.again.is_empty() {
                return;
            }
            continue;
        };
        // A block in an open commit goes to both members when that commit is written. A missed
        // block that is in another slot now went to both already.
        let to_copy = |found: &Found| match missed_in {
            None => !lane.log.unsealed(found.slot),
            Some(slot) => found.dirty && found.slot == slot,
        };
        let Some(found) = lane.store.get(flat).filter(to_copy) else { continue };
        if sync.give_up_at.is_none() && lane.trouble.is_lost(flat) {
            // A lost block is tried when all others are copied.
            sync.missed.push((flat, found.slot));
            continue;
        }
        copy_block(lane, flat, found, cx);
    }
}

/// Copies clean blocks. Blocks that were cached since the filling began are on both members.
fn copy_clean(lane: &mut Lane, cx: &mut Cx<'_>) {
    let most = if lane.pieces.is_empty() { COPIES_MAX } else { COPIES_BESIDE_CLIENTS };
    while let Some(sync) = &mut lane.sync
        && sync.flying < most
    {
        let Some((flat, slot)) = sync.next_clean(lane.store.index()) else {
            if sync.flying == 0 {
                conclude(lane, cx);
            }
            return;
        };
        // A block that is dirty was copied, or written to both. That of a segment which is given up
        // may still be read for a while.
        let to_copy = |found: &Found| !found.dirty && found.slot == slot && !lane.log.unsealed(slot);
        if let Some(found) = lane.store.get(flat).filter(to_copy) {
            copy_block(lane, flat, found, cx);
        }
    }
}

fn copy_block(lane: &mut Lane, flat: Flat, found: Found, cx: &mut Cx<'_>) {
    let Some(sync) = &mut lane.sync else { return };
    sync.flying += 1;
    lane.log.pin(found.slot);
    let buf = cx.alloc(1);
    let offset = lane.offset_of(found.slot, cx);
    if let Bytes::Ram(from, at) = lane.log.bytes_of(found.slot) {
        cx.mem.copy(Span::new(from, at, BLOCK_BYTES as u32), buf, 0);
        sync_write(lane, Some(found.slot), buf, offset, cx);
    } else {
        let io = lane.ios.insert(LaneIo::SyncRead { flat, found, buf, device: cx.lead() });
        cx.cache_read(lane.id, io, offset, blocks_span(buf, 0, 1));
    }
}

/// All is copied: the checkpoint comes, before which replay needs nothing.
fn conclude(lane: &mut Lane, cx: &mut Cx<'_>) {
    if lane.checkpoint.resting()
        && can_checkpoint(lane, cx)
        && !has_older(lane, cx)
        && let Some(sync) = &mut lane.sync
    {
        sync.phase = SyncPhase::Checkpoint;
        begin_checkpoint(lane, cx);
    }
}

/// Whether an era needs an older version that the new mirror may lack. Versions that were written
/// since the copying began are on both members. The others are not copied, but waited for.
fn has_older(lane: &Lane, cx: &Cx<'_>) -> bool {
    let (Some(eras), Some(sync)) = (&lane.eras, &lane.sync) else { return false };
    let before = |flat: Flat, era: u64| sync.eras.get(cx.facts.origin_of(flat)).is_some_and(|began| era <= *began);
    eras.all().any(|(flat, era, version)| before(flat, era) && is_held(lane, flat, version.slot))
}

fn sync_write(lane: &mut Lane, slot: Option<u32>, buf: Buf, offset: u64, cx: &mut Cx<'_>) {
    let io = lane.ios.insert(LaneIo::SyncWrite { slot, buf });
    cx.io(lane.id, io, new_member(cx), Op::Write, offset, Some(blocks_span(buf, 0, 1)));
}

/// A block for the new mirror was read. It is verified, and then written there.
pub(crate) fn sync_read_done(
    lane: &mut Lane,
    flat: Flat,
    found: Found,
    buf: Buf,
    result: Result<(), DeviceError>,
    cx: &mut Cx<'_>,
) {
    let sum = cx.facts.checksum(cx.mem, flat, blocks_span(buf, 0, 1));
    let sound = result.is_ok() && lane.store.kept(sum) == found.checksum;
    let offset = lane.offset_of(found.slot, cx);
    let syncing = lane.sync.as_mut().filter(|_| cx.delta.members.is_filling());
    match syncing {
        Some(_) if sound => {
            // A block that is being replaced on the origin is not found again: destage would bring
            // back the older one (test: `what_is_being_replaced_is_not_found_again_for_a_mirror`).
            if lane.trouble.is_lost(flat) && !lane.is_changing(flat) {
                found_again(lane, flat, found.slot, cx);
            }
            sync_write(lane, Some(found.slot), buf, offset, cx);
        }
        Some(sync) if sync.tries < READ_TRIES_MAX => {
            sync.tries += 1;
            let io = lane.ios.insert(LaneIo::SyncRead { flat, found, buf, device: cx.lead() });
            cx.cache_read(lane.id, io, offset, blocks_span(buf, 0, 1));
        }
        // The filling was given up meanwhile.
        _ if sound => copy_over(lane, Some(found.slot), buf, cx),
        _ => {
            if holds_dirty(lane, flat, found.slot) {
                // Destage finds out at once what is wrong with the block. The new member doesn't
                // have it.
                if !lane.trouble.is_lost(flat) {
                    lane.trouble.must_be_alone(flat);
                    lane.trouble.hurry(flat);
                }
                if let Some(sync) = &mut lane.sync {
                    sync.missed.push((flat, found.slot));
                }
            } else if lane.sync.as_ref().is_some_and(|sync| sync.phase == SyncPhase::Clean) {
                // The origin has it. The new device must not be asked for what it lacks.
                damaged(lane, flat, found.slot, Finding::last(result), cx);
            }
            copy_over(lane, Some(found.slot), buf, cx);
        }
    }
}

/// A write to the new mirror is over.
pub(crate) fn sync_written(
    lane: &mut Lane,
    slot: Option<u32>,
    buf: Buf,
    result: Result<(), DeviceError>,
    cx: &mut Cx<'_>,
) {
    if let Some(sync) = lane.sync.as_mut().filter(|_| result.is_ok() && slot.is_some()) {
        sync.copied += 1;
    }
    if let Err(error) = result
        && cx.delta.members.is_filling()
    {
        let device = new_member(cx);
        cx.event(Event::DeviceFailed { device, op: Op::Write, offset: 0, error });
        cx.fail_member(device);
    }
    copy_over(lane, slot, buf, cx);
}

fn copy_over(lane: &mut Lane, slot: Option<u32>, buf: Buf, cx: &mut Cx<'_>) {
    cx.free(buf, 1);
    let Some(sync) = &mut lane.sync else { return };
    sync.flying -= 1;
    if let Some(slot) = slot {
        lane.log.unpin(slot);
    }
}
