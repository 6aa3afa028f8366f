// SPDX-License-Identifier: MIT OR Apache-2.0
//! The desk: things of its thread that a front-end may use while it is being called.

use std::time::Instant;

use flashfront_device::{Arena, Share};
use flashfront_engine::{Buf, Memory, OriginId, Request, Time};

use super::waiting::Waiting;
use super::{Core, Export};
use crate::latency::{Kind, Latencies};

/// The parts of a pump or a carrier that its front-ends use; `submit` takes their requests, and
/// whether each may wait for an origin.
pub(crate) struct Desk<'a, S> {
    pub(crate) arena: &'a mut Arena,
    pub(crate) exports: &'a [Export],
    /// Buffers were freed.
    pub(crate) freed: &'a mut bool,
    pub(crate) shortage: &'a mut Shortage,
    pub(crate) clock: Clock,
    pub(crate) now: Time,
    /// How long requests took; none in a carrier, which measures nothing.
    pub(crate) latencies: Option<&'a Latencies>,
    pub(crate) submit: S,
}

/// The clock of all threads of a daemon: nanoseconds since the pump was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> Time {
        self.time_of(Instant::now())
    }

    /// A clock that is ahead of this one.
    #[cfg(test)]
    pub(crate) fn earlier(self, by: std::time::Duration) -> Self {
        Self(self.0 - by)
    }

    pub(crate) fn time_of(self, moment: Instant) -> Time {
        Time(u64::try_from(moment.saturating_duration_since(self.0).as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Whether front-ends find no buffers. Clients that wait try again at the end of every turn, so
/// that it is known anew after each.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// A client was refused since the end of the last turn began.
    refused: bool,
    /// A client was refused before that.
    was: bool,
    waiting: Waiting,
}

impl Shortage {
    /// The end of a turn begins.
    pub(crate) fn turn_end(&mut self) {
        self.was = std::mem::take(&mut self.refused);
        self.waiting.turn_end();
    }

    /// Whether there is a shortage that front-ends have not seen yet.
    pub(crate) fn is_news(&self) -> bool {
        self.refused && !self.was
    }
}

impl<S> Desk<'_, S> {
    fn try_waiting(&mut self, bytes: u32, origin: OriginId) -> Option<Buf> {
        let (most, others) = (self.arena.share_bytes(Share::Waiting), (self.exports.len() as u64).saturating_sub(1));
        if others > 0 && !self.shortage.waiting.is_left(origin, bytes, most, others) {
            return None;
        }
        let buf = self.arena.try_alloc_of(Share::Waiting, bytes)?;
        if others > 0 {
            self.shortage.waiting.took(buf, bytes, origin);
        }
        Some(buf)
    }

    fn give_back(&mut self, buf: Buf) {
        self.shortage.waiting.gave_back(buf);
        self.arena.free(buf);
    }
}

impl<S: FnMut(Request, bool)> Core for Desk<'_, S> {
    fn exports(&self) -> &[Export] {
        self.exports
    }

    fn memory(&mut self) -> &mut dyn Memory {
        self.arena
    }

    fn alloc(&mut self, bytes: u32, origin: OriginId) -> Option<Buf> {
        // No request overtakes one that is known to wait.
        let first = if self.shortage.waiting.is_wanted(origin) { None } else { self.try_waiting(bytes, origin) };
        let buf = first.or_else(|| self.arena.try_alloc_of(Share::Passing, bytes));
        self.shortage.refused |= buf.is_none();
        buf
    }

    fn alloc_of(&mut self, share: Share, bytes: u32, origin: OriginId) -> Option<Buf> {
        let buf = match share {
            Share::Waiting => self.try_waiting(bytes, origin),
            Share::Passing | Share::Payload => self.arena.try_alloc_of(share, bytes),
        };
        if buf.is_none() && share == Share::Waiting {
            self.shortage.refused = true;
            self.shortage.waiting.refuse(origin);
        }
        buf
    }

    fn may_wait(&self, buf: Buf) -> bool {
        self.arena.may_wait(buf)
    }

    fn passing_bytes(&self) -> u64 {
        self.arena.share_bytes(Share::Passing)
    }

    fn free(&mut self, buf: Buf) {
        *self.freed = true;
        self.give_back(buf);
    }

    fn put_back(&mut self, buf: Buf) {
        self.give_back(buf);
    }

    fn is_short(&self) -> bool {
        self.shortage.was
    }

    fn now(&self) -> Time {
        self.now
    }

    fn time_of(&self, moment: Instant) -> Time {
        self.clock.time_of(moment)
    }

    fn missed(&self, origin: OriginId) -> u64 {
        self.latencies.map_or(0, |it| it.count(origin, Kind::Miss))
    }

    fn submit(&mut self, request: Request) {
        let may_wait = request.buf.is_none_or(|buf| self.arena.may_wait(buf));
        (self.submit)(request, may_wait);
    }

    fn submit_carried(&mut self, request: Request, may_wait: bool) {
        (self.submit)(request, may_wait);
    }
}
