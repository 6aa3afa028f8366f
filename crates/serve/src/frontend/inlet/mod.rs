// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests that come whole from the kernel, each with a way to answer it.
//!
//! The [`Table`] holds a request against the volume, and cuts it into parts as the NBD front-end
//! does. It fetches the payload, and answers when the engine has. Some protocols come with threads
//! of their own (FUSE). Those hand over requests by a `Feed`, and the `Inlet` is the pump's end of
//! it, with a table.
//!
//! Bounds: a `Feed` waits while `FEED_MAX` requests are in the channel, and its threads take no
//! more from the kernel then. A table holds [`REQUESTS_MAX`] requests and [`BYTES_MAX`] of buffers.
//! Every request is answered exactly once, also when the daemon ends under it (test:
//! `whoever_asks_is_answered`).

use flashfront_engine::{OriginId, RequestError, RequestOp, Time};

use super::Core;

#[cfg(feature = "fuse")]
mod feed;
mod parts;
#[cfg(feature = "fuse")]
mod pump_end;
mod table;
#[cfg(feature = "fuse")]
#[cfg(test)]
mod tests;

#[cfg(feature = "fuse")]
pub(super) use feed::Feed;
#[cfg(feature = "fuse")]
pub(super) use pump_end::Inlet;
pub(super) use table::Table;

/// Requests between the threads and the pump. Each may have 1 MiB of payload, which comes on top of
/// `buffer_bytes`.
#[cfg(feature = "fuse")]
const FEED_MAX: usize = 16;
/// Requests that are held: some hundred of them may wait for an origin while others pass.
const REQUESTS_MAX: usize = 1024;
/// Bytes of buffers that are held, as many as by an NBD connection.
const BYTES_MAX: u64 = 64 << 20;

/// A client's request, in bytes of its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Want {
    /// The volume's origin.
    pub(super) origin: OriginId,
    pub(super) op: RequestOp,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) fua: bool,
    /// A discard after which the range reads as zeroes.
    ///
    /// It is only for volumes whose origin does that with whole blocks. The ends that are no whole
    /// blocks are written.
    pub(super) zeroed: bool,
}

/// A request, and the way to answer it.
pub(super) trait Ask {
    /// Returns the request, which never changes.
    fn want(&self) -> Want;

    /// When the daemon had it.
    fn since(&self, core: &dyn Core) -> Time {
        core.now()
    }

    /// Copies payload of a write, from byte `at` of it on.
    ///
    /// # Errors
    /// It can't be had; then the request is answered with that.
    fn fill(&mut self, at: usize, into: &mut [u8]) -> Result<(), RequestError>;

    /// The payload was fetched, and is not asked for again.
    fn taken(&mut self) {}

    /// Tells that the request is done; a read gets its bytes in one or two parts.
    ///
    /// The pump's thread calls it, and must not be kept waiting. A request that is dropped
    /// unanswered must answer itself: the daemon has ended.
    fn answer(self, result: Result<&[&[u8]], RequestError>);
}
