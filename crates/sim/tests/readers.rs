// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who reads cached data is not slowed by the destage of long runs, which could take as much of the cache device as a disk takes.

use flashfront_device::sim::{Fill, HddSpec, ModelSpec, SsdSpec};
use flashfront_engine::{Mode, Options, Time};
use flashfront_sim::load::{Job, Pattern, idle, run};
use flashfront_sim::system::{Bare, Flashfront, FlashfrontSpec, System};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const S: u64 = 1_000_000_000;

#[test]
fn hits_have_the_cache_device_beside_long_runs_of_destage() {
    let spec = FlashfrontSpec {
        origin: ModelSpec::Hdd(HddSpec::default()),
        origin_bytes: 64 * GIB,
        cache: ModelSpec::Ssd(SsdSpec::samsung_850_pro(Fill::Clean)),
        cache_bytes: 4 * GIB,
        mode: Mode::Writeback,
        options: Options { sequential_bypass_bytes: 0, ..Options::default() },
    };
    let (mut now, mut number) = (Time(0), 0);
    let mut cached = Flashfront::new(&spec);
    let mut on = |system: &mut dyn System, job: &Job| {
        run(system, &mut now, &mut number, std::slice::from_ref(job), S, &mut |_| true).expect("nobody stops it")
    };
    let write = Job {
        block_bytes: 128 << 10,
        read_percent: 0,
        span_bytes: 3 * GIB / 2,
        total_bytes: 3 * GIB / 2,
        ..Job::default()
    };
    let read = Job {
        pattern: Pattern::Random,
        block_bytes: 128 << 10,
        span_bytes: 512 * MIB,
        time_ns: 10 * S,
        ..Job::default()
    };
    on(&mut cached, &write);
    let dirty = cached.status().blocks_dirty;
    let ours = on(&mut cached, &read).jobs[0].reads;
    let destaged = dirty - cached.status().blocks_dirty;
    assert!(dirty > 100_000, "the test needs something to destage: {dirty} blocks");
    let mut bare = Bare::new(spec.cache, spec.cache_bytes);
    let ssd = on(&mut bare, &read).jobs[0].reads;
    // In the first second the writer may come back.
    assert!(ours * 100 > ssd * 93, "{ours} reads, {ssd} of the bare SSD");
    // It goes on, a fortieth of what is read and what was begun before; and as fast as it can when nobody reads.
    assert!((20_000..90_000).contains(&destaged), "{destaged} blocks beside {ours} reads of 32");
    idle(&mut cached, &mut now, 10 * S, &mut |_| true).expect("nobody stops it");
    let left = cached.status().blocks_dirty;
    assert!(dirty - destaged - left > 200_000.min(dirty - destaged - 1), "{left} blocks are still dirty");
}
