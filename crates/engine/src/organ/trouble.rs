// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trouble with blocks of a lane: lost blocks, unsound copies, and runs that the origin refuses.
//! Also blocks that were dropped, while the log does not say so yet.
//!
//! Mostly there is no trouble, so each question is answered by a look at an empty set.

use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Range;

use crate::fact::io::DeviceError;
use crate::organ::index::Flat;

/// What is known of a dirty block whose copies on two members are not both sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copies {
    /// The lead couldn't read the block: the other member is asked.
    Unreadable,
    /// The lead has something else: the other member is asked.
    Rotten,
    /// The other member lacks the block, because the block couldn't be read while that member was
    /// filled.
    OfLead,
}

/// Tells what is left to do when a read of a block from the cache was not sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Another member may have a sound copy: it is asked.
    AskOther,
    /// No member can read the block now.
    Unreadable(DeviceError),
    /// No member has the right content.
    Rotten,
    /// The slot doesn't hold the newest version of a dirty block: the block that was read is clean,
    /// or superseded.
    NotDirty(Result<(), DeviceError>),
}

impl Finding {
    /// The finding if a read went so, and no other copy is left.
    pub(crate) const fn last(result: Result<(), DeviceError>) -> Self {
        match result {
            Ok(()) => Self::Rotten,
            Err(error) => Self::Unreadable(error),
        }
    }

    /// How the read went, if there is no other copy to try.
    pub(crate) const fn result(self) -> Option<Result<(), DeviceError>> {
        match self {
            Self::AskOther => None,
            Self::Unreadable(error) => Some(Err(error)),
            Self::Rotten => Some(Ok(())),
            Self::NotDirty(result) => Some(result),
        }
    }
}

/// All trouble with blocks of a lane.
#[derive(Default)]
pub(crate) struct Trouble {
    /// Dirty blocks whose only copy is corrupt. Reads of them fail until they are written anew.
    lost: BTreeSet<Flat>,
    /// Dirty blocks to destage before all others.
    urgent: BTreeSet<Flat>,
    /// Dirty blocks that could not be read, by a run or to be moved. Each is tried alone.
    suspect: BTreeSet<Flat>,
    /// Where runs end, because the origin has refused a longer one.
    breaks: BTreeSet<Flat>,
    /// Dirty blocks that are not sound on both members of a mirrored cache.
    elsewhere: BTreeMap<Flat, Copies>,
    /// Blocks that are no longer in the index, while the log doesn't say so durably. The number
    /// tells how often that is still to be said.
    unrecorded: BTreeMap<Flat, u32>,
}

impl Trouble {
    /// Notes that a dirty block is lost. Returns whether that is new.
    pub(crate) fn lose(&mut self, flat: Flat) -> bool {
        self.urgent.remove(&flat);
        self.lost.insert(flat)
    }

    /// Notes that a lost block may be sound after all. It is to be destaged soon. Returns whether
    /// it was lost.
    pub(crate) fn found(&mut self, flat: Flat) -> bool {
        let was_lost = self.lost.remove(&flat);
        if was_lost {
            self.urgent.insert(flat);
        }
        was_lost
    }

    /// Takes lost blocks for readable again, except those to keep. Returns the readable ones.
    pub(crate) fn try_lost(&mut self, keep: impl Fn(Flat) -> bool) -> BTreeSet<Flat> {
        let (kept, tried) = core::mem::take(&mut self.lost).into_iter().partition(|flat| keep(*flat));
        self.lost = kept;
        tried
    }

    /// Whether any block is lost.
    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Whether a block is lost.
    pub(crate) fn is_lost(&self, flat: Flat) -> bool {
        self.lost.contains(&flat)
    }

    /// The lost blocks.
    pub(crate) fn lost(&self) -> impl Iterator<Item = Flat> + '_ {
        self.lost.iter().copied()
    }

    /// The lost blocks of a range.
    pub(crate) fn lost_in(&self, first: Flat, end: Flat) -> impl Iterator<Item = Flat> + '_ {
        self.lost.range(first..end).copied()
    }

    /// Forgets what was known of a dirty block, because that version is not the newest any more.
    /// Returns whether the block was lost.
    pub(crate) fn forget(&mut self, flat: Flat) -> bool {
        // Mostly these sets are empty.
        self.elsewhere.remove(&flat);
        for set in [&mut self.urgent, &mut self.suspect] {
            if !set.is_empty() {
                set.remove(&flat);
            }
        }
        !self.lost.is_empty() && self.lost.remove(&flat)
    }

    /// A dirty block is to be destaged before all others.
    pub(crate) fn hurry(&mut self, flat: Flat) {
        self.urgent.insert(flat);
    }

    /// Reclaim needs a block's destage no longer. A block with only one sound copy stays urgent: it
    /// should have a copy on the origin soon.
    pub(crate) fn calm(&mut self, flat: Flat) {
        if !self.elsewhere.contains_key(&flat) {
            self.urgent.remove(&flat);
        }
    }

    /// Whether a block is to be destaged before all others.
    pub(crate) fn is_urgent(&self, flat: Flat) -> bool {
        self.urgent.contains(&flat)
    }

    /// The first urgent block in a range.
    pub(crate) fn next_urgent(&self, places: Range<u64>) -> Option<Flat> {
        self.urgent.range(Flat(places.start)..Flat(places.end)).next().copied()
    }

    /// A dirty block couldn't be read with others.
    pub(crate) fn must_be_alone(&mut self, flat: Flat) {
        self.suspect.insert(flat);
    }

    /// A block was read soundly.
    pub(crate) fn trust(&mut self, flat: Flat) {
        self.suspect.remove(&flat);
    }

    /// Whether a block couldn't be read with others.
    pub(crate) fn is_suspect(&self, flat: Flat) -> bool {
        self.suspect.contains(&flat)
    }

    /// Whether any block couldn't be read with others.
    pub(crate) fn has_suspects(&self) -> bool {
        !self.suspect.is_empty()
    }

    /// Whether a block must be alone in its run: it could not be read with others, or only another
    /// device has it.
    pub(crate) fn is_alone(&self, flat: Flat) -> bool {
        self.suspect.contains(&flat) || self.elsewhere.contains_key(&flat)
    }

    /// Makes runs end here from now on, because the origin has refused a run.
    pub(crate) fn break_at(&mut self, flat: Flat) {
        self.breaks.insert(flat);
    }

    /// Whether runs end here.
    pub(crate) fn breaks_at(&self, flat: Flat) -> bool {
        self.breaks.contains(&flat)
    }

    /// Whether runs end at a block from `first` to `last`.
    pub(crate) fn breaks_in(&self, first: Flat, last: Flat) -> bool {
        self.breaks.range(first..=last).next().is_some()
    }

    /// The origin has taken the blocks from `from` to `to`: runs no longer end where they were
    /// broken.
    pub(crate) fn written(&mut self, from: Flat, to: Flat) {
        while let Some(&flat) = self.breaks.range(from..to).next() {
            self.breaks.remove(&flat);
        }
    }

    /// Whether a block is read from the other member of a mirrored cache.
    pub(crate) fn is_on_other(&self, flat: Flat) -> bool {
        self.elsewhere.get(&flat).is_some_and(|copies| *copies != Copies::OfLead)
    }

    /// How many dirty blocks only the lead of two members has, as far as is known.
    pub(crate) fn only_on_lead(&self) -> u64 {
        self.elsewhere.values().filter(|copies| **copies == Copies::OfLead).count() as u64
    }

    /// How many dirty blocks the lead can't be read for.
    pub(crate) fn only_elsewhere(&self) -> u64 {
        self.elsewhere.values().filter(|copies| **copies != Copies::OfLead).count() as u64
    }

    /// Whether the lead can't be read where a dirty block is.
    pub(crate) fn reads_elsewhere(&self) -> bool {
        self.elsewhere.values().any(|copies| *copies != Copies::OfLead)
    }

    /// Notes that the other member couldn't be filled with these blocks.
    pub(crate) fn only_lead_has(&mut self, flats: impl Iterator<Item = Flat>) {
        self.elsewhere.extend(flats.map(|flat| (flat, Copies::OfLead)));
    }

    /// Whether anything is known of copies on two members.
    pub(crate) fn knows_copies(&self) -> bool {
        !self.elsewhere.is_empty()
    }

    /// Forgets the copies on the other member: there is none any more, or the other one leads.
    pub(crate) fn forget_copies(&mut self) {
        self.elsewhere.clear();
    }

    /// Notes that the lead's copy of a dirty block was not sound. The second value tells whether
    /// that is new.
    pub(crate) fn lead_failed(&mut self, flat: Flat, result: Result<(), DeviceError>) -> (Finding, bool) {
        if self.elsewhere.get(&flat) == Some(&Copies::OfLead) {
            return (Finding::last(result), false);
        }
        let copies = if result.is_ok() { Copies::Rotten } else { Copies::Unreadable };
        let new = self.elsewhere.insert(flat, copies).is_none();
        if new {
            // A block with one sound copy should soon have another on the origin.
            self.urgent.insert(flat);
        }
        (Finding::AskOther, new)
    }

    /// Notes that the other member's copy of a dirty block was not sound.
    pub(crate) fn other_failed(&mut self, flat: Flat, result: Result<(), DeviceError>) -> Finding {
        match (self.elsewhere.get(&flat), result) {
            (Some(Copies::Rotten), _) => Finding::last(result),
            // The lead couldn't read the block, which may pass (test:
            // `a_mirror_that_lacks_a_block_does_not_hide_it`).
            (_, Ok(())) => {
                self.elsewhere.insert(flat, Copies::OfLead);
                Finding::Unreadable(DeviceError::Io)
            }
            (_, Err(error)) => {
                self.elsewhere.remove(&flat);
                Finding::Unreadable(error)
            }
        }
    }

    /// Notes that a block left the index, and that the log has to say so once more.
    pub(crate) fn drop_unrecorded(&mut self, flat: Flat) {
        *self.unrecorded.entry(flat).or_default() += 1;
    }

    /// Notes that the log says durably that a block was dropped. The block may have been dropped
    /// once more since.
    pub(crate) fn recorded(&mut self, flat: Flat) {
        if let Some(times) = self.unrecorded.get_mut(&flat) {
            *times -= 1;
            if *times == 0 {
                self.unrecorded.remove(&flat);
            }
        }
    }

    /// Whether the log does not say yet that a block was dropped.
    pub(crate) fn is_unrecorded(&self, flat: Flat) -> bool {
        self.unrecorded.contains_key(&flat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERROR: Result<(), DeviceError> = Err(DeviceError::Io);

    #[test]
    fn of_two_copies_each_is_tried_before_a_block_is_given_up() {
        let mut trouble = Trouble::default();
        assert_eq!(trouble.lead_failed(Flat(1), Ok(())), (Finding::AskOther, true));
        assert!(trouble.is_on_other(Flat(1)) && trouble.is_urgent(Flat(1)));
        assert_eq!(trouble.other_failed(Flat(1), Ok(())), Finding::Rotten);
        assert_eq!(trouble.lead_failed(Flat(2), ERROR), (Finding::AskOther, true));
        assert_eq!(trouble.other_failed(Flat(2), ERROR), Finding::Unreadable(DeviceError::Io));
        assert!(!trouble.is_on_other(Flat(2)), "the lead is asked again");
    }

    #[test]
    fn what_was_dropped_twice_is_recorded_when_both_are() {
        let mut trouble = Trouble::default();
        trouble.drop_unrecorded(Flat(7));
        trouble.drop_unrecorded(Flat(7));
        trouble.recorded(Flat(7));
        assert!(trouble.is_unrecorded(Flat(7)));
        trouble.recorded(Flat(7));
        assert!(!trouble.is_unrecorded(Flat(7)));
    }
}
