// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events at the devices, for the gauges that all lanes share.
//!
//! A lane that works beside others ([`crate::act::apart`]) has gauges of its own for that time. It
//! keeps a list of the events for the gauges of all lanes.

/// An event at a device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Measured {
    /// A client's read of `blocks` blocks of the cache device began.
    CacheReadBegan { blocks: u64 },
    /// A client's read of the cache device ended.
    CacheReadEnded { sound: bool },
    /// A commit began.
    CommitBegan,
    /// Bytes are written to the cache device that leads.
    CacheWritten { bytes: u64 },
    /// A client's read of an origin began, of the places from `first` to `end`.
    OriginReadBegan { origin: usize, first: u64, end: u64 },
    /// A client's read of an origin ended. `blocks` is its length, or `None` if it failed.
    OriginReadEnded { origin: usize, blocks: Option<u32> },
    /// A read of an origin began that completes a block which is written in part.
    OriginMergeBegan { origin: usize },
    /// A read of cached blocks was sent to an origin, because the cache device was expected to take
    /// `instead_of_ns`.
    DetourBegan { origin: usize, instead_of_ns: u64 },
}
