// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads go past a slow cache device. An origin that fails must not take the cache's hits and
//! writes along.

use std::collections::VecDeque;

use flashfront_device::Rng;
use flashfront_device::wrap::{Fault, Rule};
use flashfront_engine::{Control, Counters, DeviceError, Mode, Op, OriginId, RequestOp};
use flashfront_proof::{Client, OriginSpec, WorldSpec};

fn counters(client: &Client) -> Counters {
    client.world.engine().status().counters
}

/// Waits until all data is on the origin.
fn drain(client: &mut Client) {
    client.flush(0);
    client.finish();
    client.world.drain();
    client.world.control(Control::Drain(false));
    client.finish();
}

/// A client of a cache that holds 256 clean blocks. Its devices have these latencies.
fn warm(cache_ns: u64, origin_ns: u64) -> Client {
    warm_with(cache_ns, origin_ns, None)
}

/// A client like that of `warm`, whose origin has this limit for an answer.
fn warm_with(cache_ns: u64, origin_ns: u64, origin_limit_ns: Option<u64>) -> Client {
    let origins = vec![OriginSpec { size_bytes: 2 << 20, logical_block_bytes: 512, mode: Mode::Writeback }];
    let spec = WorldSpec { cache_ns, origin_ns, origins, origin_limit_ns, check: false, ..WorldSpec::default() };
    let mut client = Client::fresh(spec);
    for at in (0..2048).step_by(8) {
        client.write(0, at, 8, false);
        client.finish_to(4);
    }
    drain(&mut client);
    client
}

fn hits(client: &mut Client, reads: u64, depth: usize) {
    let mut rng = Rng::new(1);
    for _ in 0..reads {
        client.read(0, rng.below(250) * 8, 8);
        client.finish_to(depth);
    }
    client.finish();
}

#[test]
fn hits_survive_a_broken_origin() {
    for depth in [4, 16, 64] {
        let mut client = warm(4_000_000, 40_000);
        client.world.origins[0].faults.fail_range(0..u64::MAX, Some(Op::Read), DeviceError::Io);
        hits(&mut client, 5_000, depth);
        assert_eq!(client.take_failed(), [], "at depth {depth}");
        let sent = counters(&client).bypassed_congested_blocks;
        assert!((1..=64).contains(&sent), "{sent} blocks were tried at depth {depth}");
    }
}

/// The origin has a bad sector under a cached block.
#[test]
fn hits_survive_a_bad_sector() {
    let mut client = warm(4_000_000, 40_000);
    client.world.origins[0].faults.fail_range(100 * 4096..101 * 4096, Some(Op::Read), DeviceError::Io);
    for _ in 0..50 {
        for at in 0..16 {
            client.read(0, at * 128, 128);
        }
        client.finish();
    }
    assert_eq!(client.take_failed(), []);
    assert!(counters(&client).bypassed_congested_blocks > 0);
}

#[test]
fn a_sleeping_origin_is_asked_for_little() {
    let mut client = warm(300_000, 1_000_000);
    client.world.origins[0]
        .faults
        .order(Rule { op: Some(Op::Read), ..Rule::always(Fault::Stall { hold_ns: 8_000_000_000 }) });
    let stalls =
        Rule { op: Some(Op::Read), after: 3000, times: 1000, ..Rule::always(Fault::Stall { hold_ns: 40_000_000 }) };
    client.world.cache.faults.order(stalls);
    hits(&mut client, 20_000, 64);
    let sent = counters(&client).bypassed_congested_blocks;
    assert!(sent <= 8, "{sent} reads waited 8 s each instead of 40 ms");
}

const DAY_NS: u64 = 86_400_000_000_000;

/// Reads cached blocks, `depth` at a time. Asserts that each read is answered long before a silent
/// origin would answer.
fn hits_in_time(client: &mut Client, depth: usize, sectors: u64) {
    let (mut rng, mut waiting) = (Rng::new(3), VecDeque::new());
    for nth in 0..500 {
        if nth < 400 {
            let id = client.read(0, rng.below(230) * 8, sectors);
            waiting.push_back((id, client.world.now));
        }
        while waiting.len() > if nth < 400 { depth } else { 0 } {
            assert!(client.world.step());
            let now = client.world.now;
            waiting.retain(|(id, _)| client.world.waits(*id));
            let longest_ns = waiting.iter().map(|(_, began)| now.since_ns(*began)).max().unwrap_or(0);
            assert!(longest_ns < 1_000_000_000, "a hit waits at depth {depth}, {sectors} sectors");
        }
        client.judge();
    }
}

/// A hit that was sent to a silent origin is sent to the cache device as soon as that would have
/// answered. It makes no difference whether the origin ever answered before, or whether the daemon
/// gives requests up.
#[test]
fn a_hit_waits_for_no_origin_that_does_not_answer() {
    let limits = [None, Some(30_000_000_000)];
    for (known, limit, (depth, sectors)) in [false, true]
        .into_iter()
        .flat_map(|known| limits.map(|limit| (known, limit)))
        .flat_map(|(known, limit)| [(1, 8), (80, 8), (8, 128)].map(|load| (known, limit, load)))
    {
        let mut client = warm_with(4_000_000, 40_000, limit);
        if known {
            hits(&mut client, 1_000, 16);
            assert!(counters(&client).bypassed_congested_blocks > 100, "the test needs a congested cache device");
        }
        client.world.pass(DAY_NS);
        let hold_ns = 10 * DAY_NS;
        let fault = if limit.is_some() { Fault::Hang { hold_ns } } else { Fault::Stall { hold_ns } };
        client.world.origins[0].faults.order(Rule { op: Some(Op::Read), ..Rule::always(fault) });
        let before = counters(&client).bypassed_congested_blocks;
        hits_in_time(&mut client, depth, sectors);
        let sent = counters(&client).bypassed_congested_blocks - before;
        assert!(depth == 1 || sent > 0, "the test needs hits that are sent to the origin");
        assert_eq!(client.take_failed(), []);
        // Blocks that are written meanwhile keep the new data when the answers come at last.
        for block in 0..250 {
            client.write(0, block * 8, 8, false);
            client.finish_to(4);
        }
        client.flush(0);
        client.finish();
        client.world.origins[0].faults.heal();
        client.world.pass(20 * DAY_NS);
        client.read_all();
        assert_eq!(client.take_failed(), []);
        client.leave();
    }
}

/// Writes into a cache before an origin with these latencies. Some of the writes have been
/// destaged.
fn writer(cache_ns: u64, origin_ns: u64, logical_block_bytes: u32) -> Client {
    let origins = vec![OriginSpec { size_bytes: 256 << 20, logical_block_bytes, mode: Mode::Writeback }];
    let mut client = Client::fresh(WorldSpec {
        segment_blocks: 256,
        segments_per_lane: 128,
        cache_ns,
        origin_ns,
        origins,
        check: false,
        ..WorldSpec::default()
    });
    for n in 0..24 {
        client.write(0, 200_000 + n * 2048, 2048, false);
        client.finish_to(4);
    }
    drain(&mut client);
    client
}

/// A client with a slow log and a fast origin.
fn slow_log(logical_block_bytes: u32) -> Client {
    writer(20_000_000, 200_000, logical_block_bytes)
}

/// Writes 40 times. Returns the number of blocks that went past the cache.
fn burst(client: &mut Client) -> u64 {
    let before = counters(client).bypassed_congested_blocks;
    for n in 0..40 {
        client.write(0, 10_000 + n * 4096, 2048, false);
        client.finish_to(12);
    }
    client.finish_to(0);
    counters(client).bypassed_congested_blocks - before
}

#[test]
fn writes_go_past_a_slow_log_and_back_if_the_origin_refuses_them() {
    let mut client = slow_log(512);
    assert!(burst(&mut client) > 0, "the test needs a congested log");
    assert_eq!(client.take_failed(), []);
    let mut client = slow_log(512);
    let broken = Rule { op: Some(Op::Write), ..Rule::always(Fault::Error(DeviceError::Io)) };
    client.world.origins[0].faults.order(broken);
    let tried = burst(&mut client);
    assert!(tried > 0 && tried <= 12 * 256, "{tried} blocks were tried");
    assert_eq!(client.take_failed(), [], "they wait in the log");
    // Blocks that were tried at the origin are readable, and are as they were written.
    for n in 0..40 {
        client.read(0, 10_000 + n * 4096, 2048);
    }
    client.finish();
    assert_eq!(client.take_failed(), []);
}

/// An origin that answers that it can't discard says nothing about its writes.
#[test]
fn refused_discards_are_no_fast_writes() {
    let mut client = writer(2_000_000, 10_000_000, 512);
    let refused = Rule { op: Some(Op::Discard), ..Rule::always(Fault::Error(DeviceError::Unsupported)) };
    client.world.origins[0].faults.order(refused);
    for n in 0..5_000 {
        client.change(RequestOp::Discard, 0, 100_000 + n * 16, 16, false);
        client.finish_to(1);
    }
    client.flush(0);
    client.finish();
    assert_eq!(burst(&mut client), 0);
}

/// A half block that an origin with sectors of 4 KiB refuses does not undo the other half. The
/// other half is written meanwhile.
#[test]
fn a_refused_half_block_leaves_the_other_half_alone() {
    let mut client = slow_log(4096);
    let broken = Rule { op: Some(Op::Write), ..Rule::always(Fault::Error(DeviceError::Io)) };
    client.world.origins[0].faults.order(broken);
    let before = counters(&client).bypassed_congested_blocks;
    // The log is full of commits in flight. Then halves of blocks are written without waiting.
    for n in 0..10 {
        client.write(0, 10_000 + n * 4096, 2048, false);
    }
    for block in 0..40 {
        client.write(0, 100_000 + block * 8, 4, false);
        client.write(0, 100_004 + block * 8, 4, false);
    }
    client.finish();
    assert!(counters(&client).bypassed_congested_blocks > before, "the test needs a congested log");
    assert_eq!(client.take_failed(), []);
    for block in 0..40 {
        client.read(0, 100_000 + block * 8, 8);
    }
    // The refused data is in the log, so no FLUSH needs the origin.
    client.flush(0);
    client.finish();
    assert_eq!(client.take_failed(), []);
}

/// No write fails if the mode is switched, or a drain begins, at a bad moment. The write was to go
/// past the log, and waits behind a write of the same block that is in the log.
#[test]
fn a_switch_of_the_mode_fails_no_write() {
    for control in [Control::SetMode { origin: OriginId(0), mode: Mode::Writearound }, Control::Drain(true)] {
        switched_behind_a_congested_log(control);
    }
}

fn switched_behind_a_congested_log(control: Control) {
    let mut client = slow_log(512);
    let before = counters(&client).bypassed_congested_blocks;
    // The log is full of commits in flight.
    for n in 0..10 {
        client.write(0, 10_000 + n * 4096, 2048, false);
    }
    // Writes with FUA always go into the log. They are waited for there.
    for n in 0..10 {
        client.write(0, 100_000 + n * 2048, 1024, true);
        client.write(0, 100_000 + n * 2048, 1024, false);
    }
    while counters(&client).bypassed_congested_blocks == before {
        assert!(client.world.step(), "the test needs a congested log");
    }
    client.world.control(control);
    client.finish();
    assert_eq!(client.take_failed(), []);
    for n in 0..10 {
        client.read(0, 100_000 + n * 2048, 1024);
    }
    client.finish();
    assert_eq!(client.take_failed(), []);
}
