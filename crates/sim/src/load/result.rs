// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results of jobs say what was answered when, and how long it took.

use hdrhistogram::Histogram;

use crate::system::Traffic;

/// Intervals of a window; see [`Job::settles`](super::Job::settles).
pub const SETTLED: usize = 6;

/// The figures of one interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// The end of the interval, since the phase began.
    pub end_ns: u64,
    /// Answered to each job: bytes read.
    pub read_bytes: Vec<u64>,
    /// Bytes written.
    pub write_bytes: Vec<u64>,
    /// The devices' traffic at its end.
    pub traffic: Traffic,
}

/// The result of a job, or of all jobs of a name together.
#[derive(Clone, Debug)]
pub struct JobResult {
    /// The job's name.
    pub name: String,
    /// From its first request to its last answer.
    pub time_ns: u64,
    /// Requests answered, by kind.
    pub reads: u64,
    /// Writes answered.
    pub writes: u64,
    /// Flushes answered.
    pub flushes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Times from request (or its arrival) to answer, in ns.
    pub read_ns: Histogram<u64>,
    /// Times of writes, in ns.
    pub write_ns: Histogram<u64>,
    /// Times of flushes, in ns.
    pub flush_ns: Histogram<u64>,
}

/// The result of a phase.
#[derive(Clone, Debug)]
pub struct PhaseResult {
    /// The time that the phase took.
    pub time_ns: u64,
    /// The jobs, in order.
    pub jobs: Vec<JobResult>,
    /// The figures over time.
    pub series: Vec<Interval>,
    /// The traffic of the devices before the phase.
    pub before: Traffic,
    /// The traffic of the devices after the phase.
    pub after: Traffic,
    /// The rest of its time, in which all would have gone on as in its last intervals.
    pub unsimulated_ns: u64,
}

impl PhaseResult {
    /// Bytes answered and time, with the rest that wasn't simulated.
    #[must_use]
    pub fn bytes_and_ns(&self) -> (f64, f64) {
        let bytes: u64 = self.jobs.iter().map(|job| job.read_bytes + job.write_bytes).sum();
        let all = (bytes as f64, self.time_ns as f64);
        // The very last interval may be a short one.
        let window = self.series.len().saturating_sub(SETTLED + 1)..self.series.len().saturating_sub(1);
        if self.unsimulated_ns == 0 || window.is_empty() {
            return all;
        }
        let begin_ns = window.start.checked_sub(1).map_or(0, |before| self.series[before].end_ns);
        let ns = self.series[window.end - 1].end_ns - begin_ns;
        let last: u64 = self.series[window].iter().map(Interval::bytes).sum();
        let rest_ns = self.unsimulated_ns as f64;
        (all.0 + last as f64 * rest_ns / ns as f64, all.1 + rest_ns)
    }
}

impl Interval {
    /// Answered to all jobs.
    pub(super) fn bytes(&self) -> u64 {
        self.read_bytes.iter().chain(&self.write_bytes).sum()
    }
}
