// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fickle origins drop data that they fail to flush. They say nothing of it the next time, as
//! Linux's page cache and disks do.

use flashfront_device::sim::Fate;
use flashfront_device::wrap::{Fault, Rule};
use flashfront_engine::{Control, DeviceError, Event, Mode, Op, OriginId};
use flashfront_proof::{Client, WorldSpec};

use super::{lazy, small};

fn fail_next_flush(client: &mut Client) {
    client.make_origins_fickle();
    client.world.origins[0].faults.fail_nth(0, Some(Op::Flush), DeviceError::Io);
}

fn flush_fails(client: &mut Client) -> bool {
    client.flush(0);
    client.finish();
    !client.take_failed().is_empty()
}

fn wait_for_the_failure(client: &mut Client) {
    let failed = |event: &Event| matches!(event, Event::OriginFailed { op: Op::Flush, .. });
    while !client.world.events.iter().any(failed) {
        assert!(client.world.step(), "no flush has failed");
    }
}

/// Invariant 1: a flush of destage fails, or a flush of the start after a kill. Data that a client
/// has written past the log may be gone, and the client's FLUSH says so once. From then on the
/// client can rely on FLUSH again.
#[test]
fn a_client_learns_of_the_failed_flush_of_another() {
    for destage in [false, true] {
        let mut client = Client::fresh(small(Mode::Writeback, 2));
        client.write(0, 0, 8, true);
        client.finish();
        client.world.control(Control::SetMode { origin: OriginId(0), mode: Mode::Writearound });
        if destage {
            client.write(0, 320, 64, false);
            fail_next_flush(&mut client);
        } else {
            client.world.drain();
            client.write(0, 320, 64, false);
            client.finish();
            client.crash(0, Fate::Killed, Fate::Killed);
            fail_next_flush(&mut client);
            client.open();
        }
        wait_for_the_failure(&mut client);
        assert!(client.world.engine().status().origins[0].doubtful);
        assert!(flush_fails(&mut client), "destage: {destage}");
        assert!(!client.world.engine().status().origins[0].doubtful);
        client.write(0, 640, 64, false);
        client.finish();
        assert!(!flush_fails(&mut client));
        // The dirty block is on the origin: nothing has made it clean before.
        client.world.drain();
        client.crash(1, Fate::Kept, Fate::Lost);
        client.open();
        client.read_all();
        client.leave();
    }
}

/// A client whose own flush fails has been told of the failure, and is not told again.
#[test]
fn a_failed_flush_is_told_once() {
    let mut client = Client::fresh(small(Mode::Writearound, 2));
    client.world.pass(1_000_000_000);
    client.write(0, 320, 64, false);
    client.finish();
    fail_next_flush(&mut client);
    assert!(flush_fails(&mut client));
    assert!(!flush_fails(&mut client));
    client.leave();
}

/// Invariant 1: a flush fails when one part of a write is on the origin, and the other part still
/// waits. The client that flushed is told before the write is acknowledged. So the write must not
/// be acknowledged.
#[test]
fn a_failed_flush_between_the_parts_of_a_write_fails_it() {
    let mut client = Client::fresh(WorldSpec { lanes: 2, stripe_blocks: 8, ..small(Mode::Writeback, 2) });
    client.write(0, 64, 64, true);
    client.finish();
    client.world.drain();
    client.world.control(Control::SetMode { origin: OriginId(0), mode: Mode::Writearound });
    // The second lane writes when it is durable that its cached block is void.
    let held = Rule { op: Some(Op::Write), times: 1, ..Rule::always(Fault::Stall { hold_ns: 5_000_000_000 }) };
    client.world.cache.faults.order(held);
    let parts = client.write(0, 0, 128, false);
    client.world.pass(100_000_000);
    fail_next_flush(&mut client);
    client.flush(0);
    wait_for_the_failure(&mut client);
    assert!(client.world.waits(parts), "one part is held back");
    client.finish();
    assert_eq!(client.take_failed().len(), 2, "the FLUSH, and the write of which one part may be gone");
    assert!(!flush_fails(&mut client));
    client.crash(1, Fate::Kept, Fate::Lost);
    client.open();
    client.read_all();
    client.leave();
}

/// Invariant 4: blocks that destage writes while a flush fails are not clean by the next flush.
#[test]
fn what_was_written_during_a_failed_flush_stays_dirty() {
    for seed in 0..12 {
        // Batches are on: a run's write and a flush that fails may end together.
        let mut client = Client::fresh(WorldSpec { seed, batches: seed > 0, ..lazy(16) });
        for nth in 0..240 {
            client.write(0, nth * 128, 8, false);
        }
        client.flush(0);
        client.finish();
        client.make_origins_fickle();
        let held = Rule { op: Some(Op::Flush), times: 1, ..Rule::always(Fault::Timeout { hold_ns: 50_000_000 }) };
        client.world.origins[0].faults.order(held);
        client.world.drain();
        assert!(client.world.origins[0].faults.hits().values().sum::<u64>() > 0);
        // The checkpoint of a stop says what is clean.
        client.stop();
        client.crash(1, Fate::Kept, Fate::Lost);
        client.judge_origins();
    }
}
