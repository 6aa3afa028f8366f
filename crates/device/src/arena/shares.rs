// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shares of front-ends: what one share holds for long, another one never lacks.
//!
//! A chunk belongs to one share, so that a buffer that is held for ever keeps no chunk from another
//! share. What goes into which share is the caller's affair. Invariant: no share has more chunks
//! than it may (test: `a_full_share_leaves_the_others_theirs`).

use flashfront_engine::Buf;

use super::Arena;
use super::chunk::CHUNK_BYTES;
use super::classes::class_of;
use super::used::Pool;

/// The purposes of front-ends' buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Requests that end by themselves: hits, and writes that the cache takes.
    Passing,
    /// Requests that may wait for an origin.
    Waiting,
    /// Payload that a client has not sent completely.
    Payload,
}

impl Share {
    const fn pool(self) -> Pool {
        match self {
            Self::Passing => Pool::Passing,
            Self::Waiting => Pool::Waiting,
            Self::Payload => Pool::Payload,
        }
    }
}

impl Arena {
    /// Divides the front-ends' bytes: two shares get whole chunks for these bytes; the rest is
    /// [`Share::Passing`].
    ///
    /// # Panics
    /// If that is more than there is, or some of it is in use: a bug.
    #[must_use]
    pub fn in_shares(mut self, waiting_bytes: u64, payload_bytes: u64) -> Self {
        let chunks = |bytes: u64| (bytes / u64::from(CHUNK_BYTES)) as usize;
        let (waiting, payload) = (chunks(waiting_bytes), chunks(payload_bytes));
        let [_, passing, ..] = self.most;
        assert!(waiting + payload < passing, "bug: {waiting} and {payload} chunks of {passing} leave nothing");
        assert!(self.chunks.is_empty(), "bug: the arena is in use");
        self.most[Pool::Waiting as usize] = waiting;
        self.most[Pool::Payload as usize] = payload;
        self.most[Pool::Passing as usize] = passing - waiting - payload;
        self
    }

    /// A buffer of at least `bytes` bytes of a share; `None` at its bound. The content is
    /// undefined.
    pub fn try_alloc_of(&mut self, share: Share, bytes: u32) -> Option<Buf> {
        self.take(share.pool(), class_of(bytes))
    }

    /// Bytes that a share may have, in whole chunks.
    #[must_use]
    pub fn share_bytes(&self, share: Share) -> u64 {
        self.most[share.pool() as usize] as u64 * u64::from(CHUNK_BYTES)
    }

    /// Whether a buffer of this arena may be held for long. All may where there are no shares.
    #[must_use]
    pub fn may_wait(&self, buf: Buf) -> bool {
        self.uses[self.place_of(buf)].pool != Pool::Passing || self.most[Pool::Waiting as usize] == 0
    }
}
