// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens at the devices, for the gauges that all lanes share.
//!
//! A lane that works beside others ([`crate::act::apart`]) has gauges of its own for that time, and
//! a list of what happened, for the gauges of all.

/// Something that happened at a device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Measured {
    /// A client's read of so many blocks of the cache device began.
    CacheReadBegan { blocks: u64 },
    /// A client's read of the cache device ended.
    CacheReadEnded { sound: bool },
    /// A commit began.
    CommitBegan,
    /// Bytes are written to the cache device that leads.
    CacheWritten { bytes: u64 },
    /// A client's read of an origin began, of the places from `first` to `end`.
    OriginReadBegan { origin: usize, first: u64, end: u64 },
    /// A client's read of so many blocks of an origin ended; `None`: it failed.
    OriginReadEnded { origin: usize, blocks: Option<u32> },
    /// A read of an origin began that completes a block that is written in part.
    OriginMergeBegan { origin: usize },
    /// A read of what is cached was sent to an origin, where the cache device was expected to take
    /// so long.
    DetourBegan { origin: usize, instead_of_ns: u64 },
}
