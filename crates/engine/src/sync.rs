// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fills a new mirror while the cache serves.
//!
//! From the moment it is there it gets all writes. What was dirty before is copied, slot by slot,
//! in the order of the dirty set. Then each lane writes a checkpoint, so that replay needs nothing
//! older: with that the new member holds all that it must, and the superblocks may say so. A block
//! that can't be read is tried again later, also one that was taken for lost; if it can't be read
//! then either it is left out, and that is told: it is no worse off on two devices than on one.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::commit::log::Place;
use crate::cx::{Cx, blocks_span};
use crate::format::Mirror;
use crate::index::{Flat, Found};
use crate::io::{DeviceError, DeviceId, Op};
use crate::lane::{Lane, Lanes};
use crate::memory::{Buf, Span};
use crate::mirror::Copies;
use crate::organ::flying::LaneIo;
use crate::organ::members::{State, device};
use crate::shared::Shared;
use crate::status::MirrorStatus;
use crate::types::BLOCK_BYTES;

/// Blocks that a lane copies at a time: 64 KiB, so that clients hardly notice.
pub(crate) const COPIES_MAX: u32 = 16;
/// Reads of a lane that failed, or brought another content, and are tried again at once.
const READ_TRIES_MAX: u32 = 16;

pub(crate) mod state;

use state::{Phase, Sync};

/// Begins, if there is no mirror yet.
pub(crate) fn begin(lanes: &mut Lanes, cx: &mut Cx<'_>) {
    let busy = lanes.iter().any(|lane| lane.sync.is_some());
    if cx.shared.members.state != State::Single || cx.shared.cache_failed || busy {
        return;
    }
    cx.shared.members.state = State::Syncing;
    for lane in lanes {
        lane.elsewhere.clear();
        lane.log.segments.iter_mut().for_each(|segment| segment.mirrored = false);
        // While it opens it has no set of them.
        let of = lane.log.segments.iter().map(|segment| u64::from(segment.dirty)).sum();
        lane.sync = Some(Sync::new(of));
    }
}

/// When all lanes are done the superblocks may say so.
pub(crate) fn end(lanes: &mut Lanes, cx: &mut Cx<'_>) {
    let done = |lane: &Lane| lane.sync.as_ref().is_some_and(|sync| sync.phase == Phase::Done);
    if cx.shared.members.state == State::Syncing && lanes.iter().all(|lane| done(lane)) {
        cx.shared.members.lacking = lanes.iter_mut().map(|lane| lane.end_sync(cx)).sum();
        cx.shared.members.state = State::Pairing;
        cx.shared.members.to_record = true;
        cx.shared.superblock.pairing.mirror = Mirror::Whole;
    }
}

/// How it stands, for people.
pub(crate) fn status(lanes: &Lanes, shared: &Shared) -> MirrorStatus {
    let syncs = || lanes.iter().filter_map(|lane| lane.sync.as_ref());
    match shared.members.state {
        // Who hears that one is left out may take it away, and a power cut then leaves a cache that
        // wants both: not before it is recorded (test:
        // `nobody_is_left_out_before_that_is_recorded`).
        State::Whole | State::Leaving { .. } => MirrorStatus::Whole,
        State::Syncing | State::Pairing => MirrorStatus::Syncing {
            copied: syncs().map(|sync| sync.copied).sum(),
            of: syncs().map(|sync| sync.of.max(sync.copied)).sum(),
        },
        State::Single if shared.superblock.pairing.mirror == Mirror::None => MirrorStatus::None,
        State::Single => MirrorStatus::Alone { member: shared.members.lead },
        State::Broken => MirrorStatus::Alone { member: shared.superblock.pairing.lead },
    }
}

const fn new_member(cx: &Cx<'_>) -> DeviceId {
    device(1 - cx.shared.members.lead)
}

impl Lane {
    /// How many dirty blocks the new member lacks.
    fn end_sync(&mut self, cx: &mut Cx<'_>) -> u64 {
        let missed = self.sync.take().map(|sync| sync.missed).unwrap_or_default();
        let missed = missed.into_iter().filter(|(flat, slot)| self.holds_dirty(*flat, *slot)).map(|(flat, _)| flat);
        let missed: BTreeSet<Flat> = missed.collect();
        self.elsewhere.extend(missed.iter().map(|flat| (*flat, Copies::OfLead)));
        // What was taken for lost since it was copied, or is being replaced no more, the new member
        // has.
        let has =
            |flat: &&Flat| self.index.get(**flat).is_some() && !missed.contains(flat) && !self.is_changing(**flat);
        let found: Vec<Flat> = cx.shared.lost.iter().filter(has).copied().collect();
        for flat in found {
            cx.shared.lost.remove(&flat);
            self.urgent.insert(flat);
        }
        missed.len() as u64
    }

    /// Whether this slot has the newest of a dirty block.
    fn holds_dirty(&self, flat: Flat, slot: u32) -> bool {
        self.index.get(flat).is_some_and(|found| found.dirty && found.slot == slot)
    }

    /// Whether a checkpoint begun now would lack its beginning on a new mirror.
    pub(crate) fn clearing(&self) -> bool {
        self.sync.as_ref().is_some_and(|sync| sync.phase == Phase::Clearing)
    }

    /// Copies the next blocks, or goes on to the next phase.
    pub(crate) fn sync_step(&mut self, cx: &mut Cx<'_>) {
        let Some(sync) = &mut self.sync else { return };
        if cx.shared.members.state != State::Syncing || cx.shared.stopping {
            if sync.flying == 0 {
                self.sync = None;
            }
            return;
        }
        match sync.phase {
            Phase::Waiting if self.checkpoint.resting() => {
                (sync.phase, sync.flying) = (Phase::Clearing, 2);
                for area in 0..2 {
                    let buf = cx.alloc(1);
                    cx.mem.zero(blocks_span(buf, 0, 1));
                    let offset = cx.shared.superblock.checkpoint_offset(self.id as u32, area);
                    self.sync_write(None, buf, offset, cx);
                }
            }
            Phase::Clearing if sync.flying == 0 => {
                sync.phase = Phase::Copying;
                self.copy_dirty(cx);
            }
            Phase::Copying => self.copy_dirty(cx),
            Phase::Checkpoint if self.checkpoint.resting() => sync.phase = Phase::Done,
            Phase::Waiting | Phase::Clearing | Phase::Checkpoint | Phase::Done => {}
        }
    }

    fn copy_dirty(&mut self, cx: &mut Cx<'_>) {
        while let Some(sync) = &mut self.sync
            && sync.flying < COPIES_MAX
        {
            let (flat, missed_in) = if let Some(flat) = self.dirty.next(sync.next) {
                sync.next = Flat(flat.0 + 1);
                (flat, None)
            } else if let Some((flat, slot)) = sync.next_missed(cx.now) {
                (flat, Some(slot))
            } else {
                if sync.flying > 0 {
                    return;
                }
                if !sync.tries_again(cx.now) {
                    if self.checkpoint.resting() {
                        sync.phase = Phase::Checkpoint;
                        self.begin_checkpoint(cx);
                    }
                    return;
                }
                if sync.again.is_empty() {
                    return;
                }
                continue;
            };
            // What is in an open commit goes to both when that is written; what was missed and is
            // in another slot now did.
            let to_copy = |found: &Found| match missed_in {
                None => !self.log.unsealed(found.slot),
                Some(slot) => found.dirty && found.slot == slot,
            };
            let Some(found) = self.index.get(flat).filter(to_copy) else { continue };
            if sync.give_up_at.is_none() && cx.shared.lost.contains(&flat) {
                // Later, when all others are there.
                sync.missed.push((flat, found.slot));
                continue;
            }
            sync.flying += 1;
            self.log.segment_of(found.slot).pins += 1;
            let buf = cx.alloc(1);
            if let Place::Ram(from, offset) = self.log.place(found.slot) {
                cx.mem.copy(Span::new(from, offset, BLOCK_BYTES as u32), buf, 0);
                let offset = cx.shared.superblock.slot_offset(self.id as u32, found.slot);
                self.sync_write(Some(found.slot), buf, offset, cx);
            } else {
                let io = self.ios.insert(LaneIo::SyncRead { flat, found, buf });
                let offset = cx.shared.superblock.slot_offset(self.id as u32, found.slot);
                cx.cache_read(self.id, io, offset, blocks_span(buf, 0, 1));
            }
        }
    }

    fn sync_write(&mut self, slot: Option<u32>, buf: Buf, offset: u64, cx: &mut Cx<'_>) {
        let io = self.ios.insert(LaneIo::SyncWrite { slot, buf });
        cx.io(self.id, io, new_member(cx), Op::Write, offset, Some(blocks_span(buf, 0, 1)));
    }

    pub(crate) fn sync_read_done(
        &mut self,
        flat: Flat,
        found: Found,
        buf: Buf,
        result: Result<(), DeviceError>,
        cx: &mut Cx<'_>,
    ) {
        let sum = cx.shared.checksum(cx.mem, flat, blocks_span(buf, 0, 1));
        let sound = result.is_ok() && self.index.kept(sum) == found.checksum;
        let offset = cx.shared.superblock.slot_offset(self.id as u32, found.slot);
        let syncing = self.sync.as_mut().filter(|_| cx.shared.members.state == State::Syncing);
        match syncing {
            Some(_) if sound => {
                // Not what is being replaced on the origin: destage would bring back the older one
                // (test: `what_is_being_replaced_is_not_found_again_for_a_mirror`).
                if cx.shared.lost.contains(&flat) && !self.is_changing(flat) {
                    self.found_again(flat, found.slot, cx);
                }
                self.sync_write(Some(found.slot), buf, offset, cx);
            }
            Some(sync) if sync.tries < READ_TRIES_MAX => {
                sync.tries += 1;
                let io = self.ios.insert(LaneIo::SyncRead { flat, found, buf });
                cx.cache_read(self.id, io, offset, blocks_span(buf, 0, 1));
            }
            _ => {
                if self.holds_dirty(flat, found.slot) {
                    // Destage finds out what is wrong with it, at once: the new member doesn't have
                    // it.
                    if !cx.shared.lost.contains(&flat) {
                        self.suspect.insert(flat);
                        self.urgent.insert(flat);
                    }
                    if let Some(sync) = &mut self.sync {
                        sync.missed.push((flat, found.slot));
                    }
                }
                self.copy_over(Some(found.slot), buf, cx);
            }
        }
    }

    pub(crate) fn sync_written(
        &mut self,
        slot: Option<u32>,
        buf: Buf,
        result: Result<(), DeviceError>,
        cx: &mut Cx<'_>,
    ) {
        if let Some(sync) = self.sync.as_mut().filter(|_| result.is_ok() && slot.is_some()) {
            sync.copied += 1;
        }
        if let Err(error) = result
            && cx.shared.members.state == State::Syncing
        {
            let device = new_member(cx);
            cx.event(crate::event::Event::DeviceFailed { device, op: Op::Write, offset: 0, error });
            cx.fail_member(device);
        }
        self.copy_over(slot, buf, cx);
    }

    fn copy_over(&mut self, slot: Option<u32>, buf: Buf, cx: &mut Cx<'_>) {
        cx.free(buf, 1);
        let Some(sync) = &mut self.sync else { return };
        sync.flying -= 1;
        if let Some(slot) = slot {
            self.log.segment_of(slot).pins -= 1;
        }
    }
}
