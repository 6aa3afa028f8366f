// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading the log: how much at once, and what is behind its end.
//!
//! The log ends where the next header is missing. If there is a later header that says that the
//! missing commit was durable, then this is no end but damage (test:
//! `a_rotten_header_is_not_the_end_of_the_log`). Commits of a later opening prove damage, too. That
//! opening's checkpoint was written before them, and has decayed since.

use super::COMMIT_BLOCKS_MAX;
use super::state::{Recovery, RecoveryPhase, Slots};
use crate::cx::{Cx, blocks_span};
use crate::fact::open_error::OpenError;
use crate::format::{CommitHeader, NO_SLOT, STREAMS};
use crate::lane::Lane;

/// Commits with at most this many data blocks are read many at a time. Reading 64 blocks costs a
/// device little more than reading one. Replay of a log of small commits needs fewer reads in the
/// same proportion.
const SMALL_COMMIT_BLOCKS: u32 = 31;
const WINDOW_BLOCKS: u32 = 64;

impl Recovery {
    /// Reads a header at `slot`, and more if the last commit there was small.
    pub(crate) fn read_window(&mut self, lane: &Lane, slot: u32, data_blocks: u32, cx: &Cx<'_>) -> (u64, u32) {
        let left = lane.log.segment_slots() - slot % lane.log.segment_slots();
        let blocks = if data_blocks <= SMALL_COMMIT_BLOCKS { WINDOW_BLOCKS.min(left) } else { 1 };
        self.slots = Slots { first: slot, blocks };
        (lane.offset_of(slot, cx), blocks)
    }

    /// Returns what to read next in the search for commits behind the end. When all is read,
    /// judges.
    pub(crate) fn look_ahead(&mut self, lane: &mut Lane, cx: &mut Cx<'_>) -> Result<Option<(u64, u32)>, OpenError> {
        self.phase = RecoveryPhase::Ahead;
        let slots = lane.log.segment_slots();
        if !core::mem::replace(&mut self.ahead.begun, true) {
            self.turn_to(cx.delta.members.lead);
            for stream in 0..STREAMS {
                let (head, next) = (self.heads[stream], self.next_segments[stream]);
                if head != NO_SLOT {
                    self.ahead.ranges.push_back((head, slots - head % slots));
                }
                if (next as usize) < lane.log.segments().len() && (head == NO_SLOT || next != head / slots) {
                    self.ahead.ranges.push_back((next * slots, slots));
                }
            }
            if self.head_lost {
                // A crash may have torn the head, or the head has decayed. An opening begins its
                // log in segments that were free, and these may be any.
                let segments = lane.log.segments().len() as u32;
                self.ahead.ranges.extend((0..segments).map(|segment| (segment * slots, 1)));
            }
        }
        if let Some((first, count)) = self.ahead.ranges.pop_front() {
            let blocks = count.min(COMMIT_BLOCKS_MAX);
            if blocks < count {
                self.ahead.ranges.push_front((first + blocks, count - blocks));
            }
            self.slots = Slots { first, blocks };
            return Ok(Some((lane.offset_of(first, cx), blocks)));
        }
        if let Some(epoch) = self.ahead.later_epoch {
            return Err(OpenError::CheckpointLost { lane: lane.id as u32, epoch });
        }
        self.durable_seq = self.durable_seq.max(self.ahead.durable_seq);
        if self.durable_seq >= self.next_seq {
            let (lane, commit, durable) = (lane.id as u32, self.next_seq, self.durable_seq);
            return Err(OpenError::LogDamaged { lane, commit, durable });
        }
        self.apply_durable(lane, cx);
        Ok(self.next_verify_read(lane, cx))
    }

    /// Looks through what was read.
    pub(crate) fn take_ahead(&mut self, lane: &Lane, cx: &Cx<'_>) {
        let epoch = self.header.map_or(0, |header| header.epoch);
        for nth in 0..self.slots.blocks {
            let header = CommitHeader::decode(cx.mem.bytes(blocks_span(self.buf, nth, 1)));
            let here = self.slots.first + nth;
            let Some(header) = header.and_then(|header| header.fitted(&cx.facts.superblock, here)) else { continue };
            let ours = header.cache_tag == cx.facts.cache_tag && usize::from(header.lane) == lane.id;
            if ours && header.epoch > epoch {
                self.ahead.later_epoch = self.ahead.later_epoch.max(Some(header.epoch));
            }
            if ours && header.epoch == epoch && header.seq >= self.next_seq {
                self.ahead.durable_seq = self.ahead.durable_seq.max(header.durable_seq);
            }
        }
    }
}
