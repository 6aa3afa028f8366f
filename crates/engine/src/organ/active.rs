// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests in flight, and the ranges that they are cut from.

use alloc::boxed::Box;

use crate::fact::io::{AnswerKind, Request, RequestError, RequestId};
use crate::fact::memory::Buf;
use crate::fact::types::Time;
use crate::organ::piece::{Instead, Warm};
use crate::organ::zeroes::Used;

/// A request in flight.
pub(crate) struct Active {
    pub(crate) id: RequestId,
    pub(crate) origin: usize,
    /// Parts not done.
    pending: u32,
    error: Option<RequestError>,
    pub(crate) kind: AnswerKind,
    pub(crate) bytes: u32,
    /// The request is answered when it is durable.
    pub(crate) fua: bool,
    pub(crate) since: Time,
    /// Flushes that the origin had failed when the first part was written there, if one was without
    /// being flushed.
    failed_flushes: Option<u32>,
    /// Buffers of our own: zeroes to write.
    pub(crate) zeroes: Option<Box<Used>>,
}

impl Active {
    /// A request with one part: so it can't end before all its parts are begun.
    pub(crate) const fn new(request: &Request, origin: usize, kind: AnswerKind) -> Self {
        Self {
            id: request.id,
            origin,
            pending: 1,
            error: None,
            kind,
            bytes: request.op.payload_bytes(request.sectors),
            fua: request.fua,
            since: request.since,
            failed_flushes: None,
            zeroes: None,
        }
    }

    /// The request has one part more.
    pub(crate) const fn hold(&mut self) {
        self.pending += 1;
    }

    /// A part is done. Returns whether it was the last one.
    pub(crate) fn release(&mut self, error: Option<RequestError>) -> bool {
        self.error = self.error.or(error);
        self.pending -= 1;
        self.pending == 0
    }

    /// A part is on the origin, which had failed so many flushes when that part was written.
    pub(crate) fn note_on_origin(&mut self, failed_flushes: u32) {
        self.failed_flushes.get_or_insert(failed_flushes);
    }

    /// How the request ends, whose origin has failed so many flushes. One that failed since may
    /// have dropped what was written by then, and whose flush that was may have been told (ADR
    /// 0022).
    pub(crate) fn result(&self, failed_flushes: u32) -> Result<(), RequestError> {
        let doubtful = self.failed_flushes.is_some_and(|of| of != failed_flushes);
        self.error.or(doubtful.then_some(RequestError::Io)).map_or(Ok(()), Err)
    }
}

/// A range of sectors of one origin, to be cut into pieces.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    pub(crate) origin: usize,
    pub(crate) lba: u64,
    pub(crate) sectors: u64,
    pub(crate) buf: Option<Buf>,
    /// Bytes of its first and of its last sector that are not part of it.
    pub(crate) cut: (u16, u16),
    /// Whether a direct write may go into the log instead.
    pub(crate) instead: Instead,
    /// What is missing of it is brought into the cache, for nobody.
    pub(crate) warm: Option<Warm>,
}
