// SPDX-License-Identifier: MIT OR Apache-2.0
//! Destage of long runs does not slow readers of cached data. Such destage could take as much of
//! the cache device as a disk takes.

use flashfront_device::sim::{Fill, HddSpec, ModelSpec, SsdSpec};
use flashfront_engine::{Mode, Options, Time};
use flashfront_sim::load::{Job, Pattern, idle, run};
use flashfront_sim::system::{Bare, Flashfront, FlashfrontSpec, System};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const S: u64 = 1_000_000_000;

/// The reads of a job on the bare SSD, and on a cache with much to destage. Then the blocks that
/// were destaged meanwhile, and the dirty blocks left.
struct Beside {
    ssd: u64,
    ours: u64,
    destaged: u64,
    left: u64,
}

/// A job that makes 1.5 GiB in one piece dirty.
fn sequential() -> Job {
    let bytes = 3 * GIB / 2;
    Job { block_bytes: 128 << 10, read_percent: 0, span_bytes: bytes, total_bytes: bytes, ..Job::default() }
}

fn spec(dirty_age_max_ns: u64) -> FlashfrontSpec {
    FlashfrontSpec {
        origin: ModelSpec::Hdd(HddSpec::default()),
        origin_bytes: 64 * GIB,
        cache: ModelSpec::Ssd(SsdSpec::samsung_850_pro(Fill::Clean)),
        cache_bytes: 4 * GIB,
        mode: Mode::Writeback,
        options: Options { sequential_bypass_bytes: 0, dirty_age_max_ns, ..Options::default() },
    }
}

fn beside(dirty_age_max_ns: u64, writes: &[Job], read: &Job) -> Beside {
    let spec = spec(dirty_age_max_ns);
    let (mut now, mut number) = (Time(0), 0);
    let mut cached = Flashfront::new(&spec);
    let mut on = |system: &mut dyn System, job: &Job| {
        run(system, &mut now, &mut number, std::slice::from_ref(job), S, &mut |_| true).expect("nobody stops it")
    };
    writes.iter().for_each(|write| drop(on(&mut cached, write)));
    let dirty = cached.status().blocks_dirty;
    assert!(dirty > 100_000, "the test needs something to destage: {dirty} blocks");
    let ours = on(&mut cached, read).jobs[0].reads;
    let destaged = dirty.saturating_sub(cached.status().blocks_dirty);
    let mut bare = Bare::new(spec.cache, spec.cache_bytes);
    let ssd = on(&mut bare, read).jobs[0].reads;
    idle(&mut cached, &mut now, 10 * S, &mut |_| true).expect("nobody stops it");
    Beside { ssd, ours, destaged, left: cached.status().blocks_dirty }
}

fn reads() -> Job {
    Job { pattern: Pattern::Random, block_bytes: 128 << 10, span_bytes: 512 * MIB, time_ns: 10 * S, ..Job::default() }
}

#[test]
fn hits_have_the_cache_device_beside_long_runs_of_destage() {
    let Beside { ssd, ours, destaged, left } = beside(Options::default().dirty_age_max_ns, &[sequential()], &reads());
    assert!(ours * 100 > ssd * 93, "{ours} reads, {ssd} of the bare SSD");
    // Destage goes on, with a fortieth of the blocks read and with runs begun before. It goes as
    // fast as it can when nobody reads.
    assert!((20_000..90_000).contains(&destaged), "{destaged} blocks beside {ours} reads of 32");
    assert_eq!(left, 0, "after ten seconds in which nobody read");
}

/// A client that reads and writes cached data needs room for its dirty blocks, and no more. With
/// destage at a disk's full speed the client had 86 % of the bare SSD's requests. Now it has 93 %.
#[test]
fn a_mix_of_reads_and_writes_has_the_cache_device_too() {
    let mix = Job { read_percent: 67, ..reads() };
    let Beside { ssd, ours, left, .. } = beside(Options::default().dirty_age_max_ns, &[sequential()], &mix);
    assert!(ours * 100 > ssd * 90, "{ours} reads, {ssd} of the bare SSD");
    assert_eq!(left, 0, "after ten seconds in which nobody read");
}

/// The disk has time for these bursts. So each burst must find as much room as the one before it,
/// whoever reads beside them.
#[test]
fn bursts_of_writes_beside_reads_do_not_pile_up() {
    let mut cached = Flashfront::new(&spec(Options::default().dirty_age_max_ns));
    let (mut now, mut number) = (Time(0), 0);
    let mut on = |jobs: &[Job]| {
        run(&mut cached, &mut now, &mut number, jobs, S, &mut |_| true).expect("nobody stops it");
        cached.status()
    };
    // This is so little that it stays cached. Otherwise the readers would be at the disk, too.
    let hot = 64 * MIB;
    on(&[Job { span_bytes: hot, total_bytes: hot, ..sequential() }]);
    let mut most = 0;
    for round in 0..30 {
        let (span_bytes, offset_bytes) = (512 * MIB, 4 * GIB + round * 512 * MIB);
        let burst =
            Job { span_bytes, offset_bytes, total_bytes: span_bytes, depth: 32, background: true, ..sequential() };
        let status = on(&[Job { rate_per_s: 50.0, span_bytes: hot, ..reads() }, burst]);
        most = most.max(status.blocks_dirty * 100 / status.dirty_limit_blocks);
        assert_eq!(status.counters.throttled_writes, 0, "round {round}, {most} % of the limit dirty");
    }
    assert!(most < 60, "{most} % of the limit");
}

/// Destage of old data takes a tenth of the disk's time beside readers of the SSD, and all of it in
/// their gaps.
#[test]
fn old_data_is_destaged_beside_hits_with_measure() {
    let age_ns = 2 * S;
    let Beside { ssd, ours, destaged, .. } = beside(age_ns, &[sequential()], &reads());
    assert!(ours * 100 > ssd * 92, "{ours} reads, {ssd} of the bare SSD");
    assert!((40_000..110_000).contains(&destaged), "{destaged} blocks beside {ours} reads of 32");
    let now_and_then = Job { rate_per_s: 50.0, ..reads() };
    let gaps = beside(age_ns, &[sequential()], &now_and_then);
    assert!(gaps.destaged * 2 > destaged * 3, "{} blocks, {destaged} beside constant reads", gaps.destaged);
}

/// Destage of scattered blocks takes little of the SSD, and all of the disk. Old blocks are not
/// slower than young ones.
#[test]
fn old_scattered_data_is_not_slower_than_young() {
    let hot = Job { span_bytes: 512 * MIB, total_bytes: 512 * MIB, ..sequential() };
    let scattered = Job {
        pattern: Pattern::Random,
        block_bytes: 4 << 10,
        depth: 32,
        offset_bytes: 8 * GIB,
        span_bytes: 16 * GIB,
        ..hot.clone()
    };
    let beside = |age_ns| beside(age_ns, &[hot.clone(), scattered.clone()], &reads());
    let (young, old) = (beside(Options::default().dirty_age_max_ns), beside(2 * S));
    assert!(old.destaged * 10 >= young.destaged * 9, "{} blocks, young {}", old.destaged, young.destaged);
    assert!(old.ours * 100 > old.ssd * 90, "{} reads, {} of the bare SSD", old.ours, old.ssd);
}
