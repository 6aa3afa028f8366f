// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers and threads that do not fit the machine or the cache.

use crate::config::Size;

/// Why buffers and threads can't be had as the configuration says.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The RAM is too little for the lanes.
    #[error(
        "buffer_bytes is {given}, and must be at least {least} for a cache of {lanes} lane{s}, threads = {threads} and lane_threads = {lane_threads}; without it that much is taken", given = Size(*given), least = Size(*least), s = plural(*lanes as usize)
    )]
    BufferSmall {
        /// The value of the configuration.
        given: u64,
        /// Needed.
        least: u64,
        /// Lanes.
        lanes: u32,
        /// Threads.
        threads: usize,
        /// Threads of lanes.
        lane_threads: usize,
    },
    /// There are more threads than lanes that could use them.
    #[error(
        "lane_threads is {given}, but this cache has {lanes} lane{s}, of which each can use one; take at most {lanes}, or format with --lanes", s = plural(*lanes as usize)
    )]
    IdleLaneThreads {
        /// The value of the configuration.
        given: usize,
        /// Lanes.
        lanes: u32,
    },
    /// A lane's arena has no numbers for a RAM front of this size.
    #[error(
        "ram_front_bytes is {given}, for lanes with threads of their own at most {most} with {lanes} lanes; take less, or leave lane_threads out"
    )]
    FrontOfLanes {
        /// The value of the configuration.
        given: Size,
        /// The largest value that is possible.
        most: Size,
        /// Lanes.
        lanes: u32,
    },
    /// The kernel has none.
    #[error(
        "huge_pages: this kernel gives none, {setting} says `never` or can't be read; write `madvise` to it, or leave huge_pages out"
    )]
    NoHugePages {
        /// The kernel's file that says so.
        setting: &'static str,
    },
    /// More RAM than there is.
    #[error(
        "buffer_bytes and ram_front_bytes are {given} together, but this machine has {most} of RAM; choose less (160 MiB of buffers are enough for most), or fewer threads",
        most = most.told()
    )]
    BufferLarge {
        /// The value of the configuration.
        given: Size,
        /// The RAM of this machine.
        most: Size,
    },
}

const fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}
