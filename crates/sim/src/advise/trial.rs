// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trial is the trace, played once to a disk with or without a cache.

use flashfront_engine::Mode;

use super::played::Played;

/// A run of the trace.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Size and mode of the cache; without one it is the disk alone.
    pub cache: Option<(u64, Mode)>,
    /// The result of the run.
    pub played: Played,
}

/// What RAM brings, as large as the chosen cache or as can be given; writes go to the disk.
#[derive(Clone, Debug)]
pub struct Ram {
    /// As a page cache has it: only what was asked for.
    pub alone: Trial,
    /// Also what is read around misses.
    pub around: Trial,
}
