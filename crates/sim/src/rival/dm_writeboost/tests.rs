// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a user of dm-writeboost would notice, and its sources say.

use flashfront_device::sim::{Fill, HddSpec, ModelSpec, SsdSpec};
use flashfront_engine::Time;

use super::{Cells, SPEC, SPEC_READCACHE, build};
use crate::load::{Job, Pattern, idle, run};
use crate::rival::{Geometry, Spec};
use crate::system::{System, Traffic};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const SECOND_NS: u64 = 1_000_000_000;

struct Bench {
    system: Box<dyn System>,
    now: Time,
    number: u64,
}

impl Bench {
    fn new(spec: &Spec, cache_bytes: u64) -> Self {
        Self::of(spec.build, cache_bytes)
    }

    fn of(build: impl FnOnce(&Geometry) -> Box<dyn System>, cache_bytes: u64) -> Self {
        let geometry = Geometry {
            origin: ModelSpec::Hdd(HddSpec::default()),
            origin_bytes: 64 * GIB,
            cache: ModelSpec::Ssd(SsdSpec::samsung_850_pro(Fill::Clean)),
            cache_bytes,
        };
        Self { system: build(&geometry), now: Time(0), number: 0 }
    }

    /// Runs a job; what all have moved, and how long it took.
    fn run(&mut self, job: Job) -> (Traffic, u64) {
        let result = run(&mut *self.system, &mut self.now, &mut self.number, &[job], SECOND_NS, &mut |_| true).unwrap();
        (result.after, result.time_ns)
    }

    fn idle(&mut self, seconds: u64) -> Traffic {
        idle(&mut *self.system, &mut self.now, seconds * SECOND_NS, &mut |_| true).unwrap();
        self.system.traffic()
    }
}

fn random(read_percent: u32, span_bytes: u64, total_bytes: u64) -> Job {
    Job {
        pattern: Pattern::Random,
        read_percent,
        block_bytes: 4096,
        span_bytes,
        total_bytes,
        depth: 8,
        ..Job::default()
    }
}

#[test]
fn writes_go_to_the_cache_in_whole_segments() {
    let mut life = Bench::new(&SPEC, GIB);
    // Two segments and a block: the third stays in RAM, the last is closed by what comes next.
    let (moved, _) = life.run(random(0, GIB, (2 * 127 + 1) * 4096));
    assert_eq!(life.idle(1).cache_write_bytes, 2 * 128 * 4096, "{moved:?}");
    assert_eq!(moved.dirty_bytes, (2 * 127 + 1) * 4096);
}

#[test]
fn a_block_written_again_at_once_takes_no_room() {
    let mut life = Bench::new(&SPEC, GIB);
    let (moved, _) = life.run(random(0, 64 * 4096, 100 * 64 * 4096));
    assert_eq!((moved.cache_write_bytes, moved.dirty_bytes), (0, 64 * 4096));
}

#[test]
fn each_flush_costs_a_slot() {
    let mut life = Bench::new(&SPEC, 64 * MIB);
    // 126 slots hold 126 flushed blocks only: the ring is full, and the first ones have to be
    // written back.
    let job = Job { writes_per_flush: 1, depth: 1, ..random(0, GIB, 200 * 4096) };
    let (moved, _) = life.run(job);
    assert!(moved.cache_flushes >= 199 && moved.cache_write_bytes >= 199 * 2 * 4096, "{moved:?}");
    assert!(moved.origin_write_bytes >= 70 * 4096, "{moved:?}");
}

#[test]
fn reads_are_cached_only_with_a_threshold_and_only_single_blocks() {
    // So far apart that few are neighbours.
    let single = || random(100, GIB, 8 * MIB);
    let again = |spec: &Spec, job: Job| {
        let mut life = Bench::new(spec, GIB);
        let first = life.run(job.clone()).0.origin_read_bytes;
        life.run(job).0.origin_read_bytes - first
    };
    assert_eq!(again(&SPEC, single()), 8 * MIB);
    let missed = again(&SPEC_READCACHE, single());
    assert!(missed < MIB, "{missed} bytes read again");
    let long = Job { pattern: Pattern::Sequential, block_bytes: 64 << 10, ..single() };
    assert_eq!(again(&SPEC_READCACHE, long), 8 * MIB, "runs are cancelled");
    let scattered = random(100, 8 * MIB, 8 * MIB);
    assert_eq!(again(&SPEC_READCACHE, scattered), 8 * MIB, "runs whose blocks were read in any order, too");
}

#[test]
fn nothing_is_cached_before_2048_different_blocks_were_missed() {
    let mut life = Bench::new(&SPEC_READCACHE, GIB);
    let (moved, _) = life.run(random(100, 4 * MIB, 64 * MIB));
    assert_eq!((moved.origin_read_bytes, moved.cache_write_bytes), (64 * MIB, 0));
    let (moved, _) = life.run(random(100, GIB, 8 * MIB));
    assert!(moved.cache_write_bytes > 0, "{moved:?}");
}

#[test]
fn what_was_missed_first_is_cached_last_if_no_write_came() {
    let mut cells = Cells::new(1);
    let blocks = || (0..2048).map(|nth| nth * 10);
    assert!(blocks().all(|block| cells.reserve(block)));
    assert!(!cells.reserve(10) && !cells.reserve(7), "each has a cell already, or there are no more");
    cells.cancel(20);
    assert!(!cells.ended(2047) && cells.ended(1));
    let mut cached = Vec::new();
    while let Some(block) = cells.next() {
        cached.push(block);
        cells.pop();
    }
    assert!(cached.into_iter().rev().eq(blocks().filter(|block| *block != 20)));
    assert!(cells.reserve(7), "they are taken anew");
}

#[test]
fn what_is_in_the_open_segment_is_read_from_the_origin() {
    let mut life = Bench::new(&SPEC, GIB);
    // Two segments that are closed at the last block, which opens the third.
    let bytes = (2 * 127 + 1) * 4096;
    let (written, _) = life.run(random(0, GIB, bytes));
    let (read, _) = life.run(random(100, GIB, bytes));
    assert_eq!((written.origin_read_bytes, read.origin_read_bytes), (0, 4096));
    assert_eq!(read.cache_read_bytes - written.cache_read_bytes, 2 * 127 * 4096);
}

#[test]
fn a_segment_is_read_for_destage_even_if_nothing_in_it_is_dirty() {
    let mut life = Bench::new(&SPEC_READCACHE, GIB);
    life.run(random(100, GIB, 8 * MIB));
    let after = life.idle(10);
    assert!(after.cache_write_bytes > 7 * MIB, "{after:?}");
    assert_eq!((after.cache_read_bytes, after.origin_write_bytes), (after.cache_write_bytes / 128 * 127, 0));
}

#[test]
fn a_full_ring_writes_back_by_single_segments() {
    let mut life = Bench::of(|geometry| build(geometry, 0, 0), 256 * MIB);
    life.run(random(0, 8 * GIB, 200 * MIB));
    let (full, _) = life.run(random(0, 8 * GIB, 256 * MIB));
    let (after, time_ns) = life.run(random(0, 8 * GIB, 64 * MIB));
    let flushes = after.origin_flushes - full.origin_flushes;
    assert!(flushes >= 64 * MIB / (4 * 127 * 4096), "few segments in a batch: {flushes} batches");
    let mib_per_s = 64.0 / (time_ns as f64 / 1e9);
    assert!(mib_per_s < 10.0, "{mib_per_s} MiB/s of random writes with a full ring");
}

#[test]
fn what_is_dirty_goes_when_the_origin_is_idle() {
    let mut life = Bench::new(&SPEC, GIB);
    life.run(random(0, GIB, 64 * MIB));
    let after = life.idle(120);
    assert!(after.dirty_bytes < MIB, "{} KiB are dirty: only what is in the open segment", after.dirty_bytes >> 10);
    assert!(after.origin_write_bytes >= 63 * MIB, "{after:?}");
}
