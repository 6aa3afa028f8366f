// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of `status` about the last minute, hour and day, of a volume or of all of them.

use serde::{Deserialize, Serialize};

use super::LatencyReport;
use crate::latency::{Kind, Summary};

/// The growth of counters of the engine in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grown {
    /// Blocks that reclaim dropped.
    pub evicted_blocks: u64,
    /// Bytes that were written to the cache device.
    pub flash_written_bytes: u64,
}

/// What happened in a window of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowReport {
    /// Reads that the cache answered alone.
    pub hit_requests: u64,
    /// Reads that needed the origin for some part.
    pub miss_requests: u64,
    /// Writes and write-zeroes.
    pub write_requests: u64,
    /// FLUSHes.
    pub flush_requests: u64,
    /// Bytes of these hits.
    pub hit_bytes: u64,
    /// Bytes of these misses.
    pub miss_bytes: u64,
    /// Bytes of these writes.
    pub written_bytes: u64,
    /// Blocks that reclaim dropped.
    pub evicted_blocks: u64,
    /// Bytes that were written to the cache device: the wear.
    pub flash_written_bytes: u64,
    /// How long the requests took.
    pub latency_us: LatencyReport,
}

impl WindowReport {
    fn new(requests: &[Summary; 4], grown: Grown) -> Self {
        let of = |kind: Kind| &requests[kind as usize];
        Self {
            hit_requests: of(Kind::Hit).count,
            miss_requests: of(Kind::Miss).count,
            write_requests: of(Kind::Write).count,
            flush_requests: of(Kind::Flush).count,
            hit_bytes: of(Kind::Hit).bytes,
            miss_bytes: of(Kind::Miss).bytes,
            written_bytes: of(Kind::Write).bytes,
            evicted_blocks: grown.evicted_blocks,
            flash_written_bytes: grown.flash_written_bytes,
            latency_us: LatencyReport::new(requests),
        }
    }
}

/// What happened lately.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecentReport {
    /// The last 60 to 70 seconds.
    pub minute: WindowReport,
    /// The last 60 to 70 minutes.
    pub hour: WindowReport,
    /// The last 24 to 27 hours.
    pub day: WindowReport,
}

impl RecentReport {
    pub(super) fn new(requests: &[[Summary; 4]; 3], grown: &[Grown; 3]) -> Self {
        let [minute, hour, day] = [0, 1, 2].map(|at| WindowReport::new(&requests[at], grown[at]));
        Self { minute, hour, day }
    }
}
