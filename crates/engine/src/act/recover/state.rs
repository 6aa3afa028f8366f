// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far a lane's opening is: what was found, what is read next, what is to be applied.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};

use super::eras::ErasFound;
use crate::cx::Cx;
use crate::fact::memory::Buf;
use crate::format::{CheckpointHeader, CommitHeader, STREAMS, UnprovenBlocks};
use crate::organ::members::MembersState;

/// What an opening does next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RecoveryPhase {
    /// Reading the head of area 0, then of area 1.
    Area(u32),
    Body,
    /// Reading the header at the head of this stream, and perhaps what is behind it.
    Head(usize),
    /// Looking behind the end of the log.
    Ahead,
    /// Reading the data of the first commit that is not known to be durable.
    Verify,
    /// Writing that commit to the member of a mirrored cache that it was not read from.
    Copy,
}

/// MembersState of a lane's opening.
pub(crate) struct Recovery {
    pub(super) phase: RecoveryPhase,
    pub(super) buf: Buf,
    /// The newest heads found, with the members that have them.
    pub(super) found: [Option<(CheckpointHeader, u8)>; 2],
    /// A head is damaged, or was torn by a crash.
    pub(super) head_lost: bool,
    /// Then the other member of a mirrored cache is asked, too.
    pub(super) second_look: Option<SecondLook>,
    pub(super) area: u32,
    pub(super) header: Option<CheckpointHeader>,
    pub(super) block: u32,
    /// Blocks of the checkpoint before what eras need.
    pub(super) body: u32,
    pub(super) batch: u32,
    pub(super) ages_read: usize,
    pub(super) entries_read: u64,
    pub(super) heads: [u32; STREAMS],
    /// What was read at each head: not yet, nothing sound, or a header.
    pub(super) candidates: [Option<Option<CommitHeader>>; STREAMS],
    /// What is in the buffer of the log.
    pub(super) slots: Slots,
    /// Data blocks of each stream's last commit.
    pub(super) data_blocks: [u32; STREAMS],
    /// Where each stream goes on when its segment is full.
    pub(super) next_segments: [u32; STREAMS],
    pub(super) ahead: Ahead,
    /// First byte of the read in flight.
    pub(super) reading: u64,
    /// The member of a mirrored cache that is read.
    pub(super) member: u8,
    /// A read of the checkpoint from the lead failed.
    pub(super) lead_fails: bool,
    /// As one of them has it the log ends here, and the other is asked.
    pub(super) ended: bool,
    pub(super) next_seq: u64,
    pub(super) durable_seq: u64,
    /// Commits read but not applied, with the slots of their headers.
    pub(super) pending: VecDeque<(CommitHeader, u32)>,
    /// The first of them is torn, as one member has it.
    pub(super) torn: bool,
    /// Reads of them that failed.
    pub(super) tries: u32,
    pub(super) freed: Freed,
    pub(super) unproven: UnprovenBlocks,
    pub(super) commits: u64,
    /// What the log tells of eras.
    pub(super) eras: ErasFound,
}

impl Recovery {
    /// Reads from the other member of a mirrored cache from now on; false if it has been tried
    /// already, or there is none. What counts is on both, but either may have decayed, or fail now.
    pub(super) fn turn_to_other(&mut self, cx: &Cx<'_>) -> bool {
        let other = match (cx.delta.members.state, cx.delta.members.lead) {
            (MembersState::Whole, lead) => lead == self.member,
            (MembersState::Leaving { out }, _) => out == self.member,
            // It was left out while it was read.
            (MembersState::Single, lead) => lead != self.member,
            _ => false,
        };
        if other {
            self.turn_to(1 - self.member);
        }
        other
    }

    /// Reads from the lead again, if that is not the one that fails.
    pub(super) fn turn_back(&mut self, cx: &Cx<'_>) {
        match (cx.delta.members.state, cx.delta.members.lead) {
            (MembersState::Leaving { out }, lead) if out == lead => self.turn_to(1 - lead),
            (_, lead) => self.turn_to(lead),
        }
    }

    pub(super) fn turn_to(&mut self, member: u8) {
        if self.member != member {
            (self.member, self.slots, self.candidates) = (member, Slots::default(), Default::default());
        }
    }
}

/// Consecutive slots that are in the buffer.
#[derive(Default)]
pub(super) struct Slots {
    pub(super) first: u32,
    pub(super) blocks: u32,
}

impl Slots {
    /// The block of the buffer that holds this slot.
    pub(super) fn place(&self, slot: u32) -> Option<u32> {
        slot.checked_sub(self.first).filter(|place| *place < self.blocks)
    }

    /// Shrinks to the first slot and returns it; `None` if it was alone already.
    pub(super) fn first_alone(&mut self) -> Option<u32> {
        (self.blocks > 1).then(|| {
            self.blocks = 1;
            self.first
        })
    }
}

/// The search behind the end.
#[derive(Default)]
pub(super) struct Ahead {
    pub(super) begun: bool,
    /// Slots to look through: first, count.
    pub(super) ranges: VecDeque<(u32, u32)>,
    /// The last commit that a header found there says was durable.
    pub(super) durable_seq: u64,
    /// The latest opening with commits there, if it is later than the checkpoint's.
    pub(super) later_epoch: Option<u64>,
}

/// What the other member of a mirrored cache says of the heads.
#[derive(Clone, Copy, Default)]
pub(super) struct SecondLook {
    /// The newest generation there.
    pub(super) newest: u64,
    /// A head is damaged or torn there, too, or can't be read.
    pub(super) lost: bool,
}

/// Segments freed since the last walk over the index; with the blocks (+ 1) that were written into
/// their slots since.
#[derive(Default)]
pub(super) struct Freed(pub(super) BTreeMap<u32, Option<Box<[u64]>>>);
