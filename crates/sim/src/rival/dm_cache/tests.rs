// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a user of dm-cache sees, as the sources have it.

use flashfront_device::sim::{Fill, HddSpec, ModelSpec, SsdSpec};
use flashfront_engine::Time;

use super::setup::Setup;
use super::*;
use crate::load::{Job, Pattern, run};
use crate::rival::rig::SECOND_NS;
use crate::rival::spec::Geometry;
use crate::system::{System, Traffic};

const MIB: u64 = 1 << 20;
const MINUTE_NS: u64 = 60_000_000_000;

struct Bench {
    system: Box<dyn System>,
    now: Time,
    number: u64,
}

impl Bench {
    /// With so much room for blocks.
    fn new(spec: &Spec, setup: &Setup, cached_bytes: u64) -> Self {
        let geometry = Geometry {
            origin: ModelSpec::Hdd(HddSpec::default()),
            origin_bytes: 4_000_000_000_000,
            cache: ModelSpec::Ssd(SsdSpec::samsung_850_pro(Fill::Clean)),
            cache_bytes: setup.metadata_bytes + cached_bytes,
        };
        Self { system: (spec.build)(&geometry), now: Time(0), number: 0 }
    }

    /// What a job moves, with the dirty bytes after it; and its rate in MB/s.
    fn job(&mut self, job: &Job) -> (Traffic, f64) {
        let result =
            run(&mut *self.system, &mut self.now, &mut self.number, std::slice::from_ref(job), MINUTE_NS, &mut |_| {
                true
            });
        let result = result.expect("nothing stops it");
        let (before, after) = (result.before, result.after);
        let traffic = Traffic {
            cache_read_bytes: after.cache_read_bytes - before.cache_read_bytes,
            cache_write_bytes: after.cache_write_bytes - before.cache_write_bytes,
            cache_flushes: after.cache_flushes - before.cache_flushes,
            origin_read_bytes: after.origin_read_bytes - before.origin_read_bytes,
            origin_write_bytes: after.origin_write_bytes - before.origin_write_bytes,
            origin_flushes: after.origin_flushes - before.origin_flushes,
            ..after
        };
        let bytes = result.jobs[0].read_bytes + result.jobs[0].write_bytes;
        (traffic, bytes as f64 / 1e6 / (result.time_ns as f64 / 1e9))
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

/// Tasks 1 to 3 of 2015.
#[test]
fn mq_promotes_at_the_second_reading_and_serves_the_third() {
    let mut bench = Bench::new(&MQ, &SETUP_2015, 256 * MIB);
    let job = sequential(true, 1024, 64);
    let (first, _) = bench.job(&job);
    assert_eq!((first.origin_read_bytes, first.cache_write_bytes, first.cache_read_bytes), (64 * MIB, 0, 0));
    let (second, rate) = bench.job(&job);
    assert_eq!((second.origin_read_bytes, second.cache_read_bytes), (64 * MIB, 64 * MIB));
    // 256 blocks of 256 KiB, and 24 KiB of metadata for each.
    assert_eq!(second.cache_write_bytes, 64 * MIB + 256 * (24 << 10));
    assert!((20.0..45.0).contains(&rate), "{rate} MB/s, published 32.5");
    let (third, _) = bench.job(&job);
    assert_eq!((third.origin_read_bytes, third.cache_read_bytes, third.cache_write_bytes), (0, 64 * MIB, 0));
}

/// Task 6: 4 GiB written in 128 KiB became 8.2 read and 8.6 written on the SSD, 4.1 read and 8.2
/// written on the disk.
#[test]
fn mq_copies_a_block_to_the_cache_for_a_write_and_back_after_each() {
    let mut bench = Bench::new(&MQ, &SETUP_2015, 256 * MIB);
    bench.job(&sequential(false, 1024, 64));
    crate::load::idle(&mut *bench.system, &mut bench.now, MINUTE_NS, &mut |_| true).expect("nothing stops it");
    let all = bench.system.traffic();
    assert_eq!((all.cache_read_bytes, all.origin_read_bytes, all.origin_write_bytes), (128 * MIB, 64 * MIB, 128 * MIB));
    assert_eq!((all.cache_write_bytes, all.dirty_bytes), (128 * MIB + 256 * (24 << 10), 0));
}

/// Tasks 10 to 13: no promotions, at the disk's speed. Then tasks 14 and 20: what was read before
/// is still there, and what is asked for a third time gets a place.
#[test]
fn a_full_mq_leaves_writes_to_the_disk_until_they_come_again() {
    let mut bench = Bench::new(&MQ, &SETUP_2015, 256 * MIB);
    let read = sequential(true, 1024, 64);
    for _ in 0..20 {
        bench.job(&read);
    }
    bench.job(&sequential(false, 2048, 192));
    let (over, rate) = bench.job(&sequential(false, 4096, 1024));
    assert_eq!((over.cache_write_bytes, over.cache_read_bytes, over.origin_read_bytes), (0, 0, 0));
    assert_eq!(over.origin_write_bytes, (1024 * MIB) + (256 << 10), "the last block of before was on its way back");
    assert!(rate > 150.0, "{rate} MB/s");
    assert_eq!(bench.job(&read).0.origin_read_bytes, 0);
    let random = Job {
        pattern: Pattern::Random,
        read_percent: 0,
        offset_bytes: 8192 * MIB,
        span_bytes: 16 * MIB,
        total_bytes: 16 * MIB,
        ..Job::default()
    };
    let (came, _) = bench.job(&random);
    assert_eq!(came.origin_read_bytes, 16 * MIB, "each of the 64 blocks was promoted");
    // Two writes of each went to the disk, and then all that was dirty did, again and again.
    assert!(came.origin_write_bytes > 100 * 16 * MIB / 4, "{}", came.origin_write_bytes);
}

#[test]
fn a_flush_commits_and_flushes_both_devices() {
    for (spec, setup) in [(&MQ, &SETUP_2015), (&SMQ, &SETUP_SMQ)] {
        let mut bench = Bench::new(spec, setup, 64 * MIB);
        let (traffic, _) = bench.job(&Job { writes_per_flush: 5, ..sequential(false, 0, 1) });
        assert_eq!(traffic.origin_flushes, 1);
        assert!(traffic.cache_flushes >= 3, "two of the commit, one for the client");
    }
}

/// Zipf reads of data that would fit.
fn zipf(offset_mib: u64, mib: u64, seconds: u64) -> Job {
    Job {
        pattern: Pattern::Zipf(1.2),
        offset_bytes: offset_mib * MIB,
        span_bytes: mib * MIB,
        time_ns: seconds * 1_000_000_000,
        depth: 2,
        ..Job::default()
    }
}

/// The posts of 2017: before 4.12 a cache full of junk hardly learns, since then it does.
#[test]
fn a_cache_full_of_junk_learns_since_4_12() {
    let iops = |spec: &Spec, setup: &Setup| {
        let mut bench = Bench::new(spec, setup, 64 * MIB);
        let junk = Job { pattern: Pattern::Random, total_bytes: 256 * MIB, time_ns: 0, ..zipf(4096, 64, 0) };
        bench.job(&junk);
        bench.job(&zipf(1024, 64, 300)).1 * 1e6 / 4096.0
    };
    let (before, since) = (iops(&SMQ_4_11, &SETUP_SMQ), iops(&SMQ, &SETUP_SMQ));
    assert!(since > 3.0 * before, "{before} before, {since} since");
}

/// Reads of 4 KiB from all over an area, one or several times each.
fn random(offset_mib: u64, mib: u64, passes: u64) -> Job {
    let len = if passes == 1 { 64 << 10 } else { 4 << 10 };
    Job {
        pattern: Pattern::Random,
        block_bytes: len,
        offset_bytes: offset_mib * MIB,
        span_bytes: mib * MIB,
        total_bytes: passes * mib * MIB,
        depth: 8,
        ..Job::default()
    }
}

/// In the virtual machine 2475 promotions wrote 2475 blocks to the cache device, and nothing else.
/// Their misses went to the origin, which was asked for as much again as the clients had missed and
/// for the copies.
#[test]
fn since_4_12_a_miss_is_served_by_the_origin_and_a_promotion_is_not_committed() {
    let mut bench = Bench::new(&SMQ, &SETUP_SMQ, 256 * MIB);
    let job = random(1024, 64, 2);
    let (traffic, _) = bench.job(&job);
    assert!(traffic.cache_write_bytes > 16 * MIB, "{}", traffic.cache_write_bytes);
    assert_eq!((traffic.cache_write_bytes % (64 << 10), traffic.cache_flushes), (0, 0));
    let missed = job.total_bytes - traffic.cache_read_bytes;
    // The last copies may be under way.
    let copies = traffic.origin_read_bytes - missed;
    assert!(copies >= traffic.cache_write_bytes && copies < traffic.cache_write_bytes + 16 * MIB, "{copies}");
}

/// `migration_threshold` is 1 MiB: 16 blocks. Copies begun by misses don't count it.
#[test]
fn since_4_12_promotions_are_not_limited() {
    let promoted = |spec: &Spec| {
        let mut bench = Bench::new(spec, &SETUP_SMQ, 256 * MIB);
        bench.job(&Job { depth: 64, ..random(1024, 128, 1) }).0.cache_write_bytes
    };
    let (before, since) = (promoted(&SMQ_4_11), promoted(&SMQ));
    assert!(since > 16 * MIB, "{before} before, {since} since");
}

/// In the virtual machine more than half of the random writes were hits: what is cached takes
/// writes, as well as reads.
#[test]
fn writes_of_what_is_cached_stay_in_the_cache() {
    let mut bench = Bench::new(&SMQ, &SETUP_SMQ, 256 * MIB);
    bench.job(&random(1024, 64, 8));
    let all = |before: Traffic| before.read_hit_blocks;
    let hits = all(bench.system.traffic());
    let (reads, _) = bench.job(&random(1024, 64, 2));
    let hit_share = (reads.read_hit_blocks - hits) as f64 * 4096.0 / (128 * MIB) as f64;
    let (writes, _) = bench.job(&Job { read_percent: 0, ..random(1024, 64, 2) });
    let missed_share = writes.origin_write_bytes as f64 / (128 * MIB) as f64;
    assert!(
        hit_share > 0.5 && missed_share < 1.0 - hit_share + 0.05,
        "{hit_share} read hits, {missed_share} write misses"
    );
}

/// What is thrown out of a full cache before 4.12 has been in its level for a minute at least:
/// until then nothing comes in. And regions of an origin that's small are smaller.
#[test]
fn policies_know_what_is_settled_and_how_large_the_origin_is() {
    use super::until_411::{Chance, Policy, Verdict};
    let ask = |policy: &mut smq_411::Smq, block| policy.ask(0, block, true, true, Chance::Now);
    let mut policy = smq_411::Smq::new(64, 1 << 20);
    policy.tick(1);
    for block in 0..64 {
        assert!(matches!(ask(&mut policy, block), Verdict::Promote { demotes: false, .. }));
    }
    // A region that's asked for again and again.
    let come = |policy: &mut smq_411::Smq, from_s: u64| {
        (0..50).any(|nth| {
            policy.tick(from_s * SECOND_NS + nth * 10_000_000);
            (0..20).any(|_| matches!(ask(policy, 1000), Verdict::Promote { demotes: true, .. }))
        })
    };
    assert!(!come(&mut policy, 2));
    for second in [61, 122, 183] {
        policy.tick(second * SECOND_NS);
    }
    assert!((184..400).any(|second| come(&mut policy, second)));

    // 4992 places and 16384 blocks: 1248 regions of 16 would be more than the origin.
    let promotes_neighbour = |origin_blocks, neighbour| {
        let mut policy = smq::Smq::new(4992, origin_blocks);
        for tick in 1..40 {
            policy.tick(tick * 10_000_000);
            policy.ask(0, false);
        }
        // Nothing was missed this second: only the busiest regions are promoted.
        policy.tick(2 * SECOND_NS);
        policy.tick(2 * SECOND_NS + 1);
        policy.ask(neighbour, false).1.is_some()
    };
    assert!(promotes_neighbour(1 << 20, 15) && promotes_neighbour(1 << 14, 7) && !promotes_neighbour(1 << 14, 15));
}

#[test]
fn smq_copies_back_when_nothing_is_asked_for_a_second() {
    let mut bench = Bench::new(&SMQ, &SETUP_SMQ, 64 * MIB);
    bench.job(&Job { pattern: Pattern::Random, total_bytes: 64 * MIB, ..sequential(true, 0, 16) });
    bench.job(&sequential(false, 0, 16));
    let dirty = bench.system.traffic().dirty_bytes;
    assert!(dirty > 8 * MIB, "{dirty}");
    crate::load::idle(&mut *bench.system, &mut bench.now, MINUTE_NS / 60, &mut |_| true).expect("nothing stops it");
    let (soon, written) = (bench.system.traffic().dirty_bytes, bench.system.traffic().origin_write_bytes);
    crate::load::idle(&mut *bench.system, &mut bench.now, MINUTE_NS, &mut |_| true).expect("nothing stops it");
    let traffic = bench.system.traffic();
    assert!(soon > 0 && traffic.dirty_bytes == 0, "{soon}");
    assert!(traffic.origin_write_bytes >= written + soon);
}
