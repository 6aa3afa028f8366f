// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of a run: rates and times, in each direction and together.
//!
//! Times are kept as bins, so that jobs and runs can be merged before a percentile is taken.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A discard.
    Trim,
    /// A FLUSH, as fsync asks for it.
    Sync,
}

/// Rates and times of requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// How many requests were answered.
    pub requests: u64,
    /// How many bytes they moved.
    pub bytes: u64,
    /// Requests a second.
    pub iops: f64,
    /// KiB a second.
    pub bandwidth_kib_s: f64,
    /// Mean time of a request.
    pub mean_us: f64,
    /// Half of the requests took no longer.
    pub p50_us: f64,
    /// 90 of 100 took no longer.
    pub p90_us: f64,
    /// 95 of 100 took no longer.
    pub p95_us: f64,
    /// 99 of 100 took no longer.
    pub p99_us: f64,
    /// 999 of 1,000 took no longer.
    pub p99_9_us: f64,
    /// 9,999 of 10,000 took no longer.
    pub p99_99_us: f64,
    /// The longest one.
    pub max_us: f64,
    /// Times in ns, each with the number of requests that took so long (rounded as fio rounds).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bins: BTreeMap<u64, u64>,
}

impl Figures {
    /// Figures of requests that were counted in bins over some time.
    #[must_use]
    pub fn of(bytes: u64, seconds: f64, bins: BTreeMap<u64, u64>) -> Self {
        let requests = bins.values().sum::<u64>();
        Self { requests, bytes, bins, ..Self::default() }.with_rates(seconds)
    }

    /// Figures of all these requests together, which were answered in `seconds`.
    #[must_use]
    pub fn merged<'a>(parts: impl IntoIterator<Item = &'a Self>, seconds: f64) -> Self {
        let mut all = Self::default();
        for part in parts {
            all.requests += part.requests;
            all.bytes += part.bytes;
            all.max_us = all.max_us.max(part.max_us);
            for (ns, count) in &part.bins {
                *all.bins.entry(*ns).or_default() += count;
            }
        }
        all.with_rates(seconds)
    }

    /// The time that a part of the requests did not exceed, in us; 0 if there were none.
    #[must_use]
    pub fn percentile_us(&self, part: f64) -> f64 {
        let all = self.bins.values().sum::<u64>();
        let rank = ((all as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        for (ns, count) in &self.bins {
            seen += count;
            if seen >= rank {
                return *ns as f64 / 1e3;
            }
        }
        0.0
    }

    fn with_rates(mut self, seconds: f64) -> Self {
        let per_second = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        self.iops = per_second(self.requests as f64);
        self.bandwidth_kib_s = per_second(self.bytes as f64 / 1024.0);
        let timed = self.bins.values().sum::<u64>();
        let sum_ns = self.bins.iter().map(|(ns, count)| *ns as f64 * *count as f64).sum::<f64>();
        self.mean_us = if timed > 0 { sum_ns / timed as f64 / 1e3 } else { 0.0 };
        [self.p50_us, self.p90_us, self.p95_us, self.p99_us, self.p99_9_us, self.p99_99_us] =
            [0.5, 0.9, 0.95, 0.99, 0.999, 0.9999].map(|part| self.percentile_us(part));
        let last_us = self.bins.last_key_value().map_or(0.0, |(ns, _)| *ns as f64 / 1e3);
        self.max_us = self.max_us.max(last_us);
        self
    }
}

/// A moment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Seconds since the run's beginning: the end of the interval that the rates are of.
    pub at_s: f64,
    /// Reads a second, of all jobs together.
    pub read_iops: f64,
    /// Writes a second, of all jobs together.
    pub write_iops: f64,
}

/// What came of one run of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// How long the run took.
    pub seconds: f64,
    /// Reads and writes together. An act counts what it calls an operation (a transaction).
    pub both: Figures,
    /// Each direction that had requests.
    pub directions: BTreeMap<Direction, Figures>,
    /// Rates over time; empty if nobody counted them.
    pub series: Vec<Point>,
    /// Figures that only this job has, such as `clone_s`; their names end with the unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<String, f64>,
}

impl Measured {
    /// Puts directions together.
    #[must_use]
    pub fn new(seconds: f64, directions: BTreeMap<Direction, Figures>, series: Vec<Point>) -> Self {
        let moves = |direction: &Direction| matches!(direction, Direction::Read | Direction::Write);
        let both = directions.iter().filter(|(direction, _)| moves(direction)).map(|(_, figures)| figures);
        let both = Figures::merged(both, seconds);
        Self { seconds, both, directions, series, others: BTreeMap::new() }
    }
}
