// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counters and gauges of an engine, as one snapshot.
//!
//! Counters are 64-bit and only grow while the engine lives (invariant 9: `counters_only_grow`).

use alloc::vec::Vec;

use crate::fact::types::{Key, Mode, OriginId};
use crate::shadow::{Found, WhatIf};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What only grows. Units: operations, blocks, or bytes, as the names say.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Counts on by so much.
            pub(crate) const fn add(&mut self, more: &Self) {
                $(self.$name += more.$name;)*
            }

            /// The name of a counter that is lower here than it was before.
            #[must_use]
            pub const fn fallen_since(&self, before: &Self) -> Option<&'static str> {
                $(if self.$name < before.$name {
                    return Some(stringify!($name));
                })*
                None
            }
        }
    };
}

counters! {
    /// Read requests.
    reads,
    /// Write requests (with write-zeroes).
    writes,
    /// FLUSH requests.
    flushes,
    /// Discard requests.
    discards,
    /// Blocks read from the cache (device or RAM).
    read_hits,
    /// Blocks among the hits that were in RAM: in a commit not yet written, in the window or the
    /// RAM front. Blocks that were brought for another request count, too.
    ram_hits,
    /// Blocks among the hits that somebody else's read of the origin was bringing when they were
    /// asked for; they count as in RAM.
    joined_blocks,
    /// Blocks read from an origin.
    read_misses,
    /// Blocks written that were in the cache already.
    write_hits,
    /// Blocks written that were not.
    write_misses,
    /// Blocks of writes that went to the origin directly.
    writes_direct_blocks,
    /// Blocks that missed, or came along with one that did and were asked for, and were put in the
    /// cache.
    promoted_blocks,
    /// Blocks that were put in the cache because one beside them missed.
    neighbour_blocks,
    /// Blocks that were put in the window, in RAM, because one beside them missed.
    waiting_neighbour_blocks,
    /// Blocks that a prefetch has put in the cache.
    warmed_blocks,
    /// Blocks that a prefetch asked for in vain: no room was free, or the cache device was busy.
    unwarmed_blocks,
    /// Blocks that were not put in the cache because the flash budget was used up.
    over_budget_blocks,
    /// Blocks that reclaim copied forward.
    reinserted_blocks,
    /// Blocks among these that were moved to win back the dead room beside them.
    moved_blocks,
    /// Blocks that reclaim dropped.
    evicted_blocks,
    /// Blocks made clean by destage.
    destaged_blocks,
    /// Requests sent past the cache because their stream is sequential.
    bypassed_sequential,
    /// Blocks that were read from or written to an origin because the cache device was slower at
    /// that moment.
    bypassed_congested_blocks,
    /// Reads sent to origins.
    origin_reads,
    /// Bytes read from origins.
    origin_reads_bytes,
    /// Writes sent to origins, with write-zeroes.
    origin_writes,
    /// Bytes written to origins.
    origin_writes_bytes,
    /// Reads sent to the cache device.
    cache_reads,
    /// Bytes read from the cache device.
    cache_reads_bytes,
    /// Writes sent to the cache device.
    cache_writes,
    /// Bytes written to the cache device.
    cache_writes_bytes,
    /// FLUSHes sent to the cache device.
    cache_flushes,
    /// FLUSHes sent to origins.
    origin_flushes,
    /// Commits written.
    commits,
    /// Checkpoints completed.
    checkpoints,
    /// Blocks whose checksum did not match.
    corrupt_blocks,
    /// Writes that had to wait for the dirty limit.
    throttled_writes,
    /// Drains completed: at the end of each nothing was dirty.
    drains,
}

impl Counters {
    /// Blocks that the cache had when they were asked for.
    pub(crate) const fn found(&self) -> Found {
        Found { read: self.read_hits, written: self.write_hits }
    }
}

/// An origin of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginStatus {
    /// Its id.
    pub id: OriginId,
    /// Its mode.
    pub mode: Mode,
    /// Its size.
    pub size_bytes: u64,
    /// Its dirty blocks.
    pub blocks_dirty: u64,
    /// Its blocks in the cache.
    pub blocks_cached: u64,
    /// Its blocks that were appended to the log so far: written anew, promoted, or copied forward.
    pub logged_blocks: u64,
    /// Its blocks that were dropped to make room, so far.
    pub evicted_blocks: u64,
    /// Its blocks that were dropped although it had less than its smallest part: no other room was
    /// to be had.
    pub evicted_below_min: u64,
    /// Its blocks that were dropped as it had its largest part.
    pub evicted_at_max: u64,
    /// How long ago the oldest FLUSH was acknowledged that the origin alone may lack something of,
    /// when the last request or timer came. Ordered destage sends what one FLUSH has covered after
    /// the other. Else the origin lacks something until nothing is dirty.
    pub unsent_flush_ns: Option<u64>,
    /// A flush of the origin failed that covered what was written past the log, and no FLUSH of a
    /// client has told of it yet. Those writes may be lost.
    pub doubtful: bool,
    /// The origin takes what lies between two flushes as a whole, and has a part of that. A flush
    /// now would make that part durable without the rest.
    pub may_be_torn: bool,
}

/// How it stands with the mirror.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MirrorStatus {
    /// There is none, and never was one.
    #[default]
    None,
    /// Both members hold all dirty data.
    Whole,
    /// Only this member is left, and its superblock says so durably.
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
    /// Dirty blocks that only the lead of two members has, as far as is known: they couldn't be
    /// read while the other one was filled.
    pub mirror_lacks_blocks: u64,
    /// Dirty blocks that only the other one of two members has, as far as is known: the lead's copy
    /// can't be read.
    pub lead_lacks_blocks: u64,
    /// Blocks that are left in the end of the log while that is being emptied. What is in a segment
    /// that is still being filled doesn't count.
    pub left_in_end: Option<u64>,
    /// How far the copying is after which the lead leaves; 0 of 0 when it leaves.
    pub succeeding: Option<(u64, u64)>,
    /// How far the copying is after which the other member leads, and the lead stays.
    pub promoting: Option<(u64, u64)>,
    /// Buffer bytes the engine holds.
    pub buffer_bytes: u64,
    /// Bytes of the RAM front's copies.
    pub ram_front_bytes: u64,
    /// Bytes that may be written to the cache device in a day; nothing if there is no such budget.
    pub flash_writes_per_day_bytes: Option<u64>,
    /// What of these was saved up when the last request came. Below 0 is debt, and nothing is
    /// cached because it was read.
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
