// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a cache is emptied while clients are served, so that the cache can shrink to its
//! beginning.

use flashfront_device::sim::Fate;
use flashfront_engine::{Control, Mode, Options};
use flashfront_proof::{Client, OriginSpec, WorldSpec};

/// Blocks of a segment, and segments of the cache.
const SEGMENT: u64 = 32;
const SEGMENTS: u32 = 96;
/// A block in sectors.
const B: u64 = 8;

/// A cache before an origin of `blocks` blocks.
fn client(seed: u64, lanes: u32, blocks: u64) -> Client {
    let origin = OriginSpec { size_bytes: blocks * 4096, logical_block_bytes: 512, mode: Mode::Writeback };
    Client::fresh(WorldSpec {
        seed,
        lanes,
        segment_blocks: SEGMENT as u32,
        segments_per_lane: SEGMENTS / lanes,
        stripe_blocks: 64,
        origin_ns: 5_000_000,
        origins: vec![origin],
        options: Options { sequential_bypass_bytes: 0, read_around_blocks: 0, ..Options::default() },
        ..WorldSpec::default()
    })
}

/// Writes each block in turn, and reads some, until so many blocks were asked for.
fn fill(client: &mut Client, blocks: u64) {
    for first in (0..blocks).step_by(16) {
        client.write(0, first * B, 16 * B, first % 160 == 0);
        client.finish_to(8);
    }
    client.finish();
}

fn left(client: &Client) -> Option<u64> {
    client.world.engine().status().left_in_end
}

fn vacate(client: &mut Client, keep_segments: Option<u32>) {
    client.world.control(Control::Vacate { keep_segments });
}

/// What fits before the end is moved there: nothing is dropped for that, and reads hit as before.
#[test]
fn what_fits_before_the_end_is_moved_there() {
    for lanes in [1, 2] {
        let blocks = u64::from(SEGMENTS) * SEGMENT / 3;
        let mut client = client(1, lanes, blocks);
        fill(&mut client, blocks);
        // All of the log was in use once.
        fill(&mut client, blocks);
        let before = client.world.engine().status();
        vacate(&mut client, Some(SEGMENTS / lanes * 3 / 5));
        assert!(left(&client).is_some_and(|left| left > 0), "the end holds nothing");
        let mut nth = 0;
        while left(&client) != Some(0) {
            nth += 1;
            assert!(nth < 100_000, "{:?} blocks stay in the end", left(&client));
            if nth % 50 == 0 && client.world.in_flight() == 0 {
                client.write(0, nth / 50 % blocks * B, B, false);
            }
            assert!(client.world.step(), "{:?} blocks stay in the end", left(&client));
        }
        client.finish();
        let after = client.world.engine().status();
        assert_eq!(after.blocks_cached, before.blocks_cached, "{lanes} lanes");
        assert_eq!(after.counters.evicted_blocks, before.counters.evicted_blocks);
        let misses = after.counters.read_misses;
        client.read_all();
        // Room for the next move is made meanwhile.
        let missed = client.world.counters().read_misses - misses;
        assert!(missed <= blocks / 50, "{missed} of {blocks} blocks are not cached any more");
        client.crash(1, Fate::Kept, Fate::Kept);
        client.open();
        client.read_all();
        client.leave();
    }
}

/// More is live than fits: what is clean is judged by the policy, and what is dirty stays or is
/// destaged. Clients write all the time.
#[test]
fn what_does_not_fit_is_judged_by_the_policy() {
    for seed in 0..4 {
        let blocks = u64::from(SEGMENTS) * SEGMENT;
        let mut client = client(seed, 1, blocks);
        fill(&mut client, blocks * 9 / 10);
        vacate(&mut client, Some(SEGMENTS / 2));
        let mut written = 0;
        while left(&client) != Some(0) {
            written += 1;
            assert!(written < 20_000, "{:?} blocks stay in the end", left(&client));
            client.write(0, written * 2_654_435_761 % blocks * B, B, false);
            client.finish_to(4);
            // Clients don't ask all the time.
            client.world.pass(1_000_000);
        }
        client.finish();
        let kept = client.world.engine().status().blocks_cached;
        assert!(kept <= u64::from(SEGMENTS / 2 + 6) * SEGMENT, "{kept} blocks are in the smaller part");
        assert!(kept > u64::from(SEGMENTS / 2) * SEGMENT / 2, "only {kept} blocks are left");
        client.crash(seed, Fate::Kept, Fate::Kept);
        client.open();
        client.read_all();
        client.leave();
    }
}

/// The end serves again when it need not stay empty, and after a power cut.
#[test]
fn the_end_is_used_again() {
    for crashes in [false, true] {
        let mut client = client(3, 1, 1024);
        fill(&mut client, 1024);
        let all = client.world.engine().status();
        vacate(&mut client, Some(SEGMENTS / 2));
        client.world.drive_until(|world| world.engine().status().left_in_end == Some(0));
        assert_eq!(left(&client), Some(0));
        assert!(client.world.engine().status().segments_free + u64::from(SEGMENTS / 3) < all.segments_free);
        if crashes {
            client.crash(3, Fate::Kept, Fate::Kept);
            client.open();
        } else {
            vacate(&mut client, None);
        }
        assert_eq!(left(&client), None);
        let free = client.world.engine().status().segments_free;
        assert!(free + 8 > all.segments_free, "{free} segments are free of {}", all.segments_free);
        client.leave();
    }
}

/// A writer that needs all of the cache gets room, though an end is to be empty: the origin takes
/// nothing.
#[test]
fn no_writer_waits_for_an_end_that_can_not_be_emptied() {
    let blocks = u64::from(SEGMENTS) * SEGMENT;
    let mut client = client(5, 1, blocks);
    client.world.control(Control::SetDirtyLimit { blocks: blocks * 3 / 4 });
    vacate(&mut client, Some(SEGMENTS / 3));
    fill(&mut client, blocks * 2 / 3);
    fill(&mut client, blocks * 2 / 3);
    client.leave();
}
