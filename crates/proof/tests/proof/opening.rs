// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lanes are opened at the same time, each with one batch under way.

use flashfront_device::sim::Fate;
use flashfront_device::wrap::{Fault, Rule};
use flashfront_engine::{Destage, Mode, Op};
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

/// Two lanes, whose checkpoints tell of eras.
fn ordered(destage: Destage) -> Client {
    let origin = OriginSpec { size_bytes: 16 << 20, logical_block_bytes: 512, mode: Mode::Writeback };
    let mut spec = WorldSpec { lanes: 2, stripe_blocks: 4, segments_per_lane: 64, ..WorldSpec::default() };
    spec.origins = vec![origin];
    spec.options.destage = destage;
    let mut client = Client::fresh(spec);
    // Nothing gets to the origin for an hour.
    let silent = Rule { op: Some(Op::Write), ..Rule::always(Fault::Hang { hold_ns: 3_600_000_000_000 }) };
    client.world.origins[0].faults.order(silent);
    client
}

/// Writes a stripe of the first lane again and again, and waits only so long for an answer.
fn fill_the_first_lane(client: &mut Client) {
    for stripe in (0..1024).step_by(2) {
        client.write(0, stripe * 32, 32, false);
        client.world.pass(1_000_000);
        if stripe % 32 == 0 {
            client.flush(0);
        }
    }
    client.world.pass(1_000_000_000);
}

/// The origin answers again after a power cut: all is there, and goes to it.
fn come_back(client: &mut Client, destage: Destage) {
    client.world.origins[0].faults.heal();
    client.crash(3, Fate::Lost, Fate::Lost);
    client.world.spec.options.destage = destage;
    client.open();
    assert!(client.world.engine().status().counters.checkpoints >= 2, "each lane begins with a checkpoint");
    client.read_all();
    client.world.drain();
    client.judge_origin(0);
}

#[test]
fn one_lane_full_of_versions_can_be_opened() {
    let mut client = ordered(Destage::Ordered);
    fill_the_first_lane(&mut client);
    let status = client.world.engine().status();
    // The dirty limit has room for more. But a checkpoint of the lane has not.
    assert!(status.blocks_dirty > 400 && status.blocks_dirty < 500, "{}", status.blocks_dirty);
    come_back(&mut client, Destage::Ordered);
}

#[test]
fn a_cache_that_is_full_of_dirty_blocks_can_be_opened_in_order() {
    let mut client = ordered(Destage::Free);
    fill_the_first_lane(&mut client);
    come_back(&mut client, Destage::Ordered);
}
