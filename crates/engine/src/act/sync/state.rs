// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lane's part in filling a new mirror: how far it is, and which blocks couldn't be read.

use alloc::vec::Vec;

use crate::fact::types::Time;
use crate::organ::index::Flat;

/// What then couldn't be read waits, each time twice as long, for 1, 2, 4 and 8 s: a device that
/// was reset is back by then.
const PAUSE_FIRST_NS: u64 = 1_000_000_000;
/// So long in all, however slowly a device fails: until a mirror is whole nothing that is dirty has
/// a second copy.
const TRIED_FOR_NS: u64 = 16_000_000_000;

/// How far a lane is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SyncPhase {
    /// A checkpoint is under way of which the new member lacks the beginning.
    Waiting,
    /// Making both checkpoint areas void, where the device may hold anything.
    Clearing,
    Copying,
    /// A checkpoint that began with all copies made.
    Checkpoint,
    Done,
}

/// A lane's part in filling a new mirror.
pub(crate) struct Sync {
    pub(super) phase: SyncPhase,
    pub(super) next: Flat,
    pub(super) flying: u32,
    pub(super) copied: u64,
    pub(super) of: u64,
    /// Those so far.
    pub(super) tries: u32,
    /// Blocks that couldn't be read, and their slots.
    pub(super) missed: Vec<(Flat, u32)>,
    /// Those of them that are being tried again.
    pub(super) again: Vec<(Flat, u32)>,
    /// How long they wait the next time, until when they do, and when that ends.
    pub(super) pause_ns: u64,
    pub(super) resume_at: Option<Time>,
    pub(super) give_up_at: Option<Time>,
}

impl Sync {
    pub(super) const fn new(of: u64) -> Self {
        Self {
            phase: SyncPhase::Waiting,
            next: Flat(0),
            flying: 0,
            copied: 0,
            of,
            tries: 0,
            missed: Vec::new(),
            again: Vec::new(),
            pause_ns: PAUSE_FIRST_NS,
            resume_at: None,
            give_up_at: None,
        }
    }

    /// When blocks that couldn't be read are to be tried again.
    pub(crate) const fn timer(&self) -> Option<Time> {
        self.resume_at
    }

    /// Whether what was missed waits for another try, or has begun it.
    pub(super) fn tries_again(&mut self, now: Time) -> bool {
        if self.missed.is_empty() {
            return false;
        }
        let give_up_at = *self.give_up_at.get_or_insert(now.plus_ns(TRIED_FOR_NS));
        let at = *self.resume_at.get_or_insert(now.plus_ns(self.pause_ns));
        if at >= give_up_at {
            self.resume_at = None;
            return false;
        }
        if now >= at {
            self.again = core::mem::take(&mut self.missed);
            (self.tries, self.pause_ns, self.resume_at) = (0, self.pause_ns * 2, None);
        }
        true
    }

    /// The next of what was missed, if it is tried again.
    pub(super) fn next_missed(&mut self, now: Time) -> Option<(Flat, u32)> {
        if self.give_up_at.is_some_and(|at| now >= at) {
            self.missed.append(&mut self.again);
        }
        self.again.pop()
    }
}
