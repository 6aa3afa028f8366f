// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a server's bytes mean to a client.

use super::outstanding::Failure;
use crate::wire::state;

/// What a server's bytes mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing yet: more bytes are needed.
    Need,
    /// This many bytes are done with, and there may be something to send.
    Took(usize),
    /// This many bytes are done with. Begin TLS, and call
    /// [`Client::enter_tls`](super::Client::enter_tls).
    StartTls(usize),
    /// This many bytes are done with, and the handshake is over: requests may be sent.
    Opened(usize),
    /// This many bytes are done with. The data of a part of a read follows.
    Data {
        /// The bytes that are done with.
        took: usize,
        /// The request.
        cookie: u64,
        /// The first byte of the part on the export.
        at: u64,
        /// The length of the part.
        len: u32,
    },
    /// This many bytes of the last part's data are next. They are the caller's: take some of them,
    /// and call [`Client::payload_taken`](super::Client::payload_taken).
    Payload(u64),
    /// This many bytes are done with. A part of a read is zeroes.
    Hole {
        /// The bytes that are done with.
        took: usize,
        /// The request.
        cookie: u64,
        /// The first byte of the part on the export.
        at: u64,
        /// The length of the part.
        len: u32,
    },
    /// This many bytes are done with. Some extents of a range have come; more may follow.
    Extents {
        /// The bytes that are done with.
        took: usize,
        /// The request.
        cookie: u64,
        /// The number of the context in [`Client::contexts`](super::Client::contexts).
        context: usize,
        /// The extents, each behind the one before it. The last one may end behind the range.
        extents: Vec<Extent>,
    },
    /// This many bytes are done with, and a request is answered.
    Answer {
        /// The bytes that are done with.
        took: usize,
        /// The request.
        cookie: u64,
        /// How it went.
        result: Result<(), Failure>,
    },
}

/// What a context says of a part of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The length of the part.
    pub bytes: u64,
    /// The context's flags: of `base:allocation` those in [`state`].
    pub flags: u64,
}

impl Extent {
    /// Whether `base:allocation` says that the part reads as zeroes.
    #[must_use]
    pub const fn is_zero(&self) -> bool {
        self.flags & state::ZERO as u64 != 0
    }
}
