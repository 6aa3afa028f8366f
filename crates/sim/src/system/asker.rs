// SPDX-License-Identifier: MIT OR Apache-2.0
//! An asker is a client of a system. It asks for one thing after the other, a number of them at
//! once, as fast as they are answered.

use flashfront_engine::Time;

use super::asked::{Ask, System, SystemRequest};

/// A client in a closed loop.
pub struct Asker<S> {
    /// The system that is asked.
    pub system: S,
    /// The time it is for it.
    pub now: Time,
    /// Requests in flight, at least one.
    pub in_flight_max: usize,
    in_flight: usize,
    asked: u64,
    answered: Vec<u64>,
}

impl<S: System> Asker<S> {
    /// An asker that has so many requests in flight.
    pub const fn new(system: S, in_flight_max: usize) -> Self {
        Self { system, now: Time(0), in_flight_max, in_flight: 0, asked: 0, answered: Vec::new() }
    }

    /// Asks, and waits until another request may be sent.
    ///
    /// # Panics
    /// If nothing is ever answered.
    pub fn ask(&mut self, ask: Ask, offset: u64, len: u64) {
        self.asked += 1;
        self.system.submit(self.now, SystemRequest { number: self.asked, ask, offset, len });
        self.in_flight += 1;
        while self.in_flight >= self.in_flight_max.max(1) {
            self.now = self.system.next_event().expect("somebody waits for an answer");
            self.system.advance(self.now, &mut self.answered);
            self.in_flight -= self.answered.len();
            self.answered.clear();
        }
    }
}
