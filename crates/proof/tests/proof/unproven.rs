// SPDX-License-Identifier: MIT OR Apache-2.0
//! A block that is written through is in the log before the origin has flushed it. No power cut may
//! leave it there if the origin has lost it (invariant 3).

use flashfront_device::sim::Fate;
use flashfront_device::wrap::{Fault, Rule};
use flashfront_engine::{Control, DeviceError, Mode, Op, Options, OriginId, policy};
use flashfront_proof::{Client, OriginSpec, WorldSpec};

/// The number of pieces of the origin. Each piece has 32 sectors, which is the size of the requests
/// of these tests.
const PIECES: u64 = 500;

/// A client of a log of 1024 segments of 16 blocks, where 64 commits may wait to be proven. All
/// misses are cached.
fn client() -> Client {
    client_with(1024)
}

fn client_with(segments_per_lane: u32) -> Client {
    let origins = vec![OriginSpec { size_bytes: 32 << 20, logical_block_bytes: 512, mode: Mode::Writethrough }];
    let policy = policy::by_name("reinsert").expect("a policy");
    let options = Options { policy, sequential_bypass_bytes: 0, ..Options::default() };
    let mut client = Client::fresh(WorldSpec { segments_per_lane, origins, options, ..WorldSpec::default() });
    client.flush(0);
    client.finish();
    client
}

fn write_through(client: &mut Client, pieces: impl IntoIterator<Item = u64>) {
    for nth in pieces {
        client.write(0, nth * 32, 32, false);
        client.finish();
    }
}

fn flushes(client: &Client) -> u64 {
    client.world.engine().status().counters.origin_flushes
}

#[test]
fn many_commits_share_a_flush_of_the_origin() {
    let mut client = client();
    let (flushes_before, commits_before) = (flushes(&client), client.world.counters().commits);
    write_through(&mut client, 0..PIECES);
    let commits = client.world.counters().commits - commits_before;
    assert!(commits > 100, "{commits}");
    let flushes = flushes(&client) - flushes_before;
    assert!(flushes > 0 && flushes <= commits / 16, "{flushes} flushes for {commits} commits");
    client.leave();
}

#[test]
fn what_no_flush_has_covered_is_not_replayed() {
    for fate in [Fate::Kept, Fate::Lost] {
        let mut client = client();
        write_through(&mut client, 0..20);
        client.world.pass(1_000_000_000);
        client.crash(1, Fate::Kept, fate);
        let opened = client.open();
        assert_eq!(opened.blocks_cached, 0, "{fate:?}");
        assert!(opened.commits_replayed >= 4, "{opened:?}");
        client.read_all();
        client.leave();
    }
}

#[test]
fn what_a_flush_has_covered_is_replayed() {
    let mut client = client();
    write_through(&mut client, 0..20);
    client.flush(0);
    client.finish();
    write_through(&mut client, 20..40);
    client.world.pass(1_000_000_000);
    client.crash(1, Fate::Kept, Fate::Lost);
    let opened = client.open();
    // One commit of 15 blocks was open when the flush came.
    assert!((20 * 4 - 14..=20 * 4).contains(&opened.blocks_cached), "{opened:?}");
    client.read_all();
    client.leave();
}

/// A later flush that succeeds proves nothing: it does not speak of data that the failed flush had
/// dropped.
#[test]
fn what_a_failed_flush_has_dropped_is_never_proven() {
    for more in [0, 20, 300] {
        let mut client = client();
        client.make_origins_fickle();
        write_through(&mut client, 0..20);
        client.world.origins[0].faults.fail_nth(0, Some(Op::Flush), DeviceError::Io);
        client.flush(0);
        client.finish();
        assert_eq!(client.take_failed().len(), 1, "the client is told");
        client.flush(0);
        client.finish();
        write_through(&mut client, 100..100 + more);
        client.flush(0);
        client.finish();
        write_through(&mut client, 450..470);
        assert_eq!(client.take_failed(), []);
        client.crash(1, Fate::Kept, Fate::Lost);
        client.open();
        client.read(0, 0, 20 * 32);
        client.finish();
        client.world.control(Control::SetMode { origin: OriginId(0), mode: Mode::Passthrough });
        client.read(0, 0, 20 * 32);
        client.finish();
        client.leave();
    }
}

/// Sends a read of data that no flush has covered, and holds it back. A flush fails meanwhile.
fn read_beside_a_failed_flush(client: &mut Client) {
    client.make_origins_fickle();
    client.world.control(Control::SetMode { origin: OriginId(0), mode: Mode::Writearound });
    client.write(0, 0, 640, false);
    client.finish();
    client.hold_read(0, 1_000_000_000);
    let read = client.read(0, 0, 640);
    client.world.pass(1_000_000);
    client.world.origins[0].faults.fail_nth(0, Some(Op::Flush), DeviceError::Io);
    let flush = client.flush(0);
    while client.world.waits(flush) {
        assert!(client.world.step(), "the flush fails");
    }
    assert!(client.world.waits(read), "it is held back");
}

/// Data that was read before the flush failed, and only arrives after it, is not cached either.
#[test]
fn what_is_being_read_while_a_flush_fails_is_not_cached() {
    let mut client = client();
    read_beside_a_failed_flush(&mut client);
    client.finish();
    assert_eq!(client.take_failed().len(), 1, "the FLUSH");
    // The next FLUSH succeeds, as blocks show that are cached after it.
    client.flush(0);
    client.finish();
    client.read(0, 3200, 640);
    client.finish();
    client.world.pass(1_000_000_000);
    client.crash(1, Fate::Kept, Fate::Lost);
    client.open();
    client.read(0, 0, 640);
    client.finish();
    client.world.control(Control::SetMode { origin: OriginId(0), mode: Mode::Passthrough });
    client.read(0, 0, 640);
    client.finish();
    client.leave();
}

#[test]
fn who_asks_after_a_failed_flush_shares_no_read_of_before() {
    let mut client = client();
    read_beside_a_failed_flush(&mut client);
    client.read(0, 0, 640);
    client.finish();
    assert_eq!(client.world.counters().joined_blocks, 0);
    client.leave();
}

/// Unproven commits can't be reclaimed, but there is never more than one for each sixteen segments.
#[test]
fn an_origin_that_never_flushes_stops_nobody() {
    let mut client = client();
    let never = Fault::Stall { hold_ns: u64::MAX / 4 };
    client.world.origins[0].faults.order(Rule { op: Some(Op::Flush), ..Rule::always(never) });
    // The rounds write twice what the cache holds.
    for round in 0..16 {
        write_through(&mut client, (0..PIECES).map(|nth| (nth * 7 + round) % PIECES));
        client.read(0, round * 512, 512);
        client.finish();
    }
    assert_eq!(client.take_failed(), []);
    client.judge();
}

/// Blocks of an origin that never flushes leave the cache after a while. So blocks of other origins
/// in the same commits, and behind them, are proven without that origin.
#[test]
fn an_origin_that_never_flushes_keeps_nothing_of_others_out() {
    let origin = OriginSpec { size_bytes: 32 << 20, logical_block_bytes: 512, mode: Mode::Writethrough };
    let policy = policy::by_name("reinsert").expect("a policy");
    let options = Options { policy, sequential_bypass_bytes: 0, ..Options::default() };
    let origins = vec![origin, origin];
    let mut client = Client::fresh(WorldSpec { segments_per_lane: 1024, origins, options, ..WorldSpec::default() });
    let never = Fault::Stall { hold_ns: u64::MAX / 4 };
    client.world.origins[1].faults.order(Rule { op: Some(Op::Flush), ..Rule::always(never) });
    let write = |client: &mut Client, origin: usize, piece: u64| {
        client.write(origin, piece * 32, 32, false);
        client.finish();
    };
    // These are as many commits of both origins as may wait, and more.
    for piece in 0..300 {
        write(&mut client, 0, piece);
        write(&mut client, 1, piece);
    }
    // The flush of that origin has been asked for, and is overdue.
    client.world.pass(20_000_000_000);
    for piece in 300..400 {
        write(&mut client, 0, piece);
        write(&mut client, 1, piece);
    }
    let misses = |client: &Client| client.world.engine().status().counters.read_misses;
    let before = misses(&client);
    for piece in 300..400 {
        client.read(0, piece * 32, 32);
        client.finish();
    }
    assert_eq!(misses(&client) - before, 0, "what was written to the other one since is in the cache");
    client.read(1, 0, 32);
    client.finish();
    assert_eq!(misses(&client) - before, 4, "what waited for the proof is not");
    client.flush(0);
    client.finish();
    client.judge();
    client.crash(1, Fate::Kept, Fate::Lost);
    client.world.origins[1].faults = Default::default();
    let opened = client.open();
    assert!(opened.blocks_cached > 0, "{opened:?}");
    client.read_all();
    client.leave();
}

#[test]
fn a_stop_proves_all() {
    let mut client = client();
    write_through(&mut client, 0..20);
    client.stop();
    client.crash(1, Fate::Lost, Fate::Lost);
    let opened = client.open();
    assert_eq!(opened.blocks_cached, 20 * 4);
    client.leave();
}

/// A commit finds no place behind a commit whose flush has failed, when nothing is left to flush. A
/// checkpoint lets it go.
#[test]
fn a_stop_ends_behind_a_flush_that_failed() {
    for pieces in 4..20 {
        let mut client = client_with(24);
        client.world.origins[0].faults.fail_nth(0, Some(Op::Flush), DeviceError::Io);
        write_through(&mut client, 0..pieces);
        (0..2).for_each(|_| _ = client.flush(0));
        client.finish();
        client.read(0, 400 * 32, 8);
        client.finish();
        client.world.stop();
    }
}
