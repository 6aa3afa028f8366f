// SPDX-License-Identifier: MIT OR Apache-2.0
//! What users of gflash noticed and its sources state, on a small SSD.

use flashfront_device::sim::{Fill, HddSpec, SsdSpec};
use flashfront_engine::Time;

use super::*;
use crate::load::{Job, Pattern, PhaseResult, idle, run};
use crate::system::System;

const MIB: u64 = 1 << 20;
const RAM: u64 = 128 * MIB;
const SECOND_NS: u64 = 1_000_000_000;

struct Bench {
    system: Box<dyn System>,
    now: Time,
    number: u64,
}

/// On an SSD of 1 GiB before a disk of 64 GiB, with 128 MiB of RAM.
fn bench() -> Bench {
    let geometry = Geometry {
        origin: flashfront_device::sim::ModelSpec::Hdd(HddSpec::default()),
        origin_bytes: 64 << 30,
        cache: flashfront_device::sim::ModelSpec::Ssd(SsdSpec::samsung_850_pro(Fill::Clean)),
        cache_bytes: 1 << 30,
    };
    let system = Box::new(Rig::new(&geometry, Gflash::new(&geometry, RAM), |_, _| {}));
    Bench { system, now: Time(0), number: 0 }
}

impl Bench {
    fn run(&mut self, jobs: &[Job]) -> PhaseResult {
        run(&mut *self.system, &mut self.now, &mut self.number, jobs, SECOND_NS, &mut |_| true).unwrap()
    }

    fn idle(&mut self, seconds: u64) {
        idle(&mut *self.system, &mut self.now, seconds * SECOND_NS, &mut |_| true).unwrap();
    }

    fn dirty(&self) -> u64 {
        self.system.traffic().dirty_bytes
    }
}

fn reads(mib: u64, from_mib: u64) -> Job {
    Job {
        block_bytes: 128 << 10,
        offset_bytes: from_mib * MIB,
        span_bytes: mib * MIB,
        total_bytes: mib * MIB,
        ..Job::default()
    }
}

fn writes(mib: u64, from_mib: u64) -> Job {
    Job { read_percent: 0, ..reads(mib, from_mib) }
}

fn small_writes(mib: u64) -> Job {
    Job { pattern: Pattern::Random, block_bytes: 4096, ..writes(mib, 0) }
}

/// Read from and written to the cache device, read from and written to the origin.
fn moved(phase: &PhaseResult) -> [u64; 4] {
    let (before, after) = (&phase.before, &phase.after);
    [
        after.cache_read_bytes - before.cache_read_bytes,
        after.cache_write_bytes - before.cache_write_bytes,
        after.origin_read_bytes - before.origin_read_bytes,
        after.origin_write_bytes - before.origin_write_bytes,
    ]
}

fn mib_per_s(phase: &PhaseResult) -> f64 {
    let bytes: u64 = phase.jobs.iter().map(|job| job.read_bytes + job.write_bytes).sum();
    bytes as f64 / MIB as f64 * 1e9 / phase.time_ns as f64
}

#[test]
fn the_second_read_puts_it_on_the_ssd_and_the_third_comes_from_there() {
    let mut bench = bench();
    let bytes = 64 * MIB;
    assert_eq!(moved(&bench.run(&[reads(64, 0)])), [0, 0, bytes, 0]);
    // And 1 KiB of metadata for each request of 128 KiB.
    assert_eq!(moved(&bench.run(&[reads(64, 0)])), [0, bytes + bytes / 128, bytes, 0]);
    assert_eq!(moved(&bench.run(&[reads(64, 0)])), [bytes, 0, 0, 0]);
    // Half of it is there.
    assert_eq!(moved(&bench.run(&[reads(64, 32)])), [bytes / 2, 0, bytes / 2, 0]);
}

#[test]
fn metadata_is_a_kib_for_each_write() {
    let mut bench = bench();
    assert_eq!(moved(&bench.run(&[writes(16, 0)]))[1], 16 * MIB + (128 << 10));
    assert_eq!(moved(&bench.run(&[small_writes(16)]))[1], 20 * MIB);
}

#[test]
fn writes_run_at_the_speed_of_the_ssd_until_ram_is_full_and_then_at_that_of_the_disk() {
    let mut bench = bench();
    let fits = bench.run(&[writes(100, 0)]);
    assert!(mib_per_s(&fits) > 400.0, "{}", mib_per_s(&fits));
    bench.run(&[writes(128, 100)]);
    let overload = bench.run(&[writes(512, 228)]);
    // The disk's outermost tracks: 178 MB/s.
    assert!((160.0..170.0).contains(&mib_per_s(&overload)), "{}", mib_per_s(&overload));
    assert!(overload.series.iter().all(|it| it.traffic.dirty_bytes <= RAM));
    assert_eq!(moved(&overload)[0], 0, "destage comes from RAM");
}

#[test]
fn a_write_is_acknowledged_before_it_is_on_the_ssd_but_no_more_than_four_are() {
    let mut bench = bench();
    let one = bench.run(&[small_writes(16)]);
    // The SSD takes 36 us for each.
    assert!(one.jobs[0].write_ns.value_at_quantile(0.5) < 25_000);
    // 256 writes of 128 KiB at once: only four of them don't wait for the SSD, which takes 280 us
    // for each.
    let many = bench.run(&[Job { depth: 256, total_bytes: 256 * (128 << 10), ..writes(32, 512) }]);
    let early = many.jobs[0].write_ns.count_between(0, 250_000);
    assert!((3..=6).contains(&early), "{early}");
}

#[test]
fn it_destages_while_nobody_reads_the_disk() {
    let mut bench = bench();
    bench.run(&[writes(64, 0)]);
    let dirty = bench.dirty();
    assert!(dirty > 60 * MIB, "not while writes come as fast as the SSD takes them: {dirty}");
    let misses = Job { time_ns: 5 * SECOND_NS, total_bytes: 0, pattern: Pattern::Random, ..reads(4096, 8192) };
    let beside_misses = moved(&bench.run(&[misses]))[3];
    assert!(beside_misses < 2 * MIB, "{beside_misses}");
    // Reads of the SSD don't hold it up. What was written is there as soon as it has left RAM.
    let hits = Job { time_ns: 2 * SECOND_NS, total_bytes: 0, ..reads(64, 0) };
    assert_eq!(moved(&bench.run(&[hits]))[2], 0);
    assert_eq!(bench.dirty(), 0);
    assert_eq!(bench.system.traffic().origin_write_bytes, 64 * MIB);
}

#[test]
fn what_is_dirty_counts_until_the_disk_was_flushed() {
    let mut bench = bench();
    bench.run(&[writes(16, 0)]);
    bench.idle(10);
    let traffic = bench.system.traffic();
    assert_eq!((traffic.dirty_bytes, traffic.origin_write_bytes), (0, 16 * MIB));
    assert!(traffic.origin_flushes >= 16, "one for each 128th of RAM: {}", traffic.origin_flushes);
}

#[test]
fn writes_evict_what_was_read() {
    let mut bench = bench();
    (0..3).for_each(|_| drop(bench.run(&[reads(64, 0)])));
    bench.run(&[writes(3072, 1024)]);
    bench.idle(10);
    // It has to be read twice again.
    assert_eq!(moved(&bench.run(&[reads(64, 0)])), [0, 0, 64 * MIB, 0]);
    assert_eq!(moved(&bench.run(&[reads(64, 0)]))[2], 64 * MIB);
    assert_eq!(moved(&bench.run(&[reads(64, 0)]))[0], 64 * MIB);
    // What was written last is there: most of an SSD's worth.
    assert_eq!(moved(&bench.run(&[reads(512, 3584)]))[0], 512 * MIB);
}

#[test]
fn a_flush_makes_all_durable_that_was_acknowledged() {
    let mut bench = bench();
    let job = Job { writes_per_flush: 1, ..small_writes(1) };
    let phase = bench.run(&[job]);
    assert_eq!(phase.jobs[0].flushes, 255);
    assert_eq!(phase.after.cache_flushes, 255);
    // Each takes a record of metadata with it, and the SSD's flush takes 1.7 ms.
    assert_eq!(moved(&phase)[1], 256 * 4096 + 255 * 4096);
    assert!(phase.jobs[0].flush_ns.min() >= 1_700_000);
}

#[test]
fn what_is_written_while_it_leaves_stays_dirty() {
    let mut bench = bench();
    // The same 64 KiB over and over: each round is destaged while the next comes.
    let job = Job { span_bytes: 64 << 10, block_bytes: 4096, total_bytes: 64 * MIB, ..writes(0, 0) };
    let phase = bench.run(&[job]);
    assert!(phase.after.dirty_bytes > 0 && phase.after.dirty_bytes <= 128 << 10, "{}", phase.after.dirty_bytes);
    bench.idle(10);
    assert_eq!(bench.dirty(), 0);
}
