// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far a lane's checkpoint is, and what it has put down so far.

use alloc::vec::Vec;

use crate::fact::memory::Buf;
use crate::format::{CheckpointEntry, EraEntry, STREAMS};
use crate::organ::index::Flat;

/// How far a checkpoint is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CheckpointPhase {
    #[default]
    Resting,
    /// Writing the head that was found at the opening to this member.
    Found { to: u8 },
    /// Waiting until both members have it.
    FoundDurable,
    /// Writing zeroes over the head of the next area.
    Void,
    /// Waiting until both members have them.
    VoidDurable,
    /// Writing ages, then parts of the index.
    Body,
    /// Waiting until all that the body refers to is durable, and the body too.
    LogDurable,
    /// Writing the head.
    Head,
    /// Waiting for the flush after the head.
    HeadDurable,
}

/// State of a lane's checkpoint.
#[derive(Default)]
pub(crate) struct Checkpoint {
    /// Somebody needs one.
    pub(super) wanted: bool,
    /// Commits before this one are not needed by replay.
    pub(super) covers: u64,
    pub(super) generation: u64,
    pub(super) phase: CheckpointPhase,
    pub(super) seq: u64,
    /// The last commit that the body may refer to.
    pub(super) needs: u64,
    /// Wishes for flushes so far that are over. They are counted over all checkpoints, so that a
    /// flush for one checkpoint never counts for a later one.
    pub(super) flushes: u64,
    pub(super) heads: [u32; STREAMS],
    pub(super) next_segments: [u32; STREAMS],
    /// Next block of the area to write.
    pub(super) block: u32,
    pub(super) ages_written: usize,
    pub(super) part: usize,
    pub(super) pending: Vec<CheckpointEntry>,
    pub(super) entries: u64,
    /// Blocks at the end of the area for what eras need, and how many of them are written.
    pub(super) eras_blocks: u32,
    pub(super) eras_written: u32,
    /// The last one that is durable tells which versions eras need.
    pub(super) tells_eras: bool,
    /// The next version to write.
    pub(super) eras_from: Option<(Flat, u64)>,
    /// What is to be said of eras that are on their origins.
    pub(super) eras_sent: Vec<EraEntry>,
    /// Clean blocks that have room.
    pub(super) clean_left: u64,
    pub(super) buf: Option<Buf>,
}

impl Checkpoint {
    /// Whether none is under way.
    pub(crate) fn resting(&self) -> bool {
        self.phase == CheckpointPhase::Resting
    }

    /// Somebody needs a checkpoint.
    pub(crate) const fn want(&mut self) {
        self.wanted = true;
    }

    /// Commits before this one are not needed by replay.
    pub(crate) const fn covers(&self) -> u64 {
        self.covers
    }

    /// The checkpoint is over. So is its wish for a flush, if it has one.
    pub(super) const fn rest(&mut self) {
        (self.phase, self.flushes) = (CheckpointPhase::Resting, self.flushes + 1);
    }

    /// The checkpoint after this one, as it begins.
    pub(super) fn next(&self) -> Self {
        Self {
            covers: self.covers,
            generation: self.generation + 1,
            phase: CheckpointPhase::Body,
            flushes: self.flushes,
            tells_eras: self.tells_eras,
            block: 1,
            ..Self::default()
        }
    }

    /// Whether the last one that is durable tells which versions eras need.
    pub(super) const fn tells_eras(&self) -> bool {
        self.tells_eras
    }

    /// This one is durable.
    pub(super) const fn is_durable(&mut self) {
        (self.covers, self.tells_eras) = (self.seq, self.eras_blocks > 0);
    }

    /// The opening found the head of a checkpoint.
    pub(crate) const fn found(&mut self, generation: u64) {
        self.generation = generation;
    }

    /// The number of the wish for a flush, if the checkpoint has one now that commits up to this
    /// one are written.
    pub(crate) fn wish(&self, written_seq: u64) -> Option<u64> {
        self.wants_flush(written_seq).then_some(self.flushes)
    }

    /// A flush is over that began when the checkpoint had this wish. Returns whether the wish is
    /// still the same one: a flush for an earlier wish covers less.
    pub(crate) fn flush_ends(&mut self, wish: Option<u64>) -> bool {
        let ends = wish == Some(self.flushes);
        self.flushes += u64::from(ends);
        ends
    }

    /// Whether the device must be flushed for the checkpoint's own writes.
    pub(crate) fn wants_flush(&self, written_seq: u64) -> bool {
        match self.phase {
            CheckpointPhase::FoundDurable | CheckpointPhase::VoidDurable | CheckpointPhase::HeadDurable => true,
            CheckpointPhase::LogDurable => written_seq >= self.needs,
            CheckpointPhase::Resting
            | CheckpointPhase::Found { .. }
            | CheckpointPhase::Void
            | CheckpointPhase::Body
            | CheckpointPhase::Head => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_for_one_checkpoint_never_counts_for_the_next() {
        let mut checkpoint = Checkpoint::default();
        for given_up in [false, true] {
            checkpoint.phase = CheckpointPhase::LogDurable;
            let wish = checkpoint.wish(0);
            assert!(wish.is_some());
            assert!(given_up || checkpoint.flush_ends(wish));
            checkpoint.rest();
            assert!(!checkpoint.flush_ends(wish), "that flush is over, or came too late");
            checkpoint = checkpoint.next();
            checkpoint.phase = CheckpointPhase::LogDurable;
            assert_ne!(checkpoint.wish(0), wish);
            assert!(!checkpoint.flush_ends(wish), "the next checkpoint wrote after that flush had begun");
        }
    }
}
