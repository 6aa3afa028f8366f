// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request as both ends know it, after its header is read or before it is written.

use crate::wire::{Replies, RequestHeader, command, command_flag};

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Ask {
    /// Read.
    Read {
        /// The answer is to be one chunk (DF). Structured or extended replies only.
        whole: bool,
    },
    /// Read into a cache, without an answer that has the data.
    Cache,
    /// Write the payload.
    Write,
    /// Make every acknowledged write durable.
    Flush,
    /// Discard: what is read afterwards may be anything.
    Trim,
    /// Write zeroes.
    Zeroes {
        /// The range may become a hole.
        may_discard: bool,
        /// Fail with ENOTSUP rather than be as slow as a write.
        fast: bool,
    },
    /// Tell which parts of the range are holes.
    Status {
        /// The first extent is enough.
        one: bool,
    },
}

impl Ask {
    /// A read with an answer of any number of chunks.
    pub const READ: Self = Self::Read { whole: false };
    /// Zeroes that may become a hole, and may take their time.
    pub const ZEROES: Self = Self::Zeroes { may_discard: true, fast: false };

    /// Whether the content of the export changes.
    #[must_use]
    pub const fn changes(self) -> bool {
        matches!(self, Self::Write | Self::Trim | Self::Zeroes { .. })
    }
}

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The client's name for it. No two requests have the same at the same time.
    pub cookie: u64,
    /// The operation.
    pub ask: Ask,
    /// The first byte on the export.
    pub offset: u64,
    /// The length of the range. A flush has none.
    pub len: u64,
    /// The answer comes when the change is durable.
    pub fua: bool,
}

impl Request {
    /// A request without FUA.
    #[must_use]
    pub const fn new(cookie: u64, ask: Ask, offset: u64, len: u64) -> Self {
        Self { cookie, ask, offset, len, fua: false }
    }

    /// The header on the wire. A write's payload of `len` bytes follows.
    #[must_use]
    pub fn header(&self, replies: Replies) -> RequestHeader {
        let flag = |on: bool, flag: u16| if on { flag } else { 0 };
        let (command, flags) = match self.ask {
            Ask::Read { whole } => (command::READ, flag(whole, command_flag::DF)),
            Ask::Cache => (command::CACHE, 0),
            Ask::Write => (command::WRITE, flag(replies == Replies::Extended, command_flag::PAYLOAD_LEN)),
            Ask::Flush => (command::FLUSH, 0),
            Ask::Trim => (command::TRIM, 0),
            Ask::Zeroes { may_discard, fast } => {
                (command::WRITE_ZEROES, flag(!may_discard, command_flag::NO_HOLE) | flag(fast, command_flag::FAST_ZERO))
            }
            Ask::Status { one } => (command::BLOCK_STATUS, flag(one, command_flag::REQ_ONE)),
        };
        let flags = flags | flag(self.fua, command_flag::FUA);
        RequestHeader { flags, command, cookie: self.cookie, offset: self.offset, len: self.len }
    }
}
