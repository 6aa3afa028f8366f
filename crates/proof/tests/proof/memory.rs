// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine's RAM beside its index is bounded, and is given back after a load.

use flashfront_device::sim::Fate;
use flashfront_engine::{Mode, RequestOp};
use flashfront_proof::{Client, OriginSpec, World, WorldSpec};

const SECOND: u64 = 1_000_000_000;
const BLOCKS: u64 = 64;

/// Destaged blocks are recorded although writers always wait for room in the log. Destage keeps up
/// with these writers. Each commit would be full of their blocks, and the record of destaged blocks
/// would wait for ever.
#[test]
fn what_was_destaged_is_recorded_beside_the_writes_of_a_full_log() {
    let origin = OriginSpec { size_bytes: 128 << 20, logical_block_bytes: 512, mode: Mode::Writeback };
    let mut world = World::format(WorldSpec {
        origins: vec![origin],
        segment_blocks: 256,
        segments_per_lane: 64,
        stripe_blocks: 1 << 16,
        cache_ns: 3_000_000,
        origin_ns: 100_000,
        check: false,
        ..WorldSpec::default()
    });
    world.open().expect("a fresh cache opens");
    let before = world.engine().status().index_bytes;
    let mut most = 0;
    for number in 1..1500u32 {
        let block = u64::from(number) * 7919 % 512 * BLOCKS;
        world.submit(RequestOp::Write, 0, block * 8, BLOCKS * 8, false, Some(number));
        while world.in_flight() > 48 {
            assert!(world.step(), "requests are answered");
        }
        world.answers.clear();
        most = most.max(world.engine().status().index_bytes - before);
    }
    // The dirty set, and entries of 16 bytes for the 8192 blocks and more that one flush of the
    // origin makes clean.
    assert!(most < 300_000, "{most} bytes under load");
    world.finish_requests();
    world.pass(60 * SECOND);
    let status = world.engine().status();
    assert_eq!(status.blocks_dirty, 0);
    assert!(status.index_bytes - before < 8192, "{} bytes afterwards", status.index_bytes - before);
    let mut after = world.crash(1, Fate::Kept, Fate::Kept);
    assert_eq!(after.open().expect("it opens").blocks_dirty, 0, "all of it was recorded");
}

/// Sends thousands of short requests at once. Their blocks have to be completed from a slow origin.
fn buffers_of_many(op: RequestOp, bound: u64) {
    let origin = OriginSpec { size_bytes: 16 << 20, logical_block_bytes: 512, mode: Mode::Writeback };
    let spec =
        WorldSpec { origins: vec![origin], segment_blocks: 64, batches: true, check: false, ..WorldSpec::default() };
    let mut client = Client::fresh(spec);
    let mut most = 0;
    for block in 0..3000 {
        client.change(op, 0, block * 8 + 1, 1, false);
        most = most.max(client.world.engine().status().buffer_bytes);
    }
    client.world.drive_until(|world| {
        most = most.max(world.engine().status().buffer_bytes);
        world.in_flight() == 0
    });
    client.finish();
    assert_eq!(client.take_failed(), []);
    assert!(most < bound, "{most} bytes of buffers");
    client.read_all();
}

#[test]
fn zeroes_have_a_bound() {
    // 1 MiB of ragged ends, 1 MiB of old content, 3 of commits, 16 of destage; without bounds 12
    // more.
    buffers_of_many(RequestOp::WriteZeroes { may_discard: false }, 22 << 20);
}

#[test]
fn merges_have_a_bound() {
    // 1 MiB of old content, 3 of commits, 16 of destage; without bounds 24 more.
    buffers_of_many(RequestOp::Write, 22 << 20);
}

/// Zeroes (and discards) of whole disks are cut into small parts. A short request between them has
/// its turn.
#[test]
fn long_ranges_have_a_bound() {
    let origin = OriginSpec { size_bytes: 512 << 20, logical_block_bytes: 512, mode: Mode::Writeback };
    let mut world = World::format(WorldSpec { origins: vec![origin], check: false, ..WorldSpec::default() });
    world.open().expect("a fresh cache opens");
    let zero = |world: &mut World, from: u64, to: u64| {
        world.submit(RequestOp::WriteZeroes { may_discard: false }, 0, from, to - from, false, None)
    };
    let long = [zero(&mut world, 2048, 1 << 19), zero(&mut world, 1 << 19, 1 << 20)];
    let short = zero(&mut world, 0, 1024);
    let mut most = 0;
    world.drive_until(|world| {
        most = most.max(world.origins[0].inner().in_flight());
        !world.waits(short)
    });
    assert!(long.iter().all(|id| world.waits(*id)), "it has not waited for all of them");
    world.drive_until(|world| {
        most = most.max(world.origins[0].inner().in_flight());
        world.in_flight() == 0
    });
    assert_eq!(world.answers.iter().filter(|answer| answer.result.is_ok()).count(), 3);
    assert!((256..640).contains(&most), "{most} pieces at a time");
}

/// Reads around thousands of misses at once take no more than their bound.
#[test]
fn reads_around_misses_have_a_bound() {
    let origin = OriginSpec { size_bytes: 64 << 20, logical_block_bytes: 512, mode: Mode::Writeback };
    let spec = WorldSpec {
        origins: vec![origin],
        segment_blocks: 64,
        segments_per_lane: 512,
        check: false,
        ..WorldSpec::default()
    };
    let mut client = Client::fresh(spec);
    // After this read the origin is known to be slow.
    client.read(0, 0, 8);
    client.finish();
    for unit in 1..1000 {
        client.read(0, unit * 128, 8);
    }
    let mut most = 0;
    client.world.drive_until(|world| {
        most = most.max(world.engine().status().buffer_bytes);
        world.in_flight() == 0
    });
    client.finish();
    assert!(client.world.engine().status().counters.neighbour_blocks > 200, "nothing was read around");
    // 1 MiB of neighbours, and commits of a quarter; without a bound 63.
    assert!(most < 3 << 20, "{most} bytes of buffers");
}

/// Copying blocks forward has a bound. A segment of 16 MiB has thousands of such blocks, and four
/// segments are reclaimed at once.
#[test]
fn survivors_have_a_bound() {
    let origin = OriginSpec { size_bytes: 1 << 30, logical_block_bytes: 512, mode: Mode::Writeback };
    let mut world = World::format(WorldSpec {
        origins: vec![origin],
        segment_blocks: 4096,
        segments_per_lane: 24,
        stripe_blocks: 1 << 18,
        check: false,
        ..WorldSpec::default()
    });
    world.open().expect("a fresh cache opens");
    let mut most = 0;
    let mut read = |world: &mut World, block: u64| {
        world.submit(RequestOp::Read, 0, block * 8, 8 * BLOCKS, false, None);
        while world.in_flight() > 16 {
            assert!(world.step(), "requests are answered");
            most = most.max(world.engine().status().buffer_bytes);
        }
        world.answers.clear();
    };
    // Three quarters of the cache are read again and again. Then other blocks come, three times
    // each, so that they are admitted.
    let hot = 3 * 24 * 4096 / 4;
    for round in 0..2 {
        (0..hot / BLOCKS).for_each(|run| read(&mut world, (run * 7919 + round) % (hot / BLOCKS) * BLOCKS));
    }
    for run in 0..450 {
        (0..3).for_each(|_| read(&mut world, hot + run * BLOCKS));
    }
    world.finish_requests();
    let copied = world.engine().status().counters.reinserted_blocks;
    assert!(copied > 4096, "only {copied} blocks were copied forward");
    // 1 MiB of survivors, and commits; without a bound 13 more.
    assert!(most < 14 << 20, "{most} bytes of buffers");
}
