// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts what a server has acknowledged, and what its flushes have covered. So a lost connection
//! fails one flush and no more (ADR 0046; test:
//! `what_was_unflushed_when_the_export_was_opened_fails_one_flush_too`).
//!
//! Shared by the thread of a network volume and by the link that tests simulate: what torture
//! proves is the rule that users have.

/// The account of a server's flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unflushed {
    /// Changes that were acknowledged.
    acked: u64,
    /// The first of them that a flush has covered, this many.
    flushed: u64,
    /// Changes up to this one may be gone: a flush that covers them must fail.
    lost: Option<u64>,
}

impl Unflushed {
    /// A server whose export is just opened. What a daemon before wrote may still be unflushed
    /// there, and may have been read since: that counts as one change.
    pub(crate) const fn new() -> Self {
        Self { acked: 1, flushed: 0, lost: None }
    }

    /// A change was acknowledged, durably or not.
    pub(crate) const fn changed(&mut self, durable: bool) {
        self.acked += 1;
        if durable {
            self.flushed = self.acked;
        }
    }

    /// The changes that a flush covers which begins now.
    pub(crate) const fn covers(&self) -> u64 {
        self.acked
    }

    /// A flush ended well that had this from [`Unflushed::covers`].
    pub(crate) const fn flushed(&mut self, covers: u64) {
        if covers > self.flushed {
            self.flushed = covers;
        }
    }

    /// Whether a flush that is to begin now must fail. All others that were asked for by now must
    /// fail with it, and nobody else.
    pub(crate) const fn must_fail(&mut self) -> bool {
        self.lost.take().is_some()
    }

    /// The connection is lost. Returns whether anything may be gone that no flush had covered. Then
    /// each flush in flight fails, and is told of by [`Unflushed::failed`].
    pub(crate) const fn lose(&mut self) -> bool {
        let unflushed = self.acked > self.flushed;
        if unflushed {
            self.lost = Some(self.acked);
        }
        self.flushed = self.acked;
        unflushed
    }

    /// A flush in flight was failed for a lost connection. If it covers all that may be gone, that
    /// is told, and nobody else need fail.
    pub(crate) const fn failed(&mut self, covers: u64) {
        if covers >= self.acked {
            self.lost = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened() -> Unflushed {
        let mut it = Unflushed::new();
        it.flushed(it.covers());
        it
    }

    #[test]
    fn a_lost_connection_fails_one_flush_if_something_was_unflushed() {
        let mut it = opened();
        assert!(!it.lose() && !it.must_fail());
        it.changed(false);
        assert!(it.lose() && it.must_fail());
        assert!(!it.must_fail(), "it was told");
        it.changed(true);
        assert!(!it.lose(), "it was durable");
    }

    #[test]
    fn what_was_there_before_the_first_flush_counts() {
        let mut it = Unflushed::new();
        assert!(it.lose() && it.must_fail());
    }

    #[test]
    fn a_flush_in_flight_tells_only_of_what_it_covers() {
        let mut it = opened();
        it.changed(false);
        let covers = it.covers();
        it.changed(false);
        assert!(it.lose());
        it.failed(covers);
        assert!(it.must_fail(), "the second change is not told");
        it.changed(false);
        let covers = it.covers();
        assert!(it.lose());
        it.failed(covers);
        assert!(!it.must_fail());
    }

    #[test]
    fn a_flush_that_ends_well_covers_what_came_before_it_began() {
        let mut it = opened();
        it.changed(false);
        let covers = it.covers();
        it.changed(false);
        it.flushed(covers);
        assert!(it.lose());
    }
}
