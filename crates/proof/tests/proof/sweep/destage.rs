// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dirty data stays dirty until the origin has it, keeps its limit, and is gone after a stop.

use flashfront_device::Rng;
use flashfront_device::sim::Fate;
use flashfront_engine::{Control, DeviceError, Event, Mode, Op, RequestOp};
use flashfront_proof::{Client, WorldSpec};

use super::{FATES, anything, events, lazy, place, small};

/// Invariant 4: destage is cut at every event, and its writes and flushes fail.
#[test]
fn destage_cut_anywhere_loses_nothing() {
    for cut in 0..60 {
        let mut client = Client::fresh(small(Mode::Writeback, 2));
        let mut rng = Rng::new(cut);
        for _ in 0..30 {
            let (at, sectors) = place(&mut rng, 1000, 60);
            client.write(0, at, sectors, false);
        }
        client.flush(0);
        client.finish();
        let faults = &mut client.world.origins[0].faults;
        match cut % 3 {
            0 => faults.fail_nth(rng.below(3), Some(Op::Write), DeviceError::Io),
            1 => faults.fail_nth(0, Some(Op::Flush), DeviceError::Io),
            _ => {}
        }
        client.world.control(Control::Drain(true));
        events(&mut client, cut);
        // What the origin has not flushed is gone.
        client.crash(cut, FATES[cut as usize % 4], Fate::Lost);
        client.open();
        client.read_all();
        client.leave();
    }
}

/// Errors of the origin are retried until it is well again; meanwhile nothing becomes clean.
#[test]
fn origin_errors_keep_blocks_dirty_and_are_retried() {
    for op in [Op::Write, Op::Flush] {
        let mut client = Client::fresh(lazy(2));
        client.write(0, 0, 800, false);
        client.flush(0);
        client.finish();
        let dirty = client.world.engine().status().blocks_dirty;
        match op {
            Op::Write => client.world.origins[0].faults.fail_range(0..u64::MAX, Some(op), DeviceError::Io),
            // A flush has no range: the next hundred fail.
            _ => (0..100).for_each(|nth| client.world.origins[0].faults.fail_nth(nth, Some(op), DeviceError::Io)),
        }
        client.world.control(Control::Drain(true));
        client.world.pass(20_000_000_000);
        assert_eq!(client.world.engine().status().blocks_dirty, dirty, "{op:?}: clean without being durable");
        let failures = client.take_events().into_iter().filter(|it| matches!(it, Event::DestageFailed { .. })).count();
        assert!((1..200).contains(&failures), "{op:?}: {failures} failures reported in 20 s");
        client.world.origins[0].faults.heal();
        client.world.pass(70_000_000_000);
        assert_eq!(client.world.engine().status().blocks_dirty, 0, "{op:?}: not tried again");
        client.leave();
    }
}

/// Invariant 6: clients that write faster than the origin takes it.
#[test]
fn the_dirty_limit_holds_with_many_lanes() {
    for (lanes, limit) in [(1, 300), (2, 300), (4, 700)] {
        let mut spec = WorldSpec { lanes, stripe_blocks: 16, ..small(Mode::Writeback, 12) };
        spec.options.dirty_limit_blocks = Some(limit);
        spec.origin_ns = 5_000_000;
        let mut client = Client::fresh(spec);
        let mut rng = Rng::new(limit);
        let all = client.sectors(0);
        for _ in 0..1500 {
            let (at, sectors) = place(&mut rng, all, 64);
            client.write(0, at, sectors, false);
            while client.world.in_flight() > 31 {
                assert!(client.world.step(), "writers wait for ever: {:?}", client.world.engine().status());
                client.judge();
                let status = client.world.engine().status();
                assert!(status.blocks_dirty <= status.dirty_limit_blocks, "{status:?}");
            }
        }
        client.finish();
        let status = client.world.engine().status();
        assert_eq!(status.dirty_limit_blocks, limit);
        assert!(status.counters.throttled_writes > 100, "the limit was never near: {status:?}");
        client.leave();
    }
}

/// Invariant 10: after a drain and a stop the origin alone holds what was written, and nothing
/// else.
#[test]
fn drain_and_stop_leave_only_the_origin() {
    for (seed, mode) in (0..).zip([Mode::Writeback, Mode::Writethrough, Mode::Writearound]) {
        let mut client = Client::fresh(WorldSpec { seed, lanes: 2, ..small(mode, 4) });
        let mut rng = Rng::new(seed);
        for _ in 0..400 {
            anything(&mut client, &mut rng, 6000, 100);
            client.finish_to(16);
        }
        // The windows of both lanes are full, and kept; the arena gives out powers of two.
        client.leave();
        let windows = 2 * (24 * 16 / 32 * 4096u64).next_power_of_two();
        assert_eq!(client.world.arena.allocated_bytes(), windows, "buffers were leaked");
        // Everything is durable: a power cut right after the stop changes nothing.
        client.oracle.stop();
        client.crash(seed, Fate::Lost, Fate::Lost);
        client.judge_origins();
    }
}

/// Rewriting the same blocks costs the origin one write of each, not one for each write.
#[test]
fn rewrites_are_absorbed() {
    let mut client = Client::fresh(small(Mode::Writeback, 4));
    for round in 0..50 {
        client.change(RequestOp::Write, 0, round % 4 * 8, 32, false);
        client.finish();
    }
    client.leave();
    let mut written = client.world.counters().origin_writes_bytes;
    written /= 4096;
    assert!(written <= 14, "{written} blocks written for 7 that changed");
}

/// Nothing to do, nothing done: an idle engine sets no timer, once it has destaged.
#[test]
fn an_idle_engine_sleeps() {
    let mut client = Client::fresh(small(Mode::Writeback, 4));
    client.write(0, 0, 800, false);
    client.finish();
    client.world.pass(60_000_000_000);
    assert_eq!(client.world.engine().status().blocks_dirty, 0, "idle time is used");
    assert_eq!(client.world.next_event(), None);
    client.leave();
}
