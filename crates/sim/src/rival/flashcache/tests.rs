// SPDX-License-Identifier: MIT OR Apache-2.0
//! These tests check what a user of flashcache sees, as the sources have it.

use flashfront_device::sim::{Fill, HddSpec, ModelSpec, SsdSpec};

use super::*;
use crate::load::{Job, Pattern, PhaseResult, idle, run};

const MIB: u64 = 1 << 20;

struct Bench {
    system: Box<dyn System>,
    now: Time,
    number: u64,
}

impl Bench {
    fn new(cache_bytes: u64) -> Self {
        let geometry = Geometry {
            origin: ModelSpec::Hdd(HddSpec::default()),
            origin_bytes: 4_000_000_000_000,
            cache: ModelSpec::Ssd(SsdSpec::samsung_850_pro(Fill::Clean)),
            cache_bytes,
        };
        Self { system: (FLASHCACHE.build)(&geometry), now: Time(0), number: 0 }
    }

    fn job(&mut self, job: &Job) -> PhaseResult {
        let jobs = std::slice::from_ref(job);
        run(&mut *self.system, &mut self.now, &mut self.number, jobs, 1 << 40, &mut |_| true).expect("nothing stops it")
    }
}

fn sequential(read: bool, offset_mib: u64, mib: u64) -> Job {
    Job {
        read_percent: if read { 100 } else { 0 },
        block_bytes: 128 << 10,
        offset_bytes: offset_mib * MIB,
        span_bytes: mib * MIB,
        total_bytes: mib * MIB,
        ..Job::default()
    }
}

fn rate(result: &PhaseResult) -> f64 {
    (result.jobs[0].read_bytes + result.jobs[0].write_bytes) as f64 / 1024.0 / (result.time_ns as f64 / 1e9)
}

/// Tasks 1 and 2: at their first read all blocks are written to the SSD, without metadata. That
/// costs a fifth of the disk's speed.
#[test]
fn the_first_reading_is_cached() {
    let mut bench = Bench::new(1024 * MIB);
    let first = bench.job(&sequential(true, 0, 128));
    let moved = first.after;
    assert_eq!((moved.origin_read_bytes, moved.cache_write_bytes), (128 * MIB, 128 * MIB));
    let second = bench.job(&sequential(true, 0, 128));
    let moved = second.after;
    assert_eq!(
        (moved.origin_read_bytes, moved.cache_write_bytes, moved.cache_read_bytes),
        (128 * MIB, 128 * MIB, 128 * MIB)
    );
    assert!((100_000.0..173_000.0).contains(&rate(&first)), "{}", rate(&first));
    assert!((240_000.0..300_000.0).contains(&rate(&second)), "{}", rate(&second));
}

/// Task 6: each byte costs 1.03 written bytes. A block of metadata holds 32 changes at once.
#[test]
fn a_request_that_makes_blocks_dirty_writes_one_block_of_metadata() {
    let mut bench = Bench::new(16 << 30);
    let written = bench.job(&sequential(false, 0, 16)).after;
    assert_eq!((written.origin_write_bytes, written.dirty_bytes), (0, 16 * MIB));
    let metadata = (written.cache_write_bytes - 16 * MIB) / BLOCK;
    assert!((128..=140).contains(&metadata), "{metadata}");
    // Blocks that are dirty already need no metadata.
    let again = bench.job(&sequential(false, 0, 16)).after;
    assert_eq!(again.cache_write_bytes - written.cache_write_bytes, 16 * MIB);
}

/// Tasks 7 to 13: a set is cleaned above a fifth. This is so slow that most of the cache gets
/// dirty, and writes find no room.
#[test]
fn the_dirty_limit_is_not_held() {
    let mut bench = Bench::new(1024 * MIB);
    let begin = bench.job(&sequential(false, 0, 256));
    bench.job(&sequential(false, 256, 1024));
    let end = bench.job(&sequential(false, 1280, 1024));
    assert!(end.after.dirty_bytes > 1024 * MIB / 2, "{}", end.after.dirty_bytes);
    assert!(rate(&end) < rate(&begin) / 2.0, "{} {}", rate(&begin), rate(&end));
    let past = end.after.origin_write_bytes - end.before.origin_write_bytes;
    let put = end.after.cache_write_bytes - end.before.cache_write_bytes;
    assert!(put < 900 * MIB && past > 300 * MIB, "{put} {past}");
    // Once a second a set is cleaned down to its limit, even without requests.
    idle(&mut *bench.system, &mut bench.now, 1_000_000_000_000, &mut |_| true).expect("nothing stops it");
    let rested = bench.system.traffic().dirty_bytes;
    assert!(rested < 1024 * MIB * 3 / 10, "{rested}");
}

/// Writes and reads that miss begin cleaning. That is why tasks 15 to 19 found so many blocks still
/// dirty.
#[test]
fn a_read_from_the_cache_cleans_nothing() {
    let mut bench = Bench::new(64 * MIB);
    bench.job(&sequential(false, 0, 24));
    // Cleaning that was begun ends here. The look at all sets is still to come, a second after the
    // first set had to wait.
    idle(&mut *bench.system, &mut bench.now, 500_000_000, &mut |_| true).expect("nothing stops it");
    let rested = bench.system.traffic();
    assert!(rested.dirty_bytes > 16 * MIB, "{}", rested.dirty_bytes);
    let read = bench.job(&sequential(true, 0, 24)).after;
    assert!(bench.now < Time(1_000_000_000), "{:?}", bench.now);
    assert_eq!((read.origin_read_bytes, read.origin_write_bytes), (0, rested.origin_write_bytes));
}

#[test]
fn requests_for_a_busy_block_wait_for_it() {
    let mut bench = Bench::new(64 * MIB);
    let one = Job { total_bytes: MIB, block_bytes: 4096, span_bytes: 4096, depth: 8, ..Job::default() };
    let read = bench.job(&one).after;
    // One of the eight requests went to the disk. The others read the block that it brought.
    assert_eq!((read.origin_read_bytes, read.cache_read_bytes), (4096, MIB - 4096));
    let written = bench.job(&Job { read_percent: 0, ..one }).after;
    assert_eq!(written.cache_write_bytes - read.cache_write_bytes, MIB + 4096);
}

#[test]
fn every_request_of_a_mix_is_answered() {
    let mut bench = Bench::new(64 * MIB);
    let mix = Job {
        pattern: Pattern::Random,
        read_percent: 50,
        block_bytes: 1 << 20,
        span_bytes: 256 * MIB,
        total_bytes: 1024 * MIB,
        depth: 32,
        writes_per_flush: 10,
        ..Job::default()
    };
    let result = bench.job(&mix);
    assert_eq!(result.jobs[0].reads + result.jobs[0].writes, 1024);
    assert!(result.jobs[0].flushes > 0);
}
