// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests in flight, and the ranges that they are cut from.

use alloc::boxed::Box;

use crate::fact::io::{AnswerKind, RequestError, RequestId};
use crate::fact::memory::Buf;
use crate::fact::types::Time;
use crate::organ::zeroes::Used;

/// A request in flight.
pub(crate) struct Active {
    pub(crate) id: RequestId,
    pub(crate) origin: usize,
    /// Parts not done.
    pub(crate) pending: u32,
    pub(crate) error: Option<RequestError>,
    pub(crate) kind: AnswerKind,
    pub(crate) bytes: u32,
    pub(crate) since: Time,
    /// Flushes that the origin had failed when the first part was written there, if one was without
    /// being flushed.
    pub(crate) failed_flushes: Option<u32>,
    /// Buffers of our own: zeroes to write.
    pub(crate) zeroes: Option<Box<Used>>,
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
    /// The range goes past the cache only because the log takes no more.
    pub(crate) congested: bool,
}
