// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flushes of one origin: what they cover, who waits for which, and what a failed one means.
//!
//! At most one flush is in flight; those who ask meanwhile share the next one. What the origin got
//! outside the log is counted here. So a flush which covers nothing of that is waited for by
//! destage alone. A flush that failed may have dropped any write before its end, and the next one
//! may succeed all the same. So the next FLUSH of a client is told, once (ADR 0022).

use alloc::vec::Vec;

use crate::fact::io::DeviceError;
use crate::fact::types::Time;

/// A flush that takes longer than this is overdue. A disk's flush takes as long as all that waits
/// in its cache: seconds, after random writes.
const OVERDUE_NS: u64 = 10_000_000_000;

/// A waiter for an origin's flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushWaiter {
    /// A FLUSH request.
    Request(usize),
    /// A piece of a lane.
    Piece(usize, usize),
    /// A piece of a lane that has written over lost blocks, which may be dropped then.
    Replacing(usize, usize),
    /// A destage run of a lane.
    Run(usize, usize),
    /// A commit of promoted blocks of a lane, by its number: replay doesn't take it before.
    Promoted(usize, u64),
}

impl FlushWaiter {
    const fn is_promoted(&self) -> bool {
        matches!(self, Self::Promoted(..))
    }

    const fn is_request(&self) -> bool {
        matches!(self, Self::Request(_))
    }
}

/// What the origin got outside the log, by what a flush of it proves.
#[derive(Clone, Copy, Default)]
struct Unproven {
    /// Direct writes: clients wait for their flush.
    writes: bool,
    /// Failed writes whose data the log has: only promoted blocks wait for their flush.
    changes: bool,
}

impl Unproven {
    const fn any(self) -> bool {
        self.writes || self.changes
    }

    const fn add(&mut self, other: Self) {
        self.writes |= other.writes;
        self.changes |= other.changes;
    }
}

/// The flushes of one origin.
#[derive(Clone, Default)]
pub(crate) struct OriginFlush {
    /// Flushes issued, and the number of the last one that somebody wants.
    issued: u64,
    wanted: u64,
    in_flight: bool,
    /// When the last one was issued.
    began: Time,
    waiters: Vec<(u64, FlushWaiter)>,
    /// Came after the last flush was issued.
    later: Unproven,
    /// The flush in flight covers this.
    covered: Unproven,
    /// A flush failed that covered direct writes, and no client's FLUSH was told.
    doubtful: bool,
    failures: u32,
    /// The flush in flight is overdue: nothing of this origin is promoted until it ends.
    overdue: bool,
    /// A block was lost that no FLUSH has covered: the next FLUSH is told.
    lost: bool,
}

/// What the end of a flush means.
pub(crate) struct FlushEnded {
    /// Waited for this flush, and how that ends for each.
    pub(crate) over: Vec<(FlushWaiter, Result<(), DeviceError>)>,
    /// The flush failed, and the origin may have dropped what was read or written through before.
    pub(crate) drops: bool,
}

impl FlushEnded {
    /// How many destage runs waited.
    pub(crate) fn runs(&self) -> u32 {
        self.over.iter().filter(|(waiter, _)| matches!(waiter, FlushWaiter::Run(..))).count() as u32
    }
}

impl OriginFlush {
    /// An origin that an earlier daemon may have left unflushed, since it may have been killed.
    pub(crate) fn new(inherited: bool) -> Self {
        Self { later: Unproven { writes: inherited, changes: false }, ..Self::default() }
    }

    /// Asks for a flush of everything completed by now.
    const fn want(&mut self) {
        self.wanted = self.issued + 1;
    }

    /// Asks for a flush if direct writes have ended since the last one.
    pub(crate) const fn want_if_written(&mut self) {
        if self.later.writes {
            self.want();
        }
    }

    /// Asks for a flush if anybody waits for one.
    pub(crate) fn want_if_awaited(&mut self) {
        if self.waiters.iter().any(|it| it.0 > self.issued) {
            self.want();
        }
    }

    /// Whether a flush should be issued now.
    pub(crate) const fn due(&self) -> bool {
        self.wanted > self.issued && !self.in_flight
    }

    /// Whether one is in flight.
    pub(crate) const fn is_in_flight(&self) -> bool {
        self.in_flight
    }

    /// Whether none is in flight or wanted.
    pub(crate) const fn idle(&self) -> bool {
        self.wanted <= self.issued && !self.in_flight
    }

    /// Whether none is in flight or wanted, and nobody waits for one.
    pub(crate) const fn is_quiet(&self) -> bool {
        self.idle() && self.waiters.is_empty()
    }

    /// Waits for the next flush to be issued.
    pub(crate) fn join(&mut self, waiter: FlushWaiter) {
        self.want();
        self.waiters.push((self.wanted, waiter));
    }

    /// Waits until all direct writes completed so far are durable; `false` if they are already.
    /// Promoted blocks are in no hurry: they wait for a flush that somebody else wants.
    pub(crate) fn await_durable(&mut self, waiter: FlushWaiter) -> bool {
        let promoted = waiter.is_promoted();
        let told = self.doubtful && waiter.is_request();
        if promoted && self.later.any() {
            self.waiters.push((self.issued + 1, waiter));
        } else if self.later.writes || told {
            self.join(waiter);
        } else if self.in_flight && (self.covered.writes || (promoted && self.covered.changes)) {
            self.waiters.push((self.issued, waiter));
        } else {
            return false;
        }
        true
    }

    /// A direct write has ended, well or not: it may have changed something.
    pub(crate) const fn written(&mut self) {
        self.later.writes = true;
    }

    /// A direct write failed that the log now takes: it may have changed something.
    pub(crate) const fn changed(&mut self) {
        self.later.changes = true;
    }

    /// A flush is issued.
    pub(crate) fn begin(&mut self, now: Time) {
        self.issued += 1;
        (self.in_flight, self.began) = (true, now);
        self.covered = core::mem::take(&mut self.later);
    }

    /// The flush in flight is over.
    pub(crate) fn end(&mut self, result: Result<(), DeviceError>) -> FlushEnded {
        (self.in_flight, self.overdue) = (false, false);
        let done = self.issued;
        let (over, waiting) =
            core::mem::take(&mut self.waiters).into_iter().partition::<Vec<_>, _>(|it| it.0 <= done || result.is_err());
        self.waiters = waiting;
        if result.is_err() {
            self.later.add(self.covered);
            self.failures = self.failures.wrapping_add(1);
            self.doubtful |= self.later.writes;
        }
        let doubtful = self.doubtful;
        self.doubtful &= !over.iter().any(|(_, waiter)| waiter.is_request());
        let outcome =
            |waiter: &FlushWaiter| if doubtful && waiter.is_request() { Err(DeviceError::Io) } else { result };
        FlushEnded {
            over: over.into_iter().map(|(_, waiter)| (waiter, outcome(&waiter))).collect(),
            drops: result.is_err() && self.later.any(),
        }
    }

    /// When the flush in flight is overdue for the promoted blocks that wait for it, if any do.
    pub(crate) fn overdue_from(&self) -> Option<Time> {
        let waits = self.in_flight && !self.overdue && self.waiters.iter().any(|it| it.1.is_promoted());
        waits.then(|| self.began.plus_ns(OVERDUE_NS))
    }

    /// The flush in flight is overdue: takes out the promoted blocks that wait for it.
    pub(crate) fn give_up_proofs(&mut self) -> Vec<FlushWaiter> {
        self.overdue = true;
        let (promoted, others) =
            core::mem::take(&mut self.waiters).into_iter().partition::<Vec<_>, _>(|it| it.1.is_promoted());
        self.waiters = others;
        promoted.into_iter().map(|it| it.1).collect()
    }

    /// Whether the flush in flight is overdue.
    pub(crate) const fn is_overdue(&self) -> bool {
        self.overdue
    }

    /// Whether a flush failed that covered direct writes, and no client's FLUSH was told.
    pub(crate) const fn is_doubtful(&self) -> bool {
        self.doubtful
    }

    /// Flushes that failed: a write that began before the last failure may be gone.
    pub(crate) const fn failures(&self) -> u32 {
        self.failures
    }

    /// A block was lost that no FLUSH has covered, if `volatile`.
    pub(crate) const fn note_lost(&mut self, volatile: bool) {
        self.lost |= volatile;
    }

    /// Whether the FLUSH that asks must be told of a lost block; no later one is.
    pub(crate) const fn take_lost(&mut self) -> bool {
        core::mem::replace(&mut self.lost, false)
    }

    /// What a lane sees that works beside others: the state as it is, and no waiters.
    pub(crate) fn show(&mut self, all: &Self) {
        let waiters = core::mem::take(&mut self.waiters);
        debug_assert!(waiters.is_empty() && !self.lost, "a view is shown before it was taken over");
        *self = Self { waiters, lost: false, ..*all };
    }

    /// Takes over what a lane has asked for beside others.
    pub(crate) fn take_over(&mut self, view: &mut Self) {
        self.lost |= view.take_lost();
        self.wanted = self.wanted.max(view.wanted);
        self.waiters.append(&mut view.waiters);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes directly, flushes with this result; whether a client's FLUSH then is told of it.
    fn told(result: Result<(), DeviceError>) -> bool {
        let mut flush = OriginFlush::new(false);
        flush.written();
        flush.join(FlushWaiter::Run(0, 0));
        flush.begin(Time(0));
        flush.end(result);
        if !flush.await_durable(FlushWaiter::Request(1)) {
            return false;
        }
        flush.begin(Time(1));
        let ended = flush.end(Ok(()));
        assert_eq!(ended.over.len(), 1);
        assert!(!flush.await_durable(FlushWaiter::Request(2)), "told once");
        ended.over[0].1.is_err()
    }

    #[test]
    fn a_flush_that_failed_for_destage_is_told_to_the_next_client_once() {
        assert!(!told(Ok(())));
        assert!(told(Err(DeviceError::Io)));
    }

    #[test]
    fn promoted_blocks_wait_for_a_flush_that_others_want() {
        let mut flush = OriginFlush::new(false);
        flush.changed();
        assert!(!flush.await_durable(FlushWaiter::Request(1)), "no client waits for what the log has");
        assert!(flush.await_durable(FlushWaiter::Promoted(0, 1)));
        assert!(!flush.due(), "it is in no hurry");
        flush.want_if_awaited();
        assert!(flush.due());
    }
}
