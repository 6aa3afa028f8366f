// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache device that is slower than its origin, or is slow at the moment, does not make its
//! clients wait.

use flashfront_device::sim::{Fill, HddSpec, ModelSpec, SsdSpec};
use flashfront_engine::{Mode, Options, Time};
use flashfront_sim::load::{Job, Pattern, PhaseResult, idle, run};
use flashfront_sim::system::{Bare, Flashfront, FlashfrontSpec, System};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A volume on NVMe, and a SATA SSD that was full before.
fn spec() -> FlashfrontSpec {
    FlashfrontSpec {
        origin: ModelSpec::Ssd(SsdSpec::intel_p4500(Fill::Clean)),
        origin_bytes: 64 * GIB,
        cache: ModelSpec::Ssd(SsdSpec::samsung_850_pro(Fill::Full)),
        cache_bytes: 4 * GIB,
        mode: Mode::Writeback,
        options: Options::default(),
    }
}

fn job(read_percent: u32, span_bytes: u64, total_bytes: u64) -> Job {
    Job { pattern: Pattern::Random, read_percent, depth: 128, span_bytes, total_bytes, ..Job::default() }
}

struct Client<'a> {
    system: &'a mut dyn System,
    now: Time,
    number: u64,
}

impl Client<'_> {
    fn run(&mut self, job: Job) -> PhaseResult {
        run(self.system, &mut self.now, &mut self.number, &[job], 1_000_000_000, &mut |_| true)
            .expect("nobody stops it")
    }
}

fn per_s(phase: &PhaseResult) -> f64 {
    phase.jobs.iter().map(|job| job.reads + job.writes).sum::<u64>() as f64 * 1e9 / phase.time_ns as f64
}

#[test]
fn cached_data_is_read_from_a_faster_origin() {
    let (warm, hits) =
        (Job { block_bytes: 128 << 10, depth: 4, ..job(0, 256 * MIB, 256 * MIB) }, job(100, 256 * MIB, GIB));
    let mut cached = Flashfront::new(&spec());
    let mut client = Client { system: &mut cached, now: Time(0), number: 0 };
    client.run(warm);
    idle(client.system, &mut client.now, 60_000_000_000, &mut |_| true).unwrap();
    let ours = client.run(hits.clone());
    let status = cached.status();
    assert!(status.counters.bypassed_congested_blocks > 0, "{status:?}");
    let mut bare = Bare::new(spec().origin, spec().origin_bytes);
    let origin = Client { system: &mut bare, now: Time(0), number: 0 }.run(hits.clone());
    let mut bare = Bare::new(spec().cache, spec().cache_bytes);
    let cache = Client { system: &mut bare, now: Time(0), number: 0 }.run(hits);
    let (ours, origin, cache) = (per_s(&ours), per_s(&origin), per_s(&cache));
    assert!(origin > 4.0 * cache, "the test needs a slow cache device: {cache} to {origin}");
    assert!(ours > 0.95 * origin, "{ours}, the bare origin {origin}");
}

/// Most of a burst of writes goes past the cache if the log is slower than the origin.
#[test]
fn new_data_is_written_to_a_faster_origin() {
    let spec = FlashfrontSpec { cache: ModelSpec::Hdd(HddSpec::default()), ..spec() };
    let writes = Job { block_bytes: 64 << 10, ..job(0, 32 * GIB, 4 * GIB) };
    let mut cached = Flashfront::new(&spec);
    let mut client = Client { system: &mut cached, now: Time(0), number: 0 };
    // Some writes are destaged first, so that the cache knows how long the origin needs for a
    // write.
    client.run(job(0, GIB, 16 * MIB));
    idle(client.system, &mut client.now, 60_000_000_000, &mut |_| true).unwrap();
    let ours = client.run(writes.clone());
    let mut bare = Bare::new(spec.origin, spec.origin_bytes);
    let origin = Client { system: &mut bare, now: Time(0), number: 0 }.run(writes.clone());
    let mut bare = Bare::new(spec.cache, spec.cache_bytes);
    let log = Job { pattern: Pattern::Sequential, span_bytes: 4 * GIB, ..writes };
    let cache = Client { system: &mut bare, now: Time(0), number: 0 }.run(log);
    let (ours, origin, cache) = (per_s(&ours), per_s(&origin), per_s(&cache));
    assert!(origin > 4.0 * cache, "the test needs a slow cache device: {cache} to {origin}");
    assert!(ours > 0.8 * origin, "{ours}, the bare origin {origin}");
}

/// A disk acknowledges writes into its own cache in no time. That must not make it look faster than
/// the SSD's log.
#[test]
fn a_disk_is_not_taken_for_fast() {
    let spec = FlashfrontSpec { origin: ModelSpec::Hdd(HddSpec::default()), ..spec() };
    let mut cached = Flashfront::new(&spec);
    let mut client = Client { system: &mut cached, now: Time(0), number: 0 };
    for _ in 0..3 {
        client.run(job(0, 32 * GIB, 512 * MIB));
        idle(client.system, &mut client.now, 10_000_000_000, &mut |_| true).unwrap();
        client.run(job(100, 32 * GIB, 4 * MIB));
        client.run(job(50, 256 * MIB, 256 * MIB));
    }
    let counters = cached.status().counters;
    // A few are sent there to measure the disk.
    assert!(counters.bypassed_congested_blocks <= 10, "{counters:?}");
}

/// A stream makes a disk look fast, since the disk reads ahead. That must not send scattered hits
/// to the disk.
#[test]
fn hits_leave_a_stream_of_the_disk_alone() {
    let spec = FlashfrontSpec {
        origin: ModelSpec::Hdd(HddSpec::default()),
        cache: ModelSpec::Ssd(SsdSpec::samsung_850_pro(Fill::Clean)),
        ..spec()
    };
    let mut cached = Flashfront::new(&spec);
    let mut client = Client { system: &mut cached, now: Time(0), number: 0 };
    client.run(Job { block_bytes: 128 << 10, depth: 4, ..job(0, 256 * MIB, 256 * MIB) });
    idle(client.system, &mut client.now, 120_000_000_000, &mut |_| true).expect("nobody stops it");
    let stream = Job {
        pattern: Pattern::Sequential,
        offset_bytes: 16 * GIB,
        span_bytes: 32 * GIB,
        time_ns: 5_000_000_000,
        depth: 4,
        ..Job::default()
    };
    let alone = client.run(stream.clone());
    // Jobs of one name have one result.
    let hits = Job { name: "hits".to_owned(), time_ns: 5_000_000_000, ..job(100, 256 * MIB, 0) };
    let jobs = [stream, hits];
    let both = run(client.system, &mut client.now, &mut client.number, &jobs, 1_000_000_000, &mut |_| true);
    let both = both.expect("nobody stops it");
    let (alone, beside) = (alone.jobs[0].reads, both.jobs[0].reads);
    assert!(beside * 10 > alone * 9, "{beside} reads of the stream beside hits, {alone} alone");
    let longest_ms = both.jobs[1].read_ns.max() / 1_000_000;
    assert!(longest_ms < 50, "a hit took {longest_ms} ms");
}

/// A client that waits for FLUSHes before a disk waits only for the cache device, also beside
/// bursts of long writes.
#[test]
fn flushes_do_not_wait_for_a_disk() {
    let spec = FlashfrontSpec {
        origin: ModelSpec::Hdd(HddSpec::default()),
        cache: ModelSpec::Ssd(SsdSpec::samsung_850_pro(Fill::Clean)),
        ..spec()
    };
    let mut cached = Flashfront::new(&spec);
    let mut client = Client { system: &mut cached, now: Time(0), number: 0 };
    client.run(job(0, GIB, 16 * MIB));
    idle(client.system, &mut client.now, 60_000_000_000, &mut |_| true).expect("nobody stops it");
    let sync = Job { depth: 1, writes_per_flush: 1, time_ns: 5_000_000_000, ..job(0, 8 * GIB, 0) };
    client.run(sync.clone());
    let burst = Job {
        name: "burst".to_owned(),
        block_bytes: MIB,
        depth: 64,
        offset_bytes: 16 * GIB,
        ..job(0, 32 * GIB, 256 * MIB)
    };
    let jobs = [Job { background: true, time_ns: 0, ..sync }, burst];
    let both = run(client.system, &mut client.now, &mut client.number, &jobs, 1_000_000_000, &mut |_| true);
    let longest_ms = both.expect("nobody stops it").jobs[0].flush_ns.max() / 1_000_000;
    // At most 64 MiB at 430 MB/s are before a FLUSH.
    assert!(longest_ms < 250, "{longest_ms} ms");
}
