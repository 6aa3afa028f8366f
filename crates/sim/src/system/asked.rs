// SPDX-License-Identifier: MIT OR Apache-2.0
//! A system is asked for reads, writes and flushes, and tells what it moved.

use flashfront_engine::Time;

/// The kinds of requests of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Read a range of bytes.
    Read,
    /// Write a range of bytes.
    Write,
    /// Make all that was acknowledged durable. The range is empty.
    Flush,
}

/// A request of a client; whole sectors, at most 1 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemRequest {
    /// Grows from one request to the next; comes back with the answer.
    pub number: u64,
    /// The kind of the request.
    pub ask: Ask,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// What moved between a system and its devices since its beginning. A bare device is an origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Read from the cache device.
    pub cache_read_bytes: u64,
    /// Written to the cache device.
    pub cache_write_bytes: u64,
    /// Flushes of the cache device.
    pub cache_flushes: u64,
    /// Read from the origin.
    pub origin_read_bytes: u64,
    /// Written to the origin.
    pub origin_write_bytes: u64,
    /// I/Os to the origin, reads and writes.
    pub origin_ios: u64,
    /// Flushes of the origin.
    pub origin_flushes: u64,
    /// Blocks that clients read.
    pub read_blocks: u64,
    /// Blocks that clients read and that no origin was asked for.
    pub read_hit_blocks: u64,
    /// Bytes that are dirty now.
    pub dirty_bytes: u64,
    /// The most that may be; 0 = there is no limit.
    pub dirty_limit_bytes: u64,
}

impl Traffic {
    /// What moved since then; what is dirty, and the limit, are as they are now.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            cache_read_bytes: self.cache_read_bytes - before.cache_read_bytes,
            cache_write_bytes: self.cache_write_bytes - before.cache_write_bytes,
            cache_flushes: self.cache_flushes - before.cache_flushes,
            origin_read_bytes: self.origin_read_bytes - before.origin_read_bytes,
            origin_write_bytes: self.origin_write_bytes - before.origin_write_bytes,
            origin_ios: self.origin_ios - before.origin_ios,
            origin_flushes: self.origin_flushes - before.origin_flushes,
            read_blocks: self.read_blocks - before.read_blocks,
            read_hit_blocks: self.read_hit_blocks - before.read_hit_blocks,
            ..*self
        }
    }
}

/// A storage system under test.
pub trait System {
    /// Takes a request.
    fn submit(&mut self, now: Time, request: SystemRequest);

    /// The next moment at which something happens; time must not jump over it.
    fn next_event(&self) -> Option<Time>;

    /// Moves on to `now`, which is the next event or earlier; appends the numbers of what is
    /// answered then.
    fn advance(&mut self, now: Time, answered: &mut Vec<u64>);

    /// The traffic so far.
    fn traffic(&self) -> Traffic;

    /// Begins to write all that is dirty to the origin, as fast as it goes; whether it can.
    fn drain(&mut self, _now: Time) -> bool {
        false
    }

    /// A cache that can uses only so many percent of its device from now on, and empties the rest.
    fn keep(&mut self, _now: Time, _percent: u32) {}

    /// A cache that can begins to move to another device of the same kind.
    fn replace(&mut self, _now: Time) {}

    /// Whether requests may begin and end within blocks, at sectors.
    fn takes_sectors(&self) -> bool {
        false
    }
}
