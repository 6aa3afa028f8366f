// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watches that the engine keeps its side of the contract, as far as a world can see it.
//!
//! Buffers are not changed while they are written, timers are not in the past, counters only grow,
//! and something happens before long. Volumes keep their smallest parts.

use std::collections::BTreeMap;

use flashfront_device::Arena;
use flashfront_engine::{Counters, Engine, Memory, Span, Time, Token};

mod parts;

use parts::Parts;

/// Steps without an answer or an event for the operator after which the engine is stuck.
const STEPS_MAX: u64 = 200_000;

/// The things that are watched.
#[derive(Default)]
pub(super) struct Contract {
    /// Checksums of the buffers that are being written.
    writing: BTreeMap<Token, (Span, u32)>,
    counters: Counters,
    parts: Parts,
    /// The engine was open at the last look.
    was_ready: bool,
    /// Steps since the last answer or event.
    steps: u64,
    /// When the engine's timer was last served.
    timer_served: Option<Time>,
}

impl Contract {
    /// The engine is a new one.
    pub(super) fn begin_opening(&mut self) {
        self.counters = Counters::default();
        self.parts.begin_opening();
        self.was_ready = false;
    }

    /// Looks at the engine after an input. `ready`: the engine has been open for an input or more.
    pub(super) fn look(&mut self, engine: &Engine, ready: bool) {
        self.count(*engine.counters());
        if ready {
            self.parts.look(engine, !self.was_ready);
        }
        self.was_ready = ready;
    }

    /// The counters after the last input.
    pub(super) const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Something has happened that somebody waited for.
    pub(super) const fn moved(&mut self) {
        self.steps = 0;
    }

    /// Counts a step. Returns whether the engine is stuck.
    pub(super) const fn is_stuck(&mut self) -> bool {
        self.steps += 1;
        self.steps >= STEPS_MAX
    }

    /// Serves the engine's timer, which must have moved on since.
    ///
    /// # Panics
    /// If it has not.
    pub(super) fn serve_timer(&mut self, now: Time) {
        assert_ne!(self.timer_served, Some(now), "the engine's timer stays in the past");
        self.timer_served = Some(now);
    }

    /// A buffer is being written from now on.
    pub(super) fn begin_write(&mut self, token: Token, span: Span, arena: &Arena) {
        self.writing.insert(token, (span, arena.checksum(span)));
    }

    /// An I/O has ended.
    ///
    /// # Panics
    /// If the buffer that it wrote was changed meanwhile.
    pub(super) fn end_io(&mut self, token: Token, arena: &Arena) {
        if let Some((span, sum)) = self.writing.remove(&token) {
            assert_eq!(arena.checksum(span), sum, "{token:?}: a buffer was changed while it was written");
        }
    }

    /// Compares the counters with those before (invariant 9).
    ///
    /// # Panics
    /// If one fell.
    fn count(&mut self, new: Counters) {
        let fallen = new.fallen_since(&self.counters);
        assert!(fallen.is_none(), "a counter fell: {fallen:?}, {:?} {new:?}", self.counters);
        self.counters = new;
    }
}
