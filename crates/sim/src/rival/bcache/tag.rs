// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tag is what comes back to bcache when an I/O ends or a moment comes.

use flashfront_engine::Time;

use super::extent::{CacheIo, Extent};
use crate::system::SystemRequest;

/// The purpose of an I/O or a moment.
#[derive(Debug)]
pub(super) enum Tag {
    /// Nobody waits.
    Nothing,
    /// A request has come through to the cache.
    Arrived(SystemRequest),
    /// A part of a request.
    Part(u64),
    /// An I/O waits until the cache device can be asked again.
    Held(CacheIo, Box<Tag>),
    /// A read of the cache device for one.
    Hit(u64, Time),
    /// A read of the origin that is to be cached.
    Missed {
        number: u64,
        start: u32,
        len: u32,
    },
    /// Written to the cache device.
    Stored(Store, Time),
    /// In the tree.
    Inserted(Store),
    /// The journal has waited long enough.
    JournalDue,
    Journal(Stage),
    /// Generations of a batch are written.
    Priorities(Vec<u32>),
    /// Writers without a bucket try again.
    Starved,
    /// The controller's turn.
    Pace,
    /// The destaging thread's.
    Thread,
    /// The steps of a dirty extent: it is found, it is read from the cache device. Then it goes to
    /// the origin, is written there, and is known as clean.
    DirtyFound(u32, Extent),
    DirtyRead(u32, Extent),
    DirtyCopied(u32, Extent),
    DirtyWritten(u32, Extent),
    Cleaned(u32, Extent),
}

/// The stage of a journal write that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Flushed,
    Written,
    Done,
}

/// Data that goes to the cache device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Store {
    /// The request whose answer waits for it; `None`: a fill after a read miss.
    pub(super) number: Option<u64>,
    pub(super) start: u32,
    pub(super) extent: Extent,
}
