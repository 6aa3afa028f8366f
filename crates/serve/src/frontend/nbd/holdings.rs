// SPDX-License-Identifier: MIT OR Apache-2.0
//! The buffers that one connection holds: how many bytes, and whether it may have more.

use flashfront_device::Share;
use flashfront_engine::{Buf, OriginId};

use super::wait::Wait;
use crate::frontend::Core;

/// Bytes of writes that a connection may have at the engine and get back.
const UNSURE_BYTES_MAX: u64 = 256 << 10;

/// The buffers of a connection, as bytes.
#[derive(Debug)]
pub(super) struct Holdings {
    /// The most that it may hold.
    most_bytes: u64,
    /// The origin that requests are for, once an export is chosen.
    origin: Option<OriginId>,
    held_bytes: u64,
    /// Bytes of writes at the engine that may be refused: their payload comes back then.
    unsure_bytes: u64,
}

impl Holdings {
    pub(super) fn new(most_bytes: u64) -> Self {
        Self { most_bytes, origin: None, held_bytes: 0, unsure_bytes: 0 }
    }

    /// Notes that buffers are for requests to this origin from now on.
    pub(super) fn open(&mut self, origin: OriginId) {
        self.origin = Some(origin);
    }

    pub(super) fn origin(&self) -> Option<OriginId> {
        self.origin
    }

    /// Whether `bytes` of buffers must wait. A connection that holds nothing may always have what
    /// its first request needs. `may_alloc`: no other client has waited longer for buffers.
    pub(super) fn must_wait(&self, bytes: u64, may_alloc: bool) -> Option<Wait> {
        if self.held_bytes > 0 && self.held_bytes + bytes > self.most_bytes {
            Some(Wait::Own)
        } else if !may_alloc {
            Some(Wait::Room)
        } else {
            None
        }
    }

    /// The share that a further buffer must be of. Beyond half of what a connection may hold, that
    /// is the share of requests that end by themselves. So these go on, however many of the
    /// connection's other requests wait.
    pub(super) fn share_for(&self, bytes: u64) -> Option<Share> {
        let much = self.held_bytes > 0 && self.held_bytes + bytes > self.most_bytes / 2;
        much.then_some(Share::Passing)
    }

    /// A buffer of one share, or of any that may be had.
    pub(super) fn alloc(&mut self, share: Option<Share>, bytes: u32, core: &mut dyn Core) -> Option<Buf> {
        let origin = self.origin?;
        let buf = match share {
            Some(share) => core.alloc_of(share, bytes, origin),
            None => core.alloc(bytes, origin),
        }?;
        self.held_bytes += u64::from(bytes);
        Some(buf)
    }

    /// Frees a buffer of `bytes`.
    pub(super) fn free(&mut self, buf: Buf, bytes: u32, core: &mut dyn Core) {
        self.held_bytes -= u64::from(bytes);
        core.free(buf);
    }

    /// Frees a buffer that was of no use, because others with it were not to be had.
    pub(super) fn put_back(&mut self, buf: Buf, bytes: u32, core: &mut dyn Core) {
        self.held_bytes -= u64::from(bytes);
        core.put_back(buf);
    }

    /// Notes that a write with this buffer goes to the engine. It may be refused.
    pub(super) fn begin_write(&mut self, buf: Option<Buf>, bytes: u32, core: &dyn Core) {
        if buf.is_some_and(|buf| !core.may_wait(buf)) {
            self.unsure_bytes += u64::from(bytes);
        }
    }

    /// Notes that the engine has done with the buffer of a write.
    pub(super) fn end_write(&mut self, buf: Buf, bytes: u32, core: &dyn Core) {
        if !core.may_wait(buf) {
            self.unsure_bytes -= u64::from(bytes);
        }
    }

    /// Whether as many bytes of writes may come back as are allowed.
    pub(super) fn is_unsure(&self) -> bool {
        self.unsure_bytes >= UNSURE_BYTES_MAX
    }
}
