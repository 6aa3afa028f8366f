// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job says what its clients ask for, and how fast.

use flashfront_device::Rng;

use super::lengths::Lengths;

/// The places that requests go to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// Places come one after the other from the first; from there again at the end.
    Sequential,
    /// Each place once in random order, then once more in another.
    Random,
    /// Any place at any time (fio's `norandommap`).
    Uniform,
    /// Upwards with random gaps of so many places in the mean, as an ideal elevator goes over
    /// random dirty blocks.
    Ascending(f64),
    /// Random places, their ranks after fio's zipf with this exponent, which is not 1.
    Zipf(f64),
    /// Random places, after fio's Pareto distribution: a part h of the places takes all but h of
    /// the requests, and so do they among themselves.
    Pareto(f64),
    /// Random places, normally distributed around the middle before they are scattered; the
    /// deviation is in percent of all places.
    Normal(f64),
    /// Random places in the job's `zones`.
    Zoned,
}

/// A part of a job's range, for [`Pattern::Zoned`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Zone {
    /// The share of the requests that go there, in percent.
    pub requests_percent: f64,
    /// The length of the part, in percent of the job's range. Zones lie one after the other.
    pub span_percent: f64,
}

/// A job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The name in results.
    pub name: String,
    /// The places that requests go to.
    pub pattern: Pattern,
    /// How many of a hundred requests are reads.
    pub read_percent: u32,
    /// The length of each request, and the unit of places. If lengths differ, requests begin at
    /// multiples of it.
    pub block_bytes: u64,
    /// The lengths of reads.
    pub read_lengths: Lengths,
    /// The lengths of writes.
    pub write_lengths: Lengths,
    /// The parts of the range, for [`Pattern::Zoned`].
    pub zones: Vec<Zone>,
    /// How many requests follow one another at each random place (fio's `rw=randread:N`).
    pub run_requests: u32,
    /// How many of a hundred requests of a random pattern go to a new place; the others follow the
    /// request before them.
    pub random_percent: u32,
    /// What a sequential job leaves out after each request, in bytes; negative: it goes back (fio's
    /// `rw=read:-8k`).
    pub gap_bytes: i64,
    /// First byte of its range.
    pub offset_bytes: u64,
    /// Length of its range.
    pub span_bytes: u64,
    /// The job ends when so much has been asked for; 0 = by time.
    pub total_bytes: u64,
    /// The job ends when it has asked so many requests; 0 = it doesn't count them.
    pub total_requests: u64,
    /// After the last write all that was written is read once, in the same order (fio's `verify`).
    pub rereads: bool,
    /// The job ends after so long; 0 = by bytes.
    pub time_ns: u64,
    /// The job begins so long after its phase.
    pub start_ns: u64,
    /// The job's first part, which no figure counts; `time_ns` includes it, `total_bytes` doesn't
    /// (fio's `ramp_time`).
    pub ramp_ns: u64,
    /// The job asks for nothing for so long after every `think_requests` answers.
    pub think_ns: u64,
    /// The answers between two such pauses.
    pub think_requests: u32,
    /// The most requests in flight.
    pub depth: u32,
    /// Split into so many streams, each with its part of the range, of the total and of the depth
    /// (fio's `numjobs`, with `offset_increment`).
    pub streams: u32,
    /// A FLUSH after so many writes of a worker; 0 = never.
    pub writes_per_flush: u32,
    /// Open: so many requests a second arrive. 0 = closed.
    pub rate_per_s: f64,
    /// The times between arrivals of an open job are exponentially distributed, not equal.
    pub poisson: bool,
    /// The time for which requests of an open job arrive.
    pub on_ns: u64,
    /// The time for which they don't after that. 0 = always on.
    pub off_ns: u64,
    /// Whether the job doesn't keep the phase going: it ends with the others.
    pub background: bool,
    /// Whether the job ends by time, and earlier when nothing changes any more. That is so when
    /// bytes were the same to one in a hundred for three times [`SETTLED`](super::SETTLED)
    /// intervals. And 999 of 1000 blocks were hits, or there is no cache.
    pub settles: bool,
    /// The seed of its random numbers.
    pub seed: u64,
    /// The sequence of random requests with this seed, at the same popular places. A job that
    /// follows another one like it doesn't ask for the same once more.
    pub sequence: u64,
}

impl Default for Job {
    /// Closed, one worker, sequential reads of 4 KiB without end.
    fn default() -> Self {
        Self {
            name: String::new(),
            pattern: Pattern::Sequential,
            read_percent: 100,
            block_bytes: 4096,
            read_lengths: Lengths::Block,
            write_lengths: Lengths::Block,
            zones: Vec::new(),
            run_requests: 1,
            random_percent: 100,
            gap_bytes: 0,
            offset_bytes: 0,
            span_bytes: 0,
            total_bytes: 0,
            total_requests: 0,
            rereads: false,
            time_ns: 0,
            start_ns: 0,
            ramp_ns: 0,
            think_ns: 0,
            think_requests: 1,
            depth: 1,
            streams: 1,
            writes_per_flush: 0,
            rate_per_s: 0.0,
            poisson: false,
            on_ns: 0,
            off_ns: 0,
            background: false,
            settles: false,
            seed: 1,
            sequence: 0,
        }
    }
}

impl Job {
    /// The seed of its nth clone: consecutive ones would share the places evenly, and never meet.
    #[must_use]
    pub const fn clone_seed(&self, nth: u64) -> u64 {
        if nth == 0 { self.seed } else { Rng::new(self.seed.wrapping_add(nth)).next_u64() >> 16 }
    }
}
