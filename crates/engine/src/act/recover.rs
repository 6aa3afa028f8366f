// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening: the checkpoint, then the log after it.
//!
//! Replay reads the three places where the next commit may start. It takes the commit with the next
//! number, and goes on from the places that this commit names. Commits that were durable when a
//! later one was sealed need no check. The data of the others is read and verified. The first torn
//! commit ends the log, whatever may be whole behind it: what survives is a prefix (test:
//! `crash_keeps_a_prefix`). If a log ends before a commit that was durable, it is damaged, and the
//! cache is not opened.

pub(crate) mod ahead;
pub(crate) mod eras;
pub(crate) mod heads;
pub(crate) mod load;
pub(crate) mod replay;
pub(crate) mod state;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::act::checkpoint::begin_first_checkpoint;
use crate::cx::{Cx, blocks_span};
use crate::fact::canary::Canary;
use crate::fact::event::Event;
use crate::fact::io::{DeviceError, Op};
use crate::fact::open_error::OpenError;
use crate::fact::types::SegmentId;
use crate::format::{CheckpointHeader, CommitHeader, Entry, NO_SLOT, STREAMS, UnprovenBlocks};
use crate::lane::Lane;
use crate::organ::flying::LaneIo;
use crate::organ::members::{MembersState, device};
use crate::organ::sparse::Sparse;
use crate::organ::up::Up;
use crate::policy::Zone;

use eras::{ErasFound, settle_eras};
use state::{Ahead, Freed, Recovery, RecoveryPhase, Slots};

/// A commit at its largest: header and data.
const COMMIT_BLOCKS_MAX: u32 = 253;
/// How many failed reads of commits that may be whole are tried again in one opening, from either
/// member. This is enough for an error that passes.
const VERIFY_TRIES_MAX: u32 = 3;

/// Starts to open the lane.
pub(crate) fn begin_recovery(lane: &mut Lane, cx: &mut Cx<'_>) {
    lane.store.begin_opening();
    let buf = cx.alloc(COMMIT_BLOCKS_MAX);
    lane.recovery = Some(
        Recovery {
            phase: RecoveryPhase::Area(0),
            buf,
            found: [None; 2],
            head_lost: false,
            second_look: None,
            area: 0,
            header: None,
            block: 1,
            body: 0,
            batch: 0,
            ages_read: 0,
            entries_read: 0,
            heads: [NO_SLOT; STREAMS],
            candidates: Default::default(),
            slots: Slots::default(),
            data_blocks: [u32::MAX; STREAMS],
            next_segments: [NO_SLOT; STREAMS],
            ahead: Ahead::default(),
            reading: 0,
            member: cx.delta.members.lead,
            lead_fails: false,
            ended: false,
            next_seq: 1,
            durable_seq: 0,
            pending: VecDeque::new(),
            torn: false,
            tries: 0,
            freed: Freed::default(),
            unproven: UnprovenBlocks::default(),
            commits: 0,
            eras: ErasFound::default(),
        }
        .into(),
    );
    let offset = cx.facts.superblock.checkpoint_offset(lane.id as u32, 0);
    recover_io(lane, offset, 1, cx);
}

fn recover_io(lane: &mut Lane, offset: u64, blocks: u32, cx: &mut Cx<'_>) {
    let Some(recovery) = &mut lane.recovery else { return };
    recovery.reading = offset;
    let (member, op) = match recovery.phase {
        RecoveryPhase::Copy => (1 - recovery.member, Op::Write),
        _ => (recovery.member, Op::Read),
    };
    let span = blocks_span(recovery.buf, 0, blocks);
    let io = lane.ios.insert(LaneIo::Recover);
    cx.io(lane.id, io, device(member), op, offset, Some(span));
}

/// An I/O of the opening is over. Goes on with the next step, or with the other member of a
/// mirrored cache.
pub(crate) fn recover_io_done(lane: &mut Lane, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
    let Some(mut recovery) = lane.recovery.take() else { return };
    let step = match result {
        Ok(()) => recovery.step(lane, cx),
        Err(_)
            if matches!(recovery.phase, RecoveryPhase::Area(_) | RecoveryPhase::Body) && recovery.turn_to_other(cx) =>
        {
            recovery.lead_fails = true;
            Ok(recovery.checkpoint_read(lane, cx))
        }
        // The first member's header is enough, if there is no other.
        Err(_) if let (RecoveryPhase::Area(area), Some(_)) = (recovery.phase, recovery.second_look) => {
            recovery.take_head(lane, area, None, true, cx)
        }
        Err(error) if recovery.phase == RecoveryPhase::Verify => recovery.not_whole(lane, Some(error), cx),
        Err(error) if recovery.phase == RecoveryPhase::Copy => {
            let device = device(1 - recovery.member);
            cx.event(Event::DeviceFailed { device, op: Op::Write, offset: recovery.reading, error });
            cx.fail_member(device);
            if cx.delta.members.counts(recovery.member) {
                recovery.step(lane, cx)
            } else {
                // No member that is left has the commit.
                recovery.pending.clear();
                Ok(None)
            }
        }
        // If the blocks behind the end can't be read, they aren't needed.
        Err(_) if recovery.phase == RecoveryPhase::Ahead => {
            recovery.slots = Slots::default();
            recovery.step(lane, cx)
        }
        Err(error) => match (recovery.phase, recovery.slots.first_alone()) {
            // Perhaps only a block behind the header can't be read.
            (RecoveryPhase::Head(_), Some(slot)) => Ok(Some((lane.offset_of(slot, cx), 1))),
            (RecoveryPhase::Head(_), None) if recovery.turn_to_other(cx) => recovery.step(lane, cx),
            (RecoveryPhase::Head(_), None) if recovery.ended && cx.delta.members.beside(recovery.member).is_some() => {
                recovery.leave_out(error, cx);
                recovery.look_ahead(lane, cx)
            }
            _ => Err(OpenError::Read { offset: recovery.reading, error }),
        },
    };
    match step {
        Err(error) => {
            cx.free(recovery.buf, COMMIT_BLOCKS_MAX);
            cx.delta.tell(Up::OpenFailed(error));
        }
        Ok(Some((offset, blocks))) => {
            lane.recovery = Some(recovery);
            recover_io(lane, offset, blocks, cx);
        }
        Ok(None) => end_replay(lane, recovery, cx),
    }
}

impl Recovery {
    /// Returns which part of the checkpoint to read next.
    fn checkpoint_read(&mut self, lane: &mut Lane, cx: &Cx<'_>) -> Option<(u64, u32)> {
        match (self.phase, self.header) {
            (RecoveryPhase::Area(area), _) => Some((cx.facts.superblock.checkpoint_offset(lane.id as u32, area), 1)),
            (_, Some(header)) => self.next_body_read(lane, header, cx),
            (_, None) => None,
        }
    }

    /// Takes the blocks that were read or written. Returns where to go on, or `None` at the end.
    fn step(&mut self, lane: &mut Lane, cx: &mut Cx<'_>) -> Result<Option<(u64, u32)>, OpenError> {
        let number = lane.id as u32;
        match self.phase {
            RecoveryPhase::Area(area) => {
                let tag = cx.facts.cache_tag;
                let block = cx.mem.bytes(blocks_span(self.buf, 0, 1));
                let header = CheckpointHeader::decode(block).filter(|head| head.fits(&cx.facts.superblock, area));
                // Formatting and repair leave zeroes here, and so does an opening that was cut off.
                let lost = header.is_none() && block.iter().any(|byte| *byte != 0);
                let header = header.filter(|head| head.cache_tag == tag && u32::from(head.lane) == number);
                self.take_head(lane, area, header, lost, cx)
            }
            RecoveryPhase::Body => {
                let Some(header) = self.header else { return Ok(None) };
                match self.take_body(lane, header, cx) {
                    // The other member may have the whole body.
                    Err(OpenError::CheckpointDamaged { .. }) if self.turn_to_other(cx) => {
                        return Ok(self.checkpoint_read(lane, cx));
                    }
                    taken => taken?,
                }
                // Each batch is read from the lead first, but not from a lead whose errors take
                // long.
                if !self.lead_fails {
                    self.turn_back(cx);
                }
                if let Some(read) = self.next_body_read(lane, header, cx) {
                    return Ok(Some(read));
                }
                self.turn_back(cx);
                if self.entries_read != header.entries {
                    let offset = cx.facts.superblock.checkpoint_offset(number, self.area);
                    return Err(OpenError::CheckpointDamaged { lane: number, offset });
                }
                match self.next_head_read(lane, cx) {
                    None => self.look_ahead(lane, cx),
                    read => Ok(read),
                }
            }
            RecoveryPhase::Head(_) => match self.next_head_read(lane, cx) {
                None => self.look_ahead(lane, cx),
                read => Ok(read),
            },
            RecoveryPhase::Ahead => {
                self.take_ahead(lane, cx);
                self.look_ahead(lane, cx)
            }
            // The member was left out while it was read. A commit that it alone may have is not in
            // the log (test: `a_commit_of_a_member_that_fails_during_replay_is_not_taken`).
            RecoveryPhase::Verify if cx.delta.members.is_out(self.member) => Ok(self.next_verify_read(lane, cx)),
            RecoveryPhase::Verify if !self.front_is_whole(cx) => self.not_whole(lane, None, cx),
            // Nothing proves that both members have the commit, but from now on it counts.
            RecoveryPhase::Verify if cx.delta.members.state == MembersState::Whole => {
                self.phase = RecoveryPhase::Copy;
                Ok(self.front(lane, cx))
            }
            RecoveryPhase::Verify | RecoveryPhase::Copy => {
                if let Some((header, slot)) = self.pending.pop_front() {
                    self.apply(lane, &header, slot, cx);
                }
                Ok(self.next_verify_read(lane, cx))
            }
        }
    }

    /// The first pending commit is not whole on the member that was read, or can't be read
    /// (`error`). Perhaps the other member has it whole. If one of them says that it is torn, it
    /// was never flushed, and the log ends before it. If it merely can't be read, it may have been
    /// flushed, and so may much behind it. Only `repair` ends a log there.
    fn not_whole(
        &mut self,
        lane: &mut Lane,
        error: Option<DeviceError>,
        cx: &mut Cx<'_>,
    ) -> Result<Option<(u64, u32)>, OpenError> {
        if self.turn_to_other(cx) {
            self.torn = error.is_none();
            return Ok(self.front(lane, cx));
        }
        match error {
            Some(error) if !self.torn => {
                self.tries += 1;
                self.turn_back(cx);
                let again = self.tries <= VERIFY_TRIES_MAX;
                again.then(|| self.front(lane, cx)).ok_or(OpenError::Read { offset: self.reading, error })
            }
            _ => {
                if let Some(error) = error.filter(|_| cx.delta.members.beside(self.member).is_some()) {
                    self.leave_out(error, cx);
                }
                self.pending.clear();
                Ok(None)
            }
        }
    }

    /// Leaves out the member that is being read: it can't be read, and its content doesn't matter.
    fn leave_out(&mut self, error: DeviceError, cx: &mut Cx<'_>) {
        let device = device(self.member);
        cx.event(Event::DeviceFailed { device, op: Op::Read, offset: self.reading, error });
        cx.fail_member(device);
        self.turn_back(cx);
    }

    /// Takes the next commit from the candidates, or says which head to read.
    fn next_head_read(&mut self, lane: &mut Lane, cx: &mut Cx<'_>) -> Option<(u64, u32)> {
        let epoch = self.header.map_or(0, |header| header.epoch);
        loop {
            if let Some(stream) = (0..STREAMS).find(|&s| self.heads[s] != NO_SLOT && self.candidates[s].is_none()) {
                let slot = self.heads[stream];
                let Some(place) = self.slots.place(slot) else {
                    self.phase = RecoveryPhase::Head(stream);
                    return Some(self.read_window(lane, slot, self.data_blocks[stream], cx));
                };
                let header = CommitHeader::decode(cx.mem.bytes(blocks_span(self.buf, place, 1)));
                self.candidates[stream] = Some(header.filter(|header| header.fits(&cx.facts.superblock, slot)));
                continue;
            }
            let (tag, number, seq) = (cx.facts.cache_tag, lane.id as u16, self.next_seq);
            let is_next = |header: &CommitHeader| {
                header.seq == seq && header.epoch == epoch && header.cache_tag == tag && header.lane == number
            };
            let Some(stream) =
                (0..STREAMS).find(|&s| self.candidates[s].as_ref().and_then(Option::as_ref).is_some_and(is_next))
            else {
                // The log ends here, unless it ends on this member only.
                if self.turn_to_other(cx) {
                    self.ended = true;
                    continue;
                }
                return None;
            };
            let header = self.candidates[stream].take()??;
            let slot = self.heads[stream];
            if usize::from(header.stream) != stream {
                return None;
            }
            for other in 0..STREAMS {
                let head = header.heads[other];
                if head != self.heads[other] || other == stream {
                    self.heads[other] = head;
                    self.candidates[other] = None;
                }
            }
            self.next_seq += 1;
            self.ended = false;
            (self.data_blocks[stream], self.next_segments[stream]) = (header.data_blocks(), header.next_segment);
            self.durable_seq = self.durable_seq.max(header.durable_seq);
            self.pending.push_back((header, slot));
            self.turn_back(cx);
            self.apply_durable(lane, cx);
        }
    }

    /// Applies the commits that are known to be whole.
    pub(crate) fn apply_durable(&mut self, lane: &mut Lane, cx: &mut Cx<'_>) {
        while let Some((header, slot)) = self.pending.pop_front_if(|(front, _)| front.seq <= self.durable_seq) {
            self.apply(lane, &header, slot, cx);
        }
    }

    pub(crate) fn next_verify_read(&mut self, lane: &mut Lane, cx: &Cx<'_>) -> Option<(u64, u32)> {
        self.turn_back(cx);
        self.torn = false;
        self.phase = RecoveryPhase::Verify;
        self.front(lane, cx)
    }

    /// Where the first pending commit is, header and data.
    fn front(&self, lane: &Lane, cx: &Cx<'_>) -> Option<(u64, u32)> {
        let (header, slot) = self.pending.front()?;
        Some((lane.offset_of(*slot, cx), header.data_blocks() + 1))
    }

    /// Whether the data of the first pending commit, just read, is what its header says.
    fn front_is_whole(&self, cx: &Cx<'_>) -> bool {
        let Some((header, _)) = self.pending.front() else { return false };
        if cx.facts.planted(Canary::TornReplayed) {
            return true;
        }
        // The header is copied to the other member, too.
        let read = CommitHeader::decode(cx.mem.bytes(blocks_span(self.buf, 0, 1)));
        if cx.delta.members.state == MembersState::Whole && read.is_none_or(|read| read.seq != header.seq) {
            return false;
        }
        let drop_clean = cx.facts.options.drop_clean || cx.delta.members.pairing().clean_lost;
        header.placed(0).all(|(block, entry)| {
            match entry {
                // The block is forgotten anyway, or only the lead ever had it.
                Entry::Clean { .. } if drop_clean || self.member != cx.delta.members.lead => true,
                Entry::Dirty { key, checksum, .. } | Entry::Clean { key, checksum } => {
                    let Some(flat) = cx.facts.flat(*key) else { return true };
                    cx.facts.checksum(cx.mem, flat, blocks_span(self.buf, block, 1)) == *checksum
                }
                _ => true,
            }
        })
    }
}

/// Ends replay: the index has what the log says.
fn end_replay(lane: &mut Lane, mut it: Box<Recovery>, cx: &mut Cx<'_>) {
    cx.free(it.buf, COMMIT_BLOCKS_MAX);
    it.forget_freed(lane, cx);
    it.forget_unproven(lane, cx);
    lane.replayed = Some(it);
    if cx.facts.options.hold_replayed {
        cx.delta.tell(Up::Replayed);
    } else {
        end_recovery(lane, cx);
    }
}

/// Begins the log anew behind what was replayed.
pub(crate) fn end_recovery(lane: &mut Lane, cx: &mut Cx<'_>) {
    let Some(it) = lane.replayed.take() else { return };
    if cx.facts.options.drop_clean || cx.delta.members.pairing().clean_lost {
        lane.drop_clean(|_| true, cx);
    }
    lane.store.gather();
    if lane.eras.is_some() {
        settle_eras(lane, &it.eras, cx);
    }
    lane.log.start(it.next_seq);
    let mut closed: Vec<(u64, u32)> = Vec::new();
    for (id, segment) in lane.log.segments().iter().enumerate() {
        if segment.live > 0 {
            closed.push((segment.last_seq, id as u32));
        }
    }
    closed.sort_unstable();
    // The log doesn't record with which blocks segments were filled.
    lane.reclaim.sparse = Sparse::default();
    for (_, id) in closed {
        lane.policy.sealed(SegmentId(id), Zone::Main);
        lane.reclaim.sparse.filled(id, lane.log.segment(id).live, lane.log.segment_slots());
    }
    if lane.log.open_streams() {
        cx.delta.tell(Up::Recovered { commits: it.commits });
        // The checkpoint comes before all other writes: from here on replay starts with this
        // opening's commits.
        begin_first_checkpoint(lane, it.found[it.area as usize], cx);
    } else {
        cx.delta.tell(Up::OpenFailed(OpenError::NoFreeSegments { lane: lane.id as u32 }));
    }
}
