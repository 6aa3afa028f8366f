// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace that was played has been measured: what requests took, what the devices moved, and what
//! the disk still has to take.

use hdrhistogram::Histogram;

use crate::system::Traffic;

/// The times of requests of one kind.
#[derive(Clone, Debug)]
pub struct Times {
    /// The number of requests.
    pub requests: u64,
    /// All together.
    pub sum_ns: u128,
    /// Each, to 1 in 100.
    pub ns: Histogram<u64>,
}

impl Default for Times {
    fn default() -> Self {
        let ns = Histogram::new_with_bounds(1_000, 1_200_000_000_000, 2).expect("bounds that a histogram takes");
        Self { requests: 0, sum_ns: 0, ns }
    }
}

impl Times {
    pub(super) fn record(&mut self, ns: u64) {
        self.requests += 1;
        self.sum_ns += u128::from(ns);
        self.ns.saturating_record(ns);
    }

    /// The mean; nothing of no requests.
    #[must_use]
    pub fn mean_ns(&self) -> Option<u64> {
        (self.requests > 0).then(|| (self.sum_ns / u128::from(self.requests)) as u64)
    }

    /// What all but one in a hundred took at most.
    #[must_use]
    pub fn p99_ns(&self) -> Option<u64> {
        (self.requests > 0).then(|| self.ns.value_at_quantile(0.99))
    }
}

/// What becomes of writes that the disk has yet to take. All but the drain is of the second half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// How long the dirty limit was nine tenths full or more.
    pub full_ns: u64,
    /// What became dirty, and needs a write of the disk: less than was written, if blocks were
    /// written again before.
    pub dirtied_bytes: u64,
    /// What was dirty after the last answer.
    pub left_bytes: u64,
    /// How long the disk takes for that, if nobody asks it for anything else.
    pub drain_ns: u64,
}

impl Backlog {
    /// What the disk takes in a second, sorted and undisturbed; none if nothing was left.
    #[must_use]
    pub fn drain_bytes_per_s(&self) -> Option<f64> {
        (self.left_bytes > 0).then(|| self.left_bytes as f64 * 1e9 / self.drain_ns.max(1) as f64)
    }
}

/// How a trace went on a system. All but `late_ns` and `before` is of its second half.
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// The times of reads.
    pub reads: Times,
    /// The times of writes.
    pub writes: Times,
    /// By how much the last request came later than in the trace.
    pub late_ns: u64,
    /// From its first request to its last answer.
    pub took_ns: u64,
    /// The traffic of the devices meanwhile.
    pub traffic: Traffic,
    /// What the disk has yet to take.
    pub backlog: Backlog,
    /// Requests of the second quarter, and what they took together: what a recording of the first
    /// half would have measured.
    pub before: (u64, u128),
}

impl Played {
    /// What a request took, of both kinds, in the mean.
    #[must_use]
    pub fn mean_ns(&self) -> u64 {
        let requests = u128::from(self.reads.requests + self.writes.requests);
        ((self.reads.sum_ns + self.writes.sum_ns) / requests.max(1)) as u64
    }

    /// What a request of the second quarter took in the mean.
    #[must_use]
    pub fn mean_before_ns(&self) -> u64 {
        (self.before.1 / u128::from(self.before.0.max(1))) as u64
    }

    /// The share of the blocks read that the disk wasn't asked for.
    #[must_use]
    pub fn read_hit_ratio(&self) -> Option<f64> {
        let blocks = self.traffic.read_blocks;
        (blocks > 0).then(|| self.traffic.read_hit_blocks as f64 / blocks as f64)
    }
}
