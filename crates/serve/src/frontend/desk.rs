// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a front-end may use of the thread that it runs in, while it is being called.

use flashfront_device::Arena;
use flashfront_engine::{Buf, Memory, Request};

use super::{Core, Export};

/// The parts of a pump or a carrier that its front-ends use; `submit` takes their requests.
pub(crate) struct Desk<'a, S> {
    pub(crate) arena: &'a mut Arena,
    pub(crate) exports: &'a [Export],
    /// Buffers were freed.
    pub(crate) freed: &'a mut bool,
    pub(crate) shortage: &'a mut Shortage,
    pub(crate) submit: S,
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

    fn submit(&mut self, request: Request) {
        (self.submit)(request);
    }
}
