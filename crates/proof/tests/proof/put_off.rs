// SPDX-License-Identifier: MIT OR Apache-2.0
//! The origin's flush after a batch of destage is put off while nobody needs it. It is done at once
//! for a client or an order that does. Tests of crates/sim show what a disk's readers gain by it.

use flashfront_engine::{Mode, RequestOp};
use flashfront_proof::{Client, OriginSpec, WorldSpec};

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
