// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lanes are opened at the same time, each with one batch under way.

use flashfront_device::sim::Fate;
use flashfront_engine::Mode;
use flashfront_proof::{Client, OriginSpec, WorldSpec};

const LANES: u32 = 4;

fn spec(apart: Option<usize>, apart_while_opening: bool) -> WorldSpec {
    let origin = OriginSpec { size_bytes: 8 << 20, logical_block_bytes: 512, mode: Mode::Writeback };
    WorldSpec {
        lanes: LANES,
        stripe_blocks: 4,
        origins: vec![origin],
        apart,
        apart_while_opening,
        ..WorldSpec::default()
    }
}

/// Commits of a block each, in all lanes.
fn written(client: &mut Client, times: u64) {
    for nth in 0..times {
        client.write(0, nth * 37 % 2048 * 8, 8, true);
        client.finish();
    }
}

/// How many turns were done apart, and what was replayed; what was written is there.
fn opened(apart: Option<usize>) -> (u64, u64) {
    let mut client = Client::fresh(spec(apart, false));
    written(&mut client, 200);
    client.crash(5, Fate::Kept, Fate::Kept);
    let opened = client.world.open().expect("a sound cache opens");
    let turns = client.world.arena.turns_apart();
    (0..2048).step_by(64).for_each(|block| _ = client.read(0, block * 8, 512));
    client.finish();
    (turns, opened.commits_replayed)
}

#[test]
fn lanes_are_replayed_at_the_same_time() {
    let (turns, commits) = opened(Some(0));
    assert!(commits > 100, "{commits} commits to replay");
    // One for each read of replay, of several small commits, and for each batch of a checkpoint.
    assert!(turns > 15, "{turns} turns apart");
    assert_eq!((turns, commits), opened(Some(2)), "whoever does it");
    assert_eq!((0, commits), opened(None));
}

#[test]
fn a_daemon_without_threads_for_lanes_has_them_while_it_opens() {
    let mut client = Client::fresh(spec(Some(2), true));
    written(&mut client, 200);
    client.crash(5, Fate::Kept, Fate::Kept);
    client.world.open().expect("a sound cache opens");
    let turns = client.world.arena.turns_apart();
    assert!(turns > 20, "{turns} turns apart");
    for round in 0..8 {
        (0..64).for_each(|nth| _ = client.write(0, (nth * 32 + round) * 8, 8, false));
        (0..64).for_each(|nth| _ = client.read(0, (nth * 32 + 16) * 8, 8));
        client.finish();
    }
    assert_eq!(client.world.arena.turns_apart(), turns, "the helpers have ended");
}
