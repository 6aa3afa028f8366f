// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiters for a commit to be durable, and what a request to wait comes to.

use alloc::vec::Vec;

use crate::fact::io::RequestError;
use crate::fact::types::OriginId;
use crate::organ::index::Flat;

/// A waiter for a commit to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// A FLUSH.
    Request(usize),
    /// A durable write.
    Piece(usize),
    /// A direct write whose range was dropped from the cache.
    Invalidated(usize),
    /// A direct write that replaced lost blocks.
    Replaced(usize),
    /// A segment that was freed.
    Freed(u32),
    /// A destage run whose blocks must not reach the origin before.
    Run(usize),
    /// The eras of this origin that are on it.
    Sent(OriginId),
    /// A damaged clean block that was dropped.
    Dropped(Flat),
}

/// What a request to wait comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Wait {
    /// All that was appended is durable already.
    Durable,
    /// The waiter is woken later ([`crate::turn`]).
    Later,
    /// The cache device failed, and this is how it ends for the waiter.
    Over(Result<(), RequestError>),
}

/// Waiters whose commit is durable, in the order in which they go on.
#[must_use]
pub(crate) struct Woken(pub(crate) Vec<Waiter>);
