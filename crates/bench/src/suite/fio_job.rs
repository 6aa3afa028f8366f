// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job of fio as a value. `fio_job` knows nothing of devices; the runner adds where it runs.

use std::time::Duration;

/// The pattern of a job's requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// Places follow one another.
    Sequential,
    /// Each place once, in random order.
    Random,
    /// Any place at any time (fio's `norandommap`).
    Uniform,
    /// Random places with a popularity after Zipf, with this exponent.
    Zipf(f64),
}

/// A job of fio.
#[derive(Clone, Debug, PartialEq)]
pub struct FioJob {
    /// The name in fio's output.
    pub name: String,
    /// The pattern of its requests.
    pub pattern: Pattern,
    /// How many of a hundred requests are reads.
    pub read_percent: u32,
    /// Length of a request.
    pub block_bytes: u64,
    /// First byte of its range.
    pub offset_bytes: u64,
    /// Length of its range.
    pub span_bytes: u64,
    /// The job ends when this much has been asked for; 0: it ends by time.
    pub total_bytes: u64,
    /// The job ends after this time; zero = by bytes.
    pub time: Duration,
    /// Requests in flight, of each clone.
    pub depth: u32,
    /// Clones that run at the same time in the same range, `total_bytes` each (fio's `numjobs`).
    pub clones: u32,
    /// The seed of its random numbers.
    pub seed: u64,
}
