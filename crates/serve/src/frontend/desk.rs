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
    pub(crate) submit: S,
}

impl<S: FnMut(Request)> Core for Desk<'_, S> {
    fn exports(&self) -> &[Export] {
        self.exports
    }

    fn memory(&mut self) -> &mut dyn Memory {
        self.arena
    }

    fn alloc(&mut self, bytes: u32) -> Option<Buf> {
        self.arena.try_alloc(bytes)
    }

    fn free(&mut self, buf: Buf) {
        *self.freed = true;
        self.arena.free(buf);
    }

    fn put_back(&mut self, buf: Buf) {
        self.arena.free(buf);
    }

    fn submit(&mut self, request: Request) {
        (self.submit)(request);
    }
}
