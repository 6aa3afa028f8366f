// SPDX-License-Identifier: MIT OR Apache-2.0
//! The origin sees what destage writes, and when.

use flashfront_engine::{BLOCK_BYTES, Counters, Mode, Options};
use flashfront_proof::{Client, OriginSpec, WorldSpec, identify};

/// A client of a cache of 1,024 blocks before an origin of 4,096, of which 300 may be dirty.
fn client() -> Client {
    let origin = OriginSpec { size_bytes: 4096 * BLOCK_BYTES, logical_block_bytes: 512, mode: Mode::Writeback };
    let options = Options { dirty_limit_blocks: Some(300), sequential_bypass_bytes: 0, ..Options::default() };
    Client::fresh(WorldSpec { segments_per_lane: 64, origins: vec![origin], options, ..WorldSpec::default() })
}

fn counters(client: &Client) -> Counters {
    client.world.engine().status().counters
}

fn write(client: &mut Client, block: u64) {
    client.write(0, block * 8, 8, false);
    client.finish();
}

fn drain(client: &mut Client) {
    client.world.drain();
    client.world.control(flashfront_engine::Control::Drain(false));
}

/// Blocks that the origin is written with when two are dirty.
fn destaged_for_two(client: &mut Client, first: u64, last: u64) -> u64 {
    let before = counters(client).origin_writes_bytes;
    write(client, first);
    write(client, last);
    drain(client);
    (counters(client).origin_writes_bytes - before) / BLOCK_BYTES
}

#[test]
fn a_small_gap_is_bridged_if_it_is_cached() {
    let mut client = client();
    assert_eq!(destaged_for_two(&mut client, 100, 104), 2, "what is between them is not cached");
    (0..40).for_each(|block| write(&mut client, block));
    drain(&mut client);
    assert_eq!(destaged_for_two(&mut client, 0, 4), 5, "one I/O over the three clean blocks between them");
    assert_eq!(destaged_for_two(&mut client, 0, 9), 10, "eight blocks");
    assert_eq!(destaged_for_two(&mut client, 0, 10), 2, "nine are too many");
    // A hole in the gap: block 2 is no longer cached.
    client.change(flashfront_engine::RequestOp::Discard, 0, 2 * 8, 8, false);
    client.finish();
    assert_eq!(destaged_for_two(&mut client, 0, 4), 2);
    client.judge_origins();
}

/// What was written again since the last sweep came by is left for the next: it may be written
/// again. When nobody asks for anything it goes.
#[test]
fn rewritten_blocks_are_passed_over_once() {
    let mut client = client();
    let on_origin = |client: &Client| {
        let mut bytes = vec![0; 512];
        client.world.origins[0].inner().peek(0, &mut bytes);
        identify(0, 0, &bytes)
    };
    let before = on_origin(&client);
    (0..2).for_each(|_| write(&mut client, 0));
    // More than 30 % of the limit, in no runs: destage begins, at block 0.
    (1..=140).for_each(|nth| write(&mut client, nth * 20));
    let clean = |world: &flashfront_proof::World| world.engine().status().blocks_dirty < 90;
    assert!(client.world.drive_until(clean), "destage begins beside the clients");
    assert_eq!(on_origin(&client), before, "block 0 came first, and was rewritten");
    client.world.pass(2_000_000_000);
    assert_eq!(client.world.engine().status().blocks_dirty, 0, "idle");
    assert_ne!(on_origin(&client), before);
    client.judge_origins();
}

/// The origin's flush that destage waits for takes a disk a quarter of a second; what a client
/// flushes is durable in the cache.
#[test]
fn a_flush_does_not_wait_for_destages_own() {
    let mut client = client();
    (1..=140).for_each(|nth| write(&mut client, nth * 20));
    let before = counters(&client).origin_flushes;
    let begun = |world: &flashfront_proof::World| world.engine().status().counters.origin_flushes > before;
    assert!(client.world.drive_until(begun), "destage begins beside the clients");
    let cleaned = counters(&client).destaged_blocks;
    client.flush(0);
    client.finish();
    assert_eq!(counters(&client).destaged_blocks, cleaned, "the origin's flush ended first");
    client.judge();
}

/// A pause beside clients that nobody came back to must not hide the idle moment after it.
#[test]
fn what_is_left_after_a_pause_is_destaged_when_idle() {
    let mut client = client();
    let mut miss = 0;
    let mut read_miss = |client: &mut Client| {
        miss += 1;
        client.read(0, (miss % 3000 + 1000) * 8, 8);
        client.finish();
    };
    for nth in 1..=100 {
        write(&mut client, nth * 7);
        read_miss(&mut client);
    }
    // A pause is on; most of what is dirty goes, and what is left is too little to go on.
    client.change(flashfront_engine::RequestOp::Discard, 0, 0, 8 * 500, false);
    client.finish();
    assert!((1..90).contains(&client.world.engine().status().blocks_dirty));
    for _ in 0..200 {
        client.world.pass(50_000_000);
        read_miss(&mut client);
    }
    client.world.pass(3_600_000_000_000);
    assert_eq!(client.world.engine().status().blocks_dirty, 0, "nobody has asked for anything for an hour");
    client.judge_origins();
}

/// What was cached before the opening may be stale, if the origin was changed meanwhile: it must
/// not be written there.
#[test]
fn what_was_cached_before_the_opening_is_not_bridged() {
    let mut client = client();
    (0..40).for_each(|block| write(&mut client, block));
    drain(&mut client);
    client.stop();
    client.open();
    assert_eq!(destaged_for_two(&mut client, 0, 4), 2);
}
