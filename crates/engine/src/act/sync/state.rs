// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lane's part in filling a new mirror: how far it is, and which blocks couldn't be read.

use alloc::vec::Vec;

use crate::cx::Cx;
use crate::fact::types::Time;
use crate::organ::index::{Flat, Index};
use crate::organ::members::MembersState;

/// The first pause before blocks that couldn't be read are tried again. Pauses double: 1, 2, 4 and
/// 8 s. A device that was reset is back by then.
const PAUSE_FIRST_NS: u64 = 1_000_000_000;
/// How long reads are tried again in all, however slowly a device fails. Until a mirror is whole no
/// dirty block has a second copy.
const TRIED_FOR_NS: u64 = 16_000_000_000;

/// How far a lane is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SyncPhase {
    /// A checkpoint is under way whose beginning the new member lacks.
    Waiting,
    /// Making both checkpoint areas void, where the device may hold anything.
    Clearing,
    Copying,
    /// Copying clean blocks, too.
    Clean,
    /// A checkpoint that began with all copies made.
    Checkpoint,
    Done,
}

/// What the other member is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    Dirty,
    /// Clean blocks alone: it has the dirty ones.
    Clean,
    All,
}

/// The coordinator's part in filling a new mirror: which filling it is, and what lanes tell of its
/// end.
#[derive(Default)]
pub(crate) struct Filling {
    number: u64,
    /// Lanes were told that all are done, and so many have answered.
    ending: Option<usize>,
    /// Dirty blocks that the new member lacks.
    lacking: u64,
}

impl Filling {
    /// A filling begins. Returns its number.
    pub(super) const fn begin(&mut self) -> u64 {
        *self = Self { number: self.number + 1, ending: None, lacking: 0 };
        self.number
    }

    /// The number of the filling that began last.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// All lanes are done. Returns whether that is news.
    pub(super) fn ends(&mut self) -> bool {
        self.ending.replace(self.ending.unwrap_or(0)).is_none()
    }

    /// A lane has ended its part, or has given up. With the last one the new member is full.
    pub(crate) fn filled(&mut self, number: u64, lacking: Option<u64>, lanes: usize, cx: &mut Cx<'_>) {
        let at_hand = number == self.number && cx.delta.members.is_filling();
        let Some(lacking) = lacking.filter(|_| at_hand) else { return };
        let Some(told) = &mut self.ending else { return };
        (*told, self.lacking) = (*told + 1, self.lacking + lacking);
        if *told < lanes {
            return;
        }
        if cx.delta.members.state == MembersState::Syncing {
            cx.delta.members.new_one_is_full(self.lacking);
        } else {
            cx.delta.members.may_succeed();
        }
    }
}

/// A lane's part in filling a new mirror.
pub(crate) struct Sync {
    number: u64,
    pub(super) what: Fill,
    pub(super) phase: SyncPhase,
    pub(super) next: Flat,
    /// The next part of the index, and clean blocks of the parts before it.
    part: usize,
    clean: Vec<(Flat, u32)>,
    pub(super) flying: u32,
    pub(super) copied: u64,
    pub(super) of: u64,
    /// The number of reads so far that were tried again at once.
    pub(super) tries: u32,
    /// Blocks that couldn't be read, and their slots.
    pub(super) missed: Vec<(Flat, u32)>,
    /// The missed blocks that are being tried again, with their slots.
    pub(super) again: Vec<(Flat, u32)>,
    /// How long missed blocks wait the next time, until when they wait now, and when the tries end.
    pub(super) pause_ns: u64,
    pub(super) resume_at: Option<Time>,
    pub(super) give_up_at: Option<Time>,
    /// The eras of the origins when the copying began, where destage is ordered.
    pub(super) eras: Vec<u64>,
}

impl Sync {
    pub(super) const fn new(number: u64, what: Fill, of: u64, flying: u32) -> Self {
        Self {
            number,
            what,
            phase: if matches!(what, Fill::Clean) { SyncPhase::Clean } else { SyncPhase::Waiting },
            next: Flat(0),
            part: 0,
            clean: Vec::new(),
            flying,
            copied: 0,
            of,
            tries: 0,
            missed: Vec::new(),
            again: Vec::new(),
            pause_ns: PAUSE_FIRST_NS,
            resume_at: None,
            give_up_at: None,
            eras: Vec::new(),
        }
    }

    /// Versions that this era of an origin needs may be on one member alone.
    pub(crate) fn wait_for(&mut self, origin: usize, era: u64) {
        if let Some(began) = self.eras.get_mut(origin) {
            *began = era.max(*began);
        }
    }

    /// Blocks that were copied.
    pub(crate) const fn copied(&self) -> u64 {
        self.copied
    }

    /// Blocks that were dirty when the filling began.
    pub(crate) const fn of(&self) -> u64 {
        self.of
    }

    /// The number of the filling, if the lane has done its part of it.
    pub(crate) fn filled(&self) -> Option<u64> {
        (self.phase == SyncPhase::Done).then_some(self.number)
    }

    /// The next block that was clean when its part of the index was looked at, and its slot.
    pub(super) fn next_clean(&mut self, index: &Index) -> Option<(Flat, u32)> {
        while self.clean.is_empty() && self.part < index.parts() {
            let clean = &mut self.clean;
            index.scan(self.part, |flat, found| clean.extend((!found.dirty).then_some((flat, found.slot))));
            self.part += 1;
        }
        self.clean.pop()
    }

    /// When blocks that couldn't be read are to be tried again.
    pub(crate) const fn timer(&self) -> Option<Time> {
        self.resume_at
    }

    /// Whether missed blocks wait for another try, or have begun it.
    pub(super) fn tries_again(&mut self, now: Time) -> bool {
        if self.missed.is_empty() {
            return false;
        }
        let give_up_at = *self.give_up_at.get_or_insert(now.plus_ns(TRIED_FOR_NS));
        let resume_at = *self.resume_at.get_or_insert(now.plus_ns(self.pause_ns));
        if resume_at >= give_up_at {
            self.resume_at = None;
            return false;
        }
        if now >= resume_at {
            self.again = core::mem::take(&mut self.missed);
            (self.tries, self.pause_ns, self.resume_at) = (0, self.pause_ns * 2, None);
        }
        true
    }

    /// The next missed block and its slot, if missed blocks are tried again.
    pub(super) fn next_missed(&mut self, now: Time) -> Option<(Flat, u32)> {
        if self.give_up_at.is_some_and(|when| now >= when) {
            self.missed.append(&mut self.again);
        }
        self.again.pop()
    }
}
