// SPDX-License-Identifier: MIT OR Apache-2.0
//! The origin's flush after a batch of destage is put off while nobody needs it. It is done at once
//! for a client or an order that does. Tests of crates/sim show what a disk's readers gain by it.

use flashfront_device::Rng;
use flashfront_engine::{Mode, RequestOp};
use flashfront_proof::{Client, OriginSpec, World, WorldSpec};

/// Runs of a batch, far apart.
const RUNS: u64 = 40;

/// What a client does, to its end.
type Act = fn(&mut Client);

/// A batch that is written, and whose flush is put off.
fn client_with_a_written_batch() -> Client {
    let origins = vec![OriginSpec { size_bytes: 32 << 20, logical_block_bytes: 512, mode: Mode::Writeback }];
    let mut client = Client::fresh(WorldSpec { segments_per_lane: 64, origins, ..WorldSpec::default() });
    for nth in 0..RUNS {
        client.write(0, nth * 1024, 8, false);
    }
    client.flush(0);
    client.finish();
    let flushes = client.world.counters().origin_flushes;
    while client.world.counters().origin_writes < RUNS {
        assert!(client.world.step(), "nobody asks for anything: all is destaged");
    }
    assert_eq!(client.world.counters().origin_flushes, flushes, "the flush is put off");
    client
}

/// Until a batch is clean that is flushed when the origin has had the time for it, or at once.
#[test]
fn nobody_waits_for_a_flush_that_is_put_off() {
    let took_ns = |what: Act| {
        let mut client = client_with_a_written_batch();
        let began = client.world.now;
        what(&mut client);
        client.world.now.since_ns(began)
    };
    let clean = |client: &mut Client| {
        client.world.drive_until(|world| world.engine().status().blocks_dirty == 0);
    };
    let left_alone = took_ns(clean);
    let asked: [(&str, Act); 3] = [
        ("a discard", |client| {
            client.change(RequestOp::Discard, 0, 0, 8, false);
            client.finish();
        }),
        ("a drain", |client| client.world.drain()),
        ("a stop", |client| client.world.stop()),
    ];
    for (name, what) in asked {
        let took = took_ns(what);
        assert!(took * 4 < left_alone, "{name} took {took} ns, and {left_alone} if nobody waits");
    }
}

/// The log has gone around, and its oldest segments hold more dirty blocks than reclaim moves. So
/// writers wait until these blocks are clean. (With these seeds they waited 84 ms where the flush
/// was put off all the same.)
#[test]
fn writers_that_wait_for_room_in_the_log_wait_for_no_flush_that_is_put_off() {
    let origins = vec![OriginSpec { size_bytes: 256 << 20, logical_block_bytes: 512, mode: Mode::Writeback }];
    let spec = WorldSpec { origins, segment_blocks: 64, segments_per_lane: 128, check: false, ..WorldSpec::default() };
    for seed in [1, 6, 12] {
        let mut world = World::format(WorldSpec { seed, ..spec.clone() });
        world.open().expect("a fresh cache opens");
        let mut rng = Rng::new(seed);
        let (mut longest_ns, mut answered) = (0, world.now);
        for number in 0..40_000 {
            world.submit(RequestOp::Write, 0, rng.below(65_536) * 8, 8, false, Some(number));
            while world.in_flight() >= 32 {
                assert!(world.step(), "requests are answered");
            }
            if !world.answers.is_empty() {
                world.answers.clear();
                longest_ns = longest_ns.max(world.now.since_ns(answered));
                answered = world.now;
            }
        }
        assert!(longest_ns < 60_000_000, "seed {seed}: nobody was answered for {longest_ns} ns");
    }
}
