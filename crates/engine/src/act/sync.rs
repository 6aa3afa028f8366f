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

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::act::checkpoint::begin_checkpoint;
use crate::act::checkpoint::eras::can_checkpoint;
use crate::act::commit::log::Bytes;
use crate::act::damage::{damaged, found_again, take_for_found};
use crate::act::destage::versions::is_held;
use crate::cx::{Cx, blocks_span};
use crate::fact::event::Event;
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
use crate::organ::members::{Aim, Members, MembersState, device};
use crate::organ::segment::Segment;
use crate::organ::trouble::Finding;
use crate::organ::up::Up;

/// Blocks that a lane copies at a time: 64 KiB, so that clients hardly notice.
pub(crate) const COPIES_MAX: u32 = 16;
/// Clean blocks that a lane copies at a time while clients wait for it.
const COPIES_BESIDE_CLIENTS: u32 = 4;
/// The most reads of a lane that are tried again at once, because they failed or brought another
/// content.
const READ_TRIES_MAX: u32 = 16;

pub(crate) mod state;

use state::{Fill, Filling, Sync, SyncPhase};

/// Begins, if there is no mirror yet.
pub(crate) fn begin(filling: &mut Filling, aim: Aim, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    if cx.delta.members.state != MembersState::Single || is_busy(lanes, cx) {
        return;
    }
    cx.delta.members.new_one_came();
    cx.delta.members.aim_at(aim);
    let what = if aim == Aim::Mirror { Fill::Dirty } else { Fill::All };
    let number = filling.begin();
    lanes.send_all(|| Down::FillMirror { number, what }, cx);
}

/// Lets one of two members go, if the other one has all dirty blocks. The lead goes when the other
/// one has the clean ones, too.
pub(crate) fn remove(filling: &mut Filling, member: u8, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    if cx.delta.members.state != MembersState::Whole || cx.delta.members.is_filling() || is_busy(lanes, cx) {
        return;
    }
    if member != cx.delta.members.lead {
        if !lanes.looks().any(Look::lead_lacks) {
            cx.delta.members.leave(member, false);
        }
        return;
    }
    cx.delta.members.aim_at(Aim::Succeed);
    let number = filling.begin();
    lanes.send_all(|| Down::FillMirror { number, what: Fill::Clean }, cx);
}

fn is_busy(lanes: &Lanes, cx: &Cx<'_>) -> bool {
    cx.cache_failed() || lanes.looks().any(Look::fills)
}

/// The operator wants no more copying. A device that has all of it stays, or goes on to lead.
pub(crate) fn end_copying(cx: &mut Cx<'_>) {
    let members = &mut cx.delta.members;
    if !members.is_filling() {
        return;
    }
    members.forget_orders();
    if members.state == MembersState::Syncing {
        let left = device(1 - members.lead);
        members.state = MembersState::Single;
        cx.event(Event::MemberLeft { device: left });
    }
}

/// A lane begins to fill the other member.
pub(crate) fn fill(lane: &mut Lane, number: u64, what: Fill) {
    if what != Fill::Clean {
        lane.trouble.forget_copies();
        lane.log.mirror_is_empty();
    }
    let counted = |segment: &Segment| match what {
        // A lane has no set of dirty blocks while it opens.
        Fill::Dirty => segment.dirty,
        Fill::Clean => segment.live - segment.dirty,
        Fill::All => segment.live,
    };
    let of = lane.log.segments().iter().map(|segment| u64::from(counted(segment))).sum();
    // What is in flight for a filling that was given up ends as it would have.
    let flying = lane.sync.take().map_or(0, |sync| sync.flying);
    lane.sync = Some(Sync::new(number, what, of, flying));
}

/// Blocks copied so far, and blocks to copy.
pub(crate) fn copied(lanes: &Lanes) -> (u64, u64) {
    lanes.looks().map(Look::copied).fold((0, 0), |all, lane| (all.0 + lane.0, all.1 + lane.1))
}

/// Ends the sync when all lanes are done: then the superblocks may say so.
pub(crate) fn end(filling: &mut Filling, lanes: &mut Lanes, cx: &mut Cx<'_>) {
    let number = filling.number();
    let filled = lanes.seen().all(|lane| lane.filled == Some(number));
    if !cx.delta.members.is_filling() || !filled || !filling.ends() {
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
        MembersState::Syncing | MembersState::Pairing => {
            let (copied, of) = copied(lanes);
            MirrorStatus::Syncing { copied, of }
        }
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
    let Some(Sync { what, missed, .. }) = lane.sync.take() else { return 0 };
    if what == Fill::Clean {
        return 0;
    }
    if what == Fill::All {
        // Destage could read some blocks meanwhile, and the other member doesn't have them.
        for (flat, slot) in &missed {
            if lane.store.get(*flat).is_some_and(|found| !found.dirty && found.slot == *slot) {
                lane.unmap(*flat, cx);
                lane.record_dropped(*flat, cx);
            }
        }
    }
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
        let io = lane.ios.insert(LaneIo::SyncRead { flat, found, buf });
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
            let io = lane.ios.insert(LaneIo::SyncRead { flat, found, buf });
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
