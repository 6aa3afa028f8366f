// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a comparison smaller: sizes and times are divided by a number.
//!
//! A disk answers as fast as before, so a cache of a sixteenth is full, and learns, in a sixteenth
//! of the time. What a cache does by its own clock stays: smq counts by periods of 10 and 60 s.

use super::{Comparison, Session};
use crate::load::Job;

/// Metadata of caches hardly shrinks with them: this much of each cache device stays.
const METADATA_BYTES: u64 = 8 << 20;

impl Comparison {
    /// Divides sizes and times by `divisor`; blocks and depths stay.
    #[must_use]
    pub fn scaled(mut self, divisor: u64) -> Self {
        for session in &mut self.sessions {
            session.scale(divisor.max(1));
        }
        self
    }
}

impl Session {
    fn scale(&mut self, divisor: u64) {
        let cache = &mut self.geometry.cache_bytes;
        let metadata = METADATA_BYTES.min(*cache);
        *cache = metadata + part(*cache - metadata, divisor, 1 << 20);
        for task in &mut self.tasks {
            task.idle_before_ns /= divisor;
            task.jobs = task.jobs.iter().map(|job| scaled(job, divisor)).collect();
        }
    }
}

fn scaled(job: &Job, divisor: u64) -> Job {
    // The largest requests of the suites are of 128 KiB, and a place is a multiple of all blocks.
    let bytes = |bytes: u64| part(bytes, divisor, (128 << 10).max(job.block_bytes));
    Job {
        offset_bytes: bytes(job.offset_bytes),
        span_bytes: bytes(job.span_bytes),
        total_bytes: bytes(job.total_bytes),
        time_ns: part(job.time_ns, divisor, 1_000_000_000),
        start_ns: job.start_ns / divisor,
        ramp_ns: job.ramp_ns / divisor,
        ..job.clone()
    }
}

/// A part of something in whole units, at least one unit; nothing stays nothing.
fn part(of: u64, divisor: u64, unit: u64) -> u64 {
    if of == 0 || divisor == 1 { of } else { (of / divisor / unit * unit).max(unit) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::ALL;

    #[test]
    fn a_smaller_comparison_asks_for_its_share_of_everything() {
        for suite in ALL {
            let (full, small) = (Comparison::of(suite), Comparison::of(suite).scaled(16));
            assert_eq!(
                full.sessions[0].geometry.cache_bytes,
                Comparison::of(suite).scaled(1).sessions[0].geometry.cache_bytes
            );
            let share = small.work_bytes() as f64 / full.work_bytes() as f64;
            assert!((0.055..0.07).contains(&share), "{}: {share}", suite.name);
            for (full, small) in full.sessions.iter().zip(&small.sessions) {
                let cache = |session: &Session| (session.geometry.cache_bytes - METADATA_BYTES) as f64;
                assert!((cache(small) * 16.0 / cache(full) - 1.0).abs() < 0.01, "{}", suite.name);
            }
        }
    }
}
