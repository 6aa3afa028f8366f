// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sync: a new mirror is filled while the cache serves.
//!
//! From the moment it is there the new member gets all writes. Blocks that were dirty before are
//! copied, slot by slot, in the order of the dirty set. Then each lane writes a checkpoint, so that
//! replay needs nothing older. With that the new member holds all that it must, and the superblocks
//! may say so.
//!
//! A block that can't be read is tried again later, also a block that was taken for lost. If it
//! can't be read then either, it is left out, and the status tells that. The block is no worse off
//! on two devices than on one.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::act::checkpoint::begin_checkpoint;
use crate::act::checkpoint::eras::can_checkpoint;
use crate::act::commit::log::Bytes;
use crate::act::damage::{found_again, take_for_found};
use crate::act::destage::versions::is_held;
use crate::cx::{Cx, blocks_span};
use crate::fact::io::{DeviceError, DeviceId, Op};
use crate::fact::memory::{Buf, Span};
use crate::fact::status::MirrorStatus;
use crate::fact::types::BLOCK_BYTES;
use crate::format::Mirror;
use crate::lane::Lane;
use crate::lanes::Lanes;
use crate::look::Look;
use crate::organ::down::Down;
use crate::organ::flying::LaneIo;
use crate::organ::index::{Flat, Found};
use crate::organ::members::{Members, MembersState, device};
use crate::organ::up::Up;

/// Blocks that a lane copies at a time: 64 KiB, so that clients hardly notice.
pub(crate) const COPIES_MAX: u32 = 16;
/// The most reads of a lane that are tried again at once, because they failed or brought another
/// content.
const READ_TRIES_MAX: u32 = 16;

pub(crate) mod state;

use state::{Filling, Sync, SyncPhase};

/// Begins, if there is no mirror yet.
pub(crate) fn begin(filling: &mut Filling, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    let busy = lanes.looks().any(Look::fills);
    if cx.delta.members.state != MembersState::Single || cx.cache_failed() || busy {
        return;
    }
    cx.delta.members.new_one_came();
    let number = filling.begin();
    lanes.send_all(|| Down::FillMirror { number }, cx);
}

/// A lane begins to fill a new mirror.
pub(crate) fn fill(lane: &mut Lane, number: u64) {
    lane.trouble.forget_copies();
    lane.log.mirror_is_empty();
    // A lane has no set of dirty blocks while it opens.
    let of = lane.log.segments().iter().map(|segment| u64::from(segment.dirty)).sum();
    // What is in flight for a filling that was given up ends as it would have.
    let flying = lane.sync.take().map_or(0, |sync| sync.flying);
    lane.sync = Some(Sync::new(number, of, flying));
}

/// Ends the sync when all lanes are done: then the superblocks may say so.
pub(crate) fn end(filling: &mut Filling, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    let number = filling.number();
    let syncing = cx.delta.members.state == MembersState::Syncing;
    if !syncing || !lanes.seen().all(|lane| lane.filled == Some(number)) || !filling.ends() {
        return;
    }
    for lane in 0..lanes.count() {
        if let Some(Up::Filled { number, lacking }) = lanes.ask(lane, Down::EndFilling { number }, cx) {
            filling.filled(number, lacking, lanes.count(), cx);
        }
    }
}

/// All lanes are done. The lane may have given up meanwhile.
pub(crate) fn end_filling(lane: &mut Lane, number: u64, cx: &mut Cx<'_>) {
    let done = lane.sync.as_ref().is_some_and(|sync| sync.filled() == Some(number));
    let lacking = done.then(|| end_sync(lane, cx));
    cx.delta.tell(Up::Filled { number, lacking });
}

/// The state of the mirror, for people.
pub(crate) fn status(lanes: &Lanes, members: &Members) -> MirrorStatus {
    match members.state {
        // A user who hears that a member is left out may take it away. If that isn't recorded yet,
        // a power cut leaves a cache that wants both. So it is told only when it is recorded (test:
        // `nobody_is_left_out_before_that_is_recorded`).
        MembersState::Whole | MembersState::Leaving { .. } => MirrorStatus::Whole,
        MembersState::Syncing | MembersState::Pairing => MirrorStatus::Syncing {
            copied: lanes.looks().map(|lane| lane.copied().0).sum(),
            of: lanes.looks().map(|lane| lane.copied().1).sum(),
        },
        MembersState::Single if members.pairing().mirror == Mirror::None => MirrorStatus::None,
        MembersState::Single => MirrorStatus::Alone { member: members.lead },
        MembersState::Broken => MirrorStatus::Alone { member: members.pairing().lead },
    }
}

const fn new_member(cx: &Cx<'_>) -> DeviceId {
    device(1 - cx.delta.members.lead)
}

/// Ends a lane's sync. Returns how many dirty blocks the new member lacks.
fn end_sync(lane: &mut Lane, cx: &mut Cx<'_>) -> u64 {
    let missed = lane.sync.take().map(|sync| sync.missed).unwrap_or_default();
    let missed = missed.into_iter().filter(|(flat, slot)| holds_dirty(lane, *flat, *slot)).map(|(flat, _)| flat);
    let missed: BTreeSet<Flat> = missed.collect();
    lane.trouble.only_lead_has(missed.iter().copied());
    // The new member has blocks that were taken for lost after they were copied. It also has lost
    // blocks that are no longer being replaced.
    let has = |flat: &Flat| lane.store.get(*flat).is_some() && !missed.contains(flat) && !lane.is_changing(*flat);
    let found: Vec<Flat> = lane.trouble.lost().filter(has).collect();
    for flat in found {
        take_for_found(lane, flat, cx);
    }
    missed.len() as u64
}

/// Whether this slot has the newest version of a dirty block.
fn holds_dirty(lane: &Lane, flat: Flat, slot: u32) -> bool {
    lane.store.get(flat).is_some_and(|found| found.dirty && found.slot == slot)
}

/// Whether a checkpoint begun now would lack its beginning on a new mirror.
pub(crate) fn clearing(lane: &Lane) -> bool {
    lane.sync.as_ref().is_some_and(|sync| sync.phase == SyncPhase::Clearing)
}

/// Copies the next blocks, or goes on to the next phase.
pub(crate) fn sync_step(lane: &mut Lane, cx: &mut Cx<'_>) {
    let Some(sync) = &mut lane.sync else { return };
    if cx.delta.members.state != MembersState::Syncing || cx.facts.stopping {
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
                if lane.checkpoint.resting() && can_checkpoint(lane, cx) && !has_older(lane, cx) {
                    let Some(sync) = &mut lane.sync else { return };
                    sync.phase = SyncPhase::Checkpoint;
                    begin_checkpoint(lane, cx);
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
        sync.flying += 1;
        lane.log.pin(found.slot);
        let buf = cx.alloc(1);
        if let Bytes::Ram(from, offset) = lane.log.bytes_of(found.slot) {
            cx.mem.copy(Span::new(from, offset, BLOCK_BYTES as u32), buf, 0);
            let offset = lane.offset_of(found.slot, cx);
            sync_write(lane, Some(found.slot), buf, offset, cx);
        } else {
            let io = lane.ios.insert(LaneIo::SyncRead { flat, found, buf });
            let offset = lane.offset_of(found.slot, cx);
            cx.cache_read(lane.id, io, offset, blocks_span(buf, 0, 1));
        }
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
    let syncing = lane.sync.as_mut().filter(|_| cx.delta.members.state == MembersState::Syncing);
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
            let io = lane.ios.insert(LaneIo::SyncRead { flat, found, buf });
            cx.cache_read(lane.id, io, offset, blocks_span(buf, 0, 1));
        }
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
        && cx.delta.members.state == MembersState::Syncing
    {
        let device = new_member(cx);
        cx.event(crate::fact::event::Event::DeviceFailed { device, op: Op::Write, offset: 0, error });
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
