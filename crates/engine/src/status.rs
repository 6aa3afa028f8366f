// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counters and gauges of an engine, as one snapshot.
//!
//! Counters are 64-bit and only grow while the engine lives (invariant 9: `counters_only_grow`).

use alloc::vec::Vec;

use crate::shadow::{Found, WhatIf};
use crate::types::{Key, Mode, OriginId};

/// What only grows. Units: operations, blocks, or bytes, as the names say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Read requests.
    pub reads: u64,
    /// Write requests (with write-zeroes).
    pub writes: u64,
    /// FLUSH requests.
    pub flushes: u64,
    /// Discard requests.
    pub discards: u64,
    /// Blocks read from the cache (device or RAM).
    pub read_hits: u64,
    /// Blocks among the hits that were in RAM: in a commit not yet written, in the window or the RAM front, or brought for somebody else.
    pub ram_hits: u64,
    /// Blocks among the hits that somebody else's read of the origin was bringing when they were asked for; they count as in RAM.
    pub joined_blocks: u64,
    /// Blocks read from an origin.
    pub read_misses: u64,
    /// Blocks written that were in the cache already.
    pub write_hits: u64,
    /// Blocks written that were not.
    pub write_misses: u64,
    /// Blocks of writes that went to the origin directly.
    pub writes_direct_blocks: u64,
    /// Blocks that missed, or came along with one that did and were asked for, and were put in the cache.
    pub promoted_blocks: u64,
    /// Blocks that were put in the cache because one beside them missed.
    pub neighbour_blocks: u64,
    /// Blocks that were put in the window, in RAM, because one beside them missed.
    pub waiting_neighbour_blocks: u64,
    /// Blocks that were not put in the cache because the flash budget was used up.
    pub over_budget_blocks: u64,
    /// Blocks that reclaim copied forward.
    pub reinserted_blocks: u64,
    /// Blocks that reclaim dropped.
    pub evicted_blocks: u64,
    /// Blocks made clean by destage.
    pub destaged_blocks: u64,
    /// Requests sent past the cache because their stream is sequential.
    pub bypassed_sequential: u64,
    /// Blocks that were read from or written to an origin because the cache device was slower at that moment.
    pub bypassed_congested_blocks: u64,
    /// Reads sent to origins.
    pub origin_reads: u64,
    /// Bytes read from origins.
    pub origin_reads_bytes: u64,
    /// Writes sent to origins, with write-zeroes.
    pub origin_writes: u64,
    /// Bytes written to origins.
    pub origin_writes_bytes: u64,
    /// Reads sent to the cache device.
    pub cache_reads: u64,
    /// Bytes read from the cache device.
    pub cache_reads_bytes: u64,
    /// Writes sent to the cache device.
    pub cache_writes: u64,
    /// Bytes written to the cache device.
    pub cache_writes_bytes: u64,
    /// FLUSHes sent to the cache device.
    pub cache_flushes: u64,
    /// FLUSHes sent to origins.
    pub origin_flushes: u64,
    /// Commits written.
    pub commits: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Blocks whose checksum did not match.
    pub corrupt_blocks: u64,
    /// Writes that had to wait for the dirty limit.
    pub throttled_writes: u64,
    /// Drains completed: at the end of each nothing was dirty.
    pub drains: u64,
}

impl Counters {
    /// Blocks that the cache had when they were asked for.
    pub(crate) const fn found(&self) -> Found {
        Found { read: self.read_hits, written: self.write_hits }
    }
}

/// One origin of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginStatus {
    /// Its id.
    pub id: OriginId,
    /// Its mode.
    pub mode: Mode,
    /// Its size.
    pub size_bytes: u64,
    /// Its dirty blocks.
    pub blocks_dirty: u64,
}

/// How it stands with the mirror.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MirrorStatus {
    /// There is none, and never was one.
    #[default]
    None,
    /// Both members hold all dirty data.
    Whole,
    /// Only this member is left.
    Alone {
        /// 0 or 1.
        member: u8,
    },
    /// A new one is being filled.
    Syncing {
        /// Dirty blocks copied so far.
        copied: u64,
        /// Dirty blocks when it began.
        of: u64,
    },
}

/// A snapshot of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// What only grows.
    pub counters: Counters,
    /// The origins.
    pub origins: Vec<OriginStatus>,
    /// Blocks in the cache.
    pub blocks_cached: u64,
    /// Dirty ones among them.
    pub blocks_dirty: u64,
    /// The most that may be dirty.
    pub dirty_limit_blocks: u64,
    /// Blocks the log has room for.
    pub capacity_blocks: u64,
    /// Segments ready to be written.
    pub segments_free: u64,
    /// All segments.
    pub segments: u64,
    /// Whether a drain is going on.
    pub draining: bool,
    /// Whether the cache device failed, so that nothing new is trusted to it.
    pub cache_failed: bool,
    /// Blocks whose only copy is corrupt; reads of them fail until they are written anew.
    pub lost: Vec<Key>,
    /// How it stands with the mirror.
    pub mirror: MirrorStatus,
    /// Buffer bytes the engine holds.
    pub buffer_bytes: u64,
    /// Bytes of the RAM front's copies.
    pub ram_front_bytes: u64,
    /// Bytes that may be written to the cache device in a day; nothing if there is no such budget.
    pub flash_writes_per_day_bytes: Option<u64>,
    /// Of these, what was saved up when the last request came; below 0: debt, and nothing is cached because it was read.
    pub flash_writes_left_bytes: i64,
    /// RAM of the window, where blocks that were read wait to be seen again.
    pub window_bytes: u64,
    /// Bytes of index, dirty set and ghost.
    pub index_bytes: u64,
    /// Memory of the shadow and of the duel; 0 if the cache is too small for either.
    pub shadow_bytes: u64,
    /// What would be with a cache of another size; empty while it is not known.
    pub what_if: Vec<WhatIf>,
    /// Requests accepted and not yet answered.
    pub requests_in_flight: u64,
}
