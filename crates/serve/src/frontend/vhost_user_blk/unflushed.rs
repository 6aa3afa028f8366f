// SPDX-License-Identifier: MIT OR Apache-2.0
//! The debt of a daemon to a guest: writes that were acknowledged and are not durable yet.
//!
//! The debt is kept in the memory that the guest gives to the next daemon (`inflight`). A FLUSH
//! pays what was owed when it was asked for. A debt that another daemon took with it can't be paid.
//! FLUSH fails from then on, until the guest's disk is reset, which comes with new memory.

use super::inflight::Inflight;

/// A client's debt.
#[derive(Debug)]
pub(super) struct Unflushed {
    /// This daemon.
    daemon: u64,
    /// A write is durable when it is acknowledged, always.
    pub(super) durable: bool,
    /// Writes acknowledged so far, and how many of them are known to be durable.
    writes: u64,
    flushed: u64,
    lost: bool,
}

impl Unflushed {
    pub(super) fn new(daemon: u64, durable: bool) -> Self {
        Self { daemon, durable, writes: 0, flushed: 0, lost: false }
    }

    /// Takes over what the last connection left, or notes in new memory what is owed; true if some
    /// of it is lost.
    pub(super) fn take_over(&mut self, inflight: &Inflight) -> bool {
        let debtor = inflight.debtor();
        self.lost = debtor.is_some_and(|debtor| debtor != self.daemon);
        // Ours: the connection is another, the RAM is the same.
        self.writes += u64::from(debtor == Some(self.daemon));
        // A disk that was reset comes with new memory, and what it has written before is in RAM as
        // it was.
        if self.is_owed() && !self.lost {
            inflight.owe(self.daemon, true);
        }
        self.lost
    }

    /// Whether the next program must take something that was acknowledged for gone.
    pub(super) fn is_left(&self) -> bool {
        self.lost || self.is_owed()
    }

    /// Something that was acknowledged is gone.
    pub(super) const fn lose(&mut self) {
        self.lost = true;
    }

    /// Whether something that was acknowledged is gone.
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// A write is about to be acknowledged that is not durable.
    pub(super) fn acknowledge(&mut self, inflight: Option<&Inflight>) {
        if self.durable {
            return;
        }
        // The first since a flush; a memory store for each would do no harm either.
        if self.writes == self.flushed
            && !self.lost
            && let Some(inflight) = inflight
        {
            inflight.owe(self.daemon, true);
        }
        self.writes += 1;
    }

    /// The number of writes that a flush pays if it is asked for now.
    pub(super) fn writes(&self) -> u64 {
        self.writes
    }

    /// Notes that a flush is done that was asked for after this many writes.
    pub(super) fn pay(&mut self, writes: u64, inflight: Option<&Inflight>) {
        self.flushed = self.flushed.max(writes);
        if self.flushed == self.writes
            && !self.lost
            && let Some(inflight) = inflight
        {
            inflight.owe(self.daemon, false);
        }
    }

    /// Whether a flush would change something.
    pub(super) fn is_owed(&self) -> bool {
        self.writes != self.flushed
    }
}
