// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a front-end may use of the thread that it runs in, while it is being called.

use std::time::Instant;

use flashfront_device::Arena;
use flashfront_engine::{Buf, Memory, Request, Time};

use super::{Core, Export};

/// The parts of a pump or a carrier that its front-ends use; `submit` takes their requests.
pub(crate) struct Desk<'a, S> {
    pub(crate) arena: &'a mut Arena,
    pub(crate) exports: &'a [Export],
    /// Buffers were freed.
    pub(crate) freed: &'a mut bool,
    pub(crate) shortage: &'a mut Shortage,
    pub(crate) clock: Clock,
    pub(crate) now: Time,
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

/// Whether front-ends find no buffers. Those who wait try again at the end of every turn, so that it is known anew after each.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// Somebody was refused since the end of the last turn began.
    refused: bool,
    /// And before.
    was: bool,
}

impl Shortage {
    /// The end of a turn begins.
    pub(crate) fn turn_end(&mut self) {
        self.was = std::mem::take(&mut self.refused);
    }

    /// Whether there is one that front-ends have not seen yet.
    pub(crate) fn is_news(&self) -> bool {
        self.refused && !self.was
    }
}

impl<S: FnMut(Request)> Core for Desk<'_, S> {
    fn exports(&self) -> &[Export] {
        self.exports
    }

    fn memory(&mut self) -> &mut dyn Memory {
        self.arena
    }

    fn alloc(&mut self, bytes: u32) -> Option<Buf> {
        let buf = self.arena.try_alloc(bytes);
        self.shortage.refused |= buf.is_none();
        buf
    }

    fn free(&mut self, buf: Buf) {
        *self.freed = true;
        self.arena.free(buf);
    }

    fn put_back(&mut self, buf: Buf) {
        self.arena.free(buf);
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

    fn submit(&mut self, request: Request) {
        (self.submit)(request);
    }
}
