// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine's counters as `status --json` and the metrics name them.

use serde::{Deserialize, Serialize};

macro_rules! counters {
    ($($name:ident: $help:literal,)*) => {
        /// The engine's counters, under the names of [`flashfront_engine::Counters`].
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct CounterReport {
            $(#[doc = $help] #[serde(default)] pub $name: u64,)*
        }

        impl CounterReport {
            /// Name, help and value of each.
            #[must_use]
            pub fn each(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), $help, self.$name),)*]
            }
        }

        impl From<&flashfront_engine::Counters> for CounterReport {
            fn from(counters: &flashfront_engine::Counters) -> Self {
                Self { $($name: counters.$name,)* }
            }
        }

        impl From<&CounterReport> for flashfront_engine::Counters {
            fn from(counters: &CounterReport) -> Self {
                Self { $($name: counters.$name,)* }
            }
        }
    };
}

counters! {
    reads: "Read requests.",
    writes: "Write requests, with write-zeroes.",
    flushes: "FLUSH requests.",
    discards: "Discard requests.",
    read_hits: "Blocks read from the cache, device or RAM.",
    ram_hits: "Blocks among the hits that were in RAM.",
    joined_blocks: "Blocks among the hits that somebody else's read of the origin was bringing.",
    read_misses: "Blocks read from an origin.",
    write_hits: "Blocks written that were in the cache already.",
    write_misses: "Blocks written that were not in the cache.",
    writes_direct_blocks: "Blocks of writes that went to the origin directly.",
    promoted_blocks: "Blocks that missed, or came along with one that did and were asked for, and were put in the cache.",
    neighbour_blocks: "Blocks that were put in the cache because one beside them missed.",
    waiting_neighbour_blocks: "Blocks that were put in the window, in RAM, because one beside them missed.",
    warmed_blocks: "Blocks that a prefetch put in the cache.",
    unwarmed_blocks: "Blocks that a prefetch did not put in the cache: no room was free, or the cache device was busy.",
    over_budget_blocks: "Blocks that were not put in the cache because the flash budget was used up.",
    reinserted_blocks: "Blocks that reclaim copied forward.",
    moved_blocks: "Blocks among these that were moved to win back the dead room beside them.",
    evicted_blocks: "Blocks that reclaim dropped.",
    destaged_blocks: "Blocks made clean by destage.",
    bypassed_sequential: "Requests sent past the cache because their stream is sequential.",
    bypassed_congested_blocks: "Blocks read from or written to an origin because the cache device was slower at that moment.",
    origin_reads: "Reads sent to origins.",
    origin_reads_bytes: "Bytes read from origins.",
    origin_writes: "Writes sent to origins, with write-zeroes.",
    origin_writes_bytes: "Bytes written to origins.",
    cache_reads: "Reads sent to the cache device.",
    cache_reads_bytes: "Bytes read from the cache device.",
    cache_writes: "Writes sent to the cache device.",
    cache_writes_bytes: "Bytes written to the cache device.",
    cache_flushes: "FLUSHes sent to the cache device.",
    origin_flushes: "FLUSHes sent to origins.",
    commits: "Commits written.",
    checkpoints: "Checkpoints completed.",
    corrupt_blocks: "Blocks whose checksum did not match.",
    throttled_writes: "Writes that had to wait for the dirty limit.",
    drains: "Drains completed: at the end of each nothing was dirty.",
}
