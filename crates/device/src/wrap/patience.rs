// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives up I/O that a device does not end in time.
//!
//! An I/O that was given up fails with [`DeviceError::TimedOut`], but the kernel still has it. A
//! read may fill its memory later, and a write may land on the device later. So from the first one
//! on the device *hangs*:
//! - The buffers of I/Os that were given up are in quarantine ([`Arena::quarantine`]) until these
//!   have really ended. Other I/Os may read into the same buffers, of this device and of others.
//!   Their bytes get there all the same (test: `what_others_read_into_the_buffer_gets_there`).
//! - Nothing new is passed on; it fails at once. Only when all I/Os that were given up have ended
//!   does the device live again. So no write ever lands on top of a newer one (test:
//!   `a_late_write_never_lands_on_a_newer_one`). An I/O that was reported as failed counts as
//!   failed, however it ended.
//!
//! The device gets no more I/Os at a time than it has places. The time of an I/O runs from when the
//! device got it: a wait for a place is not the device's fault. Time without a look does not count
//! either: a daemon that was itself stopped for an hour accuses no device.

use std::collections::VecDeque;

use flashfront_engine::{DeviceError, Op, Time, Token};

use crate::{Arena, Device, DeviceIo, Done, Geometry, Hang};

/// The time until the error of an I/O that is refused, which is as long as an SSD takes. So a
/// caller that tries again at once does not keep a processor busy.
const REFUSAL_NS: u64 = 100_000;
/// A look that comes this much later than it was due was not held up by the device. Then the time
/// of all I/O in flight begins anew.
const LATE_LOOK_NS: u64 = 1_000_000_000;
/// Bytes for which a discard or zeroes get a second more: a third of what a disk writes in that
/// time. They have no bound, and a device may write zeroes.
const RANGE_BYTES_PER_SECOND: u64 = 32 << 20;
const SECOND_NS: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
struct Flying {
    /// The I/O as the caller gave it.
    io: DeviceIo,
    /// The memory of the buffer that it fills ([`Arena::memory_of`]).
    memory: Option<u32>,
    began: Time,
    /// `None`: whenever it likes.
    deadline: Option<Time>,
    given_up: bool,
}

/// A device that has only this time to answer.
#[derive(Clone, Debug)]
pub struct Patience<D> {
    inner: D,
    /// `None`: for ever.
    limit_ns: Option<u64>,
    /// I/Os that the device may have at a time.
    places: usize,
    /// The I/Os of the device, by the number that it knows them by.
    flying: Vec<Option<Flying>>,
    free: Vec<usize>,
    /// I/Os that wait for a place.
    waiting: VecDeque<DeviceIo>,
    /// I/Os that are refused, and when that is told.
    refused: VecDeque<(Time, Token)>,
    given_up: usize,
    /// When to look for overdue I/O: no later than the first deadline.
    look_at: Option<Time>,
    fetched: Vec<Done>,
}

impl<D> Patience<D> {
    /// A device that gets `places` I/Os at a time, and `limit_ns` for each; `None`: all the time in
    /// the world.
    ///
    /// # Panics
    /// If there is no place at all.
    #[must_use]
    pub fn new(inner: D, limit_ns: Option<u64>, places: usize) -> Self {
        assert!(places > 0, "bug: a device that may have no I/O");
        Self {
            inner,
            limit_ns,
            places,
            flying: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            refused: VecDeque::new(),
            given_up: 0,
            look_at: None,
            fetched: Vec::new(),
        }
    }

    /// The device behind.
    pub fn device(&self) -> &D {
        &self.inner
    }

    /// The device behind, to change.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    /// Makes as much patience with another device, which has nothing in flight.
    #[must_use]
    pub fn with(&self, inner: D) -> Self {
        Self::new(inner, self.limit_ns, self.places)
    }

    const fn hangs(&self) -> bool {
        self.given_up > 0
    }

    fn has_place(&self) -> bool {
        self.flying.len() - self.free.len() < self.places
    }

    fn limit_of(&self, io: &DeviceIo) -> Option<u64> {
        let more = match io.op {
            Op::Discard | Op::Zero | Op::Punch => io.len / RANGE_BYTES_PER_SECOND * SECOND_NS,
            Op::Read | Op::Write | Op::Flush | Op::Map => 0,
        };
        Some(self.limit_ns?.saturating_add(more))
    }

    fn refuse(&mut self, now: Time, token: Token) {
        self.refused.push_back((now.plus_ns(REFUSAL_NS), token));
    }
}

impl<D: Device> Patience<D> {
    fn pass(&mut self, now: Time, io: DeviceIo, arena: &mut Arena) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.flying.push(None);
            self.flying.len() - 1
        });
        let deadline = self.limit_of(&io).map(|limit| now.plus_ns(limit));
        self.look_at = self.look_at.into_iter().chain(deadline).min();
        let filled = io.span.filter(|_| matches!(io.op, Op::Read | Op::Map));
        let memory = filled.map(|span| arena.memory_of(span.buf()));
        self.flying[number] = Some(Flying { io, memory, began: now, deadline, given_up: false });
        self.inner.submit(now, DeviceIo { token: Token(number as u64), ..io }, arena);
    }

    fn ended(&mut self, Done { token, result }: Done, arena: &mut Arena, done: &mut Vec<Done>) {
        let number = token.0 as usize;
        let flying = self.flying[number].take().expect("a completion belongs to an I/O in flight");
        self.free.push(number);
        if !flying.given_up {
            if let (Some(span), Some(memory)) = (flying.io.span, flying.memory) {
                arena.carry_over(span, memory);
            }
            return done.push(Done { token: flying.io.token, result });
        }
        self.given_up -= 1;
        if let Some(span) = flying.io.span {
            arena.release(span.buf());
        }
    }

    /// Gives up what is overdue.
    fn look(&mut self, now: Time, due: Time, arena: &mut Arena, done: &mut Vec<Done>) {
        let unseen = now.since_ns(due) > LATE_LOOK_NS;
        let mut next = None;
        for flying in self.flying.iter_mut().flatten().filter(|it| !it.given_up) {
            let Some(deadline) = &mut flying.deadline else { continue };
            if unseen {
                *deadline = now.plus_ns(deadline.since_ns(flying.began));
                flying.began = now;
            }
            if *deadline > now {
                next = next.into_iter().chain([*deadline]).min();
                continue;
            }
            flying.given_up = true;
            self.given_up += 1;
            if let Some(span) = flying.io.span {
                arena.quarantine(span.buf());
            }
            done.push(Done { token: flying.io.token, result: Err(DeviceError::TimedOut) });
        }
        self.look_at = next;
        if self.hangs() {
            let refused = std::mem::take(&mut self.waiting);
            refused.iter().for_each(|io| self.refuse(now, io.token));
        }
    }
}

impl<D: Device> Device for Patience<D> {
    fn submit(&mut self, now: Time, io: DeviceIo, arena: &mut Arena) {
        self.geometry().check(&io);
        if self.hangs() {
            self.refuse(now, io.token);
        } else if self.has_place() && self.waiting.is_empty() {
            self.pass(now, io, arena);
        } else {
            self.waiting.push_back(io);
        }
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn poll(&mut self, now: Time, arena: &mut Arena, done: &mut Vec<Done>) {
        let mut fetched = std::mem::take(&mut self.fetched);
        self.inner.poll(now, arena, &mut fetched);
        for it in fetched.drain(..) {
            self.ended(it, arena, done);
        }
        self.fetched = fetched;
        if self.flying.len() == self.free.len() {
            self.look_at = None;
        }
        if let Some(due) = self.look_at.filter(|due| *due <= now) {
            self.look(now, due, arena, done);
        }
        while self.refused.front().is_some_and(|(due, _)| *due <= now)
            && let Some((_, token)) = self.refused.pop_front()
        {
            done.push(Done { token, result: Err(DeviceError::TimedOut) });
        }
        let mut passed = false;
        while self.has_place()
            && !self.hangs()
            && let Some(io) = self.waiting.pop_front()
        {
            self.pass(now, io, arena);
            passed = true;
        }
        if passed {
            self.inner.kick();
        }
    }

    fn next_event(&self) -> Option<Time> {
        let refused = self.refused.front().map(|(due, _)| *due);
        [self.inner.next_event(), self.look_at, refused].into_iter().flatten().min()
    }

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn hang(&self) -> Option<Hang> {
        let given_up = || self.flying.iter().flatten().filter(|it| it.given_up);
        let since = given_up().map(|it| it.began).min().filter(|_| self.hangs())?;
        let bytes = given_up().filter_map(|it| it.io.span).map(|span| u64::from(span.len)).sum();
        Some(Hang { since, ios: self.given_up as u64, bytes })
    }
}

#[cfg(test)]
mod tests;
