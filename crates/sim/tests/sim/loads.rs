// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache is not worse than the disk alone, whatever the load. The loads are random, from a
//! small grammar, on the calibrated device models.

use flashfront_device::Rng;
use flashfront_device::sim::{Fill, HddSpec, ModelSpec, SsdSpec};
use flashfront_engine::{BLOCK_BYTES, Mode, Options, Time};
use flashfront_sim::load::{Job, Pattern, PhaseResult, run};
use flashfront_sim::system::{Bare, Flashfront, FlashfrontSpec, System};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const HDD_BYTES: u64 = 4_000 * GIB;
const CACHE_BYTES: u64 = GIB;
/// docs/laboratory/destage.md promises that a request waits at most two seconds longer than it
/// would for the bare disk. Two seconds are a flush of the disk's write cache with direct writes in
/// it.
const WAIT_MAX_NS: u64 = 2_000_000_000;
/// At the dirty limit the promise is longer. A request may also wait while the disk takes as many
/// scattered blocks as are asked for at a time.
const NS_PER_BLOCK_MAX: u64 = 2_500_000;
/// The number of loads that are tried. 400 were tried on 2026-11-22.
const LOADS: u64 = 60;

fn hdd() -> ModelSpec {
    ModelSpec::Hdd(HddSpec::default())
}

fn ssd() -> ModelSpec {
    ModelSpec::Ssd(SsdSpec::samsung_850_pro(Fill::Clean))
}

fn one_of<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.below(all.len() as u64) as usize]
}

/// load := phase+ flush ; phase := job | job job ; job := pattern block depth share-of-reads
/// flushes place size
fn job(rng: &mut Rng) -> Job {
    let pattern = match rng.below(4) {
        0 => Pattern::Sequential,
        1 => Pattern::Zipf(1.1),
        _ => Pattern::Random,
    };
    let block_bytes = one_of(rng, &[4096, 4096, 8192, 65_536, MIB / 2]);
    let requests = if block_bytes > 8192 { 200 + rng.below(800) } else { 1000 + rng.below(8000) };
    Job {
        pattern,
        block_bytes,
        read_percent: one_of(rng, &[0, 0, 30, 67, 100]),
        depth: one_of(rng, &[1, 4, 32]),
        writes_per_flush: one_of(rng, &[0, 0, 1, 64]),
        offset_bytes: rng.below(3000) * GIB,
        span_bytes: one_of(rng, &[256 * MIB, 4 * GIB, 64 * GIB]),
        total_bytes: requests * block_bytes,
        seed: rng.next_u64() % 1000,
        ..Job::default()
    }
}

fn load(seed: u64) -> Vec<Vec<Job>> {
    let mut rng = Rng::new(seed);
    let phases = 1 + rng.below(3);
    let mut load: Vec<Vec<Job>> = (0..phases).map(|_| (0..1 + rng.below(2)).map(|_| job(&mut rng)).collect()).collect();
    // All of it is made durable. Otherwise data that is still in the disk's write cache would count
    // as done.
    let flush = Job { read_percent: 0, span_bytes: MIB, total_bytes: 2 * 4096, writes_per_flush: 1, ..Job::default() };
    load.push(vec![flush]);
    load
}

fn run_on(system: &mut dyn System, load: &[Vec<Job>]) -> Vec<PhaseResult> {
    let (mut now, mut number) = (Time(0), 0);
    let phases = load.iter();
    phases
        .map(|jobs| run(system, &mut now, &mut number, jobs, 10_000_000, &mut |_| true).expect("not stopped"))
        .collect()
}

fn longest_ns(phases: &[PhaseResult]) -> u64 {
    let jobs = phases.iter().flat_map(|phase| &phase.jobs);
    jobs.flat_map(|job| [job.read_ns.max(), job.write_ns.max(), job.flush_ns.max()]).max().unwrap_or(0)
}

/// The most blocks that a load asks for at a time.
fn blocks_at_a_time(load: &[Vec<Job>]) -> u64 {
    let of = |jobs: &Vec<Job>| jobs.iter().map(|job| u64::from(job.depth) * job.block_bytes / BLOCK_BYTES).sum();
    load.iter().map(of).max().unwrap_or(0)
}

/// Checks each load: dirty data stays within its limit, and no wait is beyond the promised one. The
/// speed is at least nine tenths of the bare disk's.
#[test]
fn never_worse_than_the_disk_alone() {
    for seed in 0..LOADS {
        let load = load(seed);
        let limit = one_of(&mut Rng::new(seed + 1000), &[64 * MIB, 128 * MIB, 512 * MIB]);
        let options = Options { dirty_limit_blocks: Some(limit / BLOCK_BYTES), ..Options::default() };
        let spec = FlashfrontSpec {
            origin: hdd(),
            origin_bytes: HDD_BYTES,
            cache: ssd(),
            cache_bytes: CACHE_BYTES,
            mode: Mode::Writeback,
            options,
        };
        let ours = run_on(&mut Flashfront::new(&spec), &load);
        let bare = run_on(&mut Bare::new(hdd(), HDD_BYTES), &load);
        for point in ours.iter().flat_map(|phase| &phase.series) {
            let traffic = &point.traffic;
            assert!(traffic.dirty_bytes <= traffic.dirty_limit_bytes, "load {seed}: {traffic:?}");
        }
        let (waited, may_wait) =
            (longest_ns(&ours), longest_ns(&bare) + WAIT_MAX_NS + blocks_at_a_time(&load) * NS_PER_BLOCK_MAX);
        let ms = |ns: u64| ns / 1_000_000;
        assert!(waited <= may_wait, "load {seed}: waited {} ms of {} ms\n{load:#?}", ms(waited), ms(may_wait));
        let time = |phases: &[PhaseResult]| phases.iter().map(|phase| phase.time_ns).sum::<u64>() as f64;
        let speed = time(&bare) / time(&ours);
        assert!(speed >= 0.9, "load {seed}: {speed:.2} of the bare disk's speed\n{load:#?}");
    }
}
