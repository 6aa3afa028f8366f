// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of an origin keep their meaning. A client is told that there is no space, or that nothing
//! may be written. The operator is told which I/O failed, and where.

use flashfront_device::Rng;
use flashfront_device::wrap::{Fault, Rule};
use flashfront_engine::{Control, DeviceError, Event, Lba, Mode, Op, Options, OriginId, RequestError, RequestOp};
use flashfront_proof::{Client, OriginSpec, WorldSpec};

const B: u64 = 8;

fn client(mode: Mode, options: Options) -> Client {
    let origin = OriginSpec { size_bytes: 16 << 20, logical_block_bytes: 512, mode };
    Client::fresh(WorldSpec { origins: vec![origin], options, ..WorldSpec::default() })
}

/// Makes all I/O of this kind fail with `error` from now on.
fn fail(client: &mut Client, op: Op, error: DeviceError) {
    client.world.origins[0].faults.order(Rule { op: Some(op), ..Rule::always(Fault::Error(error)) });
}

/// The answers to all requests that failed.
fn answers(client: &mut Client) -> Vec<RequestError> {
    client.finish();
    client.take_failed().into_iter().map(|(_, error)| error).collect()
}

#[test]
fn what_goes_to_the_origin_fails_as_the_origin_does() {
    for mode in [Mode::Writethrough, Mode::Writearound, Mode::Passthrough] {
        for (error, told) in [
            (DeviceError::NoSpace, RequestError::NoSpace),
            (DeviceError::ReadOnly, RequestError::ReadOnly),
            (DeviceError::Io, RequestError::Io),
            (DeviceError::Gone, RequestError::Io),
        ] {
            let mut client = client(mode, Options::default());
            fail(&mut client, Op::Write, error);
            fail(&mut client, Op::Zero, error);
            fail(&mut client, Op::Discard, error);
            let zeroes = |may_discard| RequestOp::WriteZeroes { may_discard };
            for (op, at, sectors) in [
                (RequestOp::Write, 0, 8),
                (RequestOp::Write, 3, 2),
                (RequestOp::Write, 5000, 2048),
                (zeroes(true), 0, 8),
                (zeroes(false), 0, 8),
                (zeroes(true), 3, 4000),
                (zeroes(false), 3, 4000),
                (RequestOp::Discard, 0, 4000),
            ] {
                client.change(op, 0, at, sectors, false);
                assert_eq!(answers(&mut client), [told], "{op:?} of {sectors} sectors, {mode}, {error:?}");
            }
            client.world.origins[0].faults.heal();
            client.leave();
        }
    }
}

/// In writeback long zeroes and streams go past the log. Dirty blocks in their way have to be
/// destaged before.
#[test]
fn what_goes_past_the_log_fails_as_the_origin_does() {
    let mut client = client(Mode::Writeback, Options { sequential_bypass_bytes: 1 << 20, ..Options::default() });
    client.write(0, 0, B, false);
    client.finish();
    fail(&mut client, Op::Write, DeviceError::NoSpace);
    fail(&mut client, Op::Zero, DeviceError::NoSpace);
    client.change(RequestOp::WriteZeroes { may_discard: true }, 0, 8192, 4096, false);
    assert_eq!(answers(&mut client), [RequestError::NoSpace], "long zeroes");
    client.change(RequestOp::WriteZeroes { may_discard: true }, 0, 0, 4096, false);
    assert_eq!(answers(&mut client), [RequestError::NoSpace], "long zeroes over a dirty block");
    for at in (16384..24576).step_by(2048) {
        client.write(0, at, 2048, false);
        client.finish();
    }
    let answers = answers(&mut client);
    assert!(!answers.is_empty() && answers.iter().all(|it| *it == RequestError::NoSpace), "a stream: {answers:?}");
    client.world.origins[0].faults.heal();
    client.leave();
}

/// Writes wait at the dirty limit for room that the origin refuses to make. They are told why, and
/// need not wait for long. When there is space again, they are taken.
#[test]
fn who_waits_for_a_full_origin_is_told() {
    for (error, told, dirty_limit_blocks) in [
        (DeviceError::NoSpace, RequestError::NoSpace, Some(300)),
        (DeviceError::ReadOnly, RequestError::ReadOnly, Some(300)),
        (DeviceError::NoSpace, RequestError::NoSpace, None),
        // The dirty limit is as much as the log can hold.
        (DeviceError::NoSpace, RequestError::NoSpace, Some(u64::MAX)),
    ] {
        let mut client = client(Mode::Writeback, Options { dirty_limit_blocks, ..Options::default() });
        fail(&mut client, Op::Write, error);
        let mut rng = Rng::new(7);
        let room = client.world.engine().status().dirty_limit_blocks;
        for _ in 0..room + room / 4 + 200 {
            client.write(0, rng.below(4000) * B, B, false);
            while client.world.in_flight() > 4 {
                assert!(
                    client.world.now.0 < 3_600_000_000_000,
                    "who waits is not told: {:?}",
                    client.world.engine().status()
                );
                client.world.step();
            }
            client.judge();
        }
        let failed = answers(&mut client);
        assert!(failed.len() > 50 && failed.iter().all(|it| *it == told), "{failed:?}");
        let began = client.world.now;
        client.write(0, 100, B, false);
        assert_eq!(answers(&mut client), [told]);
        assert!(client.world.now.since_ns(began) < 3_000_000_000, "the origin is asked once more, soon");
        client.world.origins[0].faults.heal();
        client.write(0, 100, B, false);
        assert_eq!(answers(&mut client), [], "there is space again, and nobody was made to wait for a minute");
        client.leave();
    }
}

/// Writes go on waiting for an origin that fails with an I/O error. The device may come back, and
/// an error would help nobody then.
#[test]
fn who_waits_for_a_broken_origin_goes_on_waiting() {
    let mut client = client(Mode::Writeback, Options { dirty_limit_blocks: Some(300), ..Options::default() });
    fail(&mut client, Op::Write, DeviceError::Io);
    for block in 0..320 {
        client.write(0, block * 3 * B, B, false);
    }
    client.world.pass(20_000_000_000);
    assert!(client.world.in_flight() > 0);
    client.world.origins[0].faults.heal();
    assert_eq!(answers(&mut client), []);
    client.leave();
}

/// A failed FLUSH is always an I/O error. The FLUSH after it says nothing about the failure. So the
/// error must not be one after which a client asks again and believes the answer.
#[test]
fn a_failed_flush_is_an_error_whatever_the_reason() {
    let mut client = client(Mode::Passthrough, Options::default());
    client.world.pass(1_000_000_000);
    fail(&mut client, Op::Flush, DeviceError::NoSpace);
    client.write(0, 0, B, false);
    assert_eq!(answers(&mut client), []);
    client.flush(0);
    assert_eq!(answers(&mut client), [RequestError::Io]);
    client.write(0, 0, B, true);
    assert_eq!(answers(&mut client), [RequestError::NoSpace], "a write with FUA is sent again as a whole");
    client.world.origins[0].faults.heal();
    client.leave();
}

/// Space may be given back only where the client allows it.
#[test]
fn zeroes_may_become_a_hole_if_the_client_allows_it() {
    for mode in Mode::ALL {
        let mut client = client(mode, Options::default());
        // Only zeroes that may become a hole meet this fault.
        fail(&mut client, Op::Punch, DeviceError::NoSpace);
        for (may_discard, sectors) in [(true, 4000), (false, 4000), (true, 16), (false, 16)] {
            client.change(RequestOp::WriteZeroes { may_discard }, 0, 8, sectors, false);
            // In writeback short zeroes are data in the log.
            let hole = may_discard && (sectors == 4000 || mode != Mode::Writeback);
            let expected = if hole { vec![RequestError::NoSpace] } else { Vec::new() };
            assert_eq!(answers(&mut client), expected, "{sectors} sectors, may_discard {may_discard}, {mode}");
        }
        client.world.origins[0].faults.heal();
        client.leave();
    }
}

/// Zeroes replace blocks that are cached, dirty, or both, and stay past a restart.
#[test]
fn zeroes_replace_whatever_is_cached() {
    for (seed, mode) in (0..8).zip(Mode::ALL.into_iter().cycle()) {
        let mut client = client(mode, Options::default());
        let mut rng = Rng::new(seed);
        for _ in 0..60 {
            let (at, sectors) = (rng.below(20_000), 1 + rng.below(3000));
            match rng.below(4) {
                0 => client.read(0, at, sectors.min(2048)),
                1 => client.write(0, at, sectors.min(200), false),
                n => client.change(RequestOp::WriteZeroes { may_discard: n == 2 }, 0, at, sectors, false),
            };
            client.finish_to(3);
        }
        client.finish();
        assert_eq!(client.take_failed(), []);
        client.read_all();
        client.stop();
        client.open();
        client.read_all();
        client.leave();
    }
}

#[test]
fn the_operator_is_told_what_failed_where() {
    let mut client = client(Mode::Writethrough, Options::default());
    client.take_events();
    let told = |client: &mut Client| -> Vec<Event> {
        client.finish();
        let events = client.take_events().into_iter();
        events.filter(|event| matches!(event, Event::OriginFailed { .. })).collect()
    };
    let failed =
        |op, lba, sectors, error| Event::OriginFailed { origin: OriginId(0), op, lba: Lba(lba), sectors, error };
    fail(&mut client, Op::Read, DeviceError::Io);
    client.read(0, 803, 2);
    assert_eq!(told(&mut client), [failed(Op::Read, 800, 8, DeviceError::Io)]);
    client.world.origins[0].faults.heal();

    fail(&mut client, Op::Write, DeviceError::NoSpace);
    fail(&mut client, Op::Discard, DeviceError::Unsupported);
    fail(&mut client, Op::Flush, DeviceError::Gone);
    client.write(0, 1600, 16, false);
    client.change(RequestOp::Discard, 0, 0, 4096, false);
    client.finish();
    client.flush(0);
    let all = told(&mut client);
    assert!(all.contains(&failed(Op::Write, 1600, 16, DeviceError::NoSpace)), "{all:?}");
    assert!(all.contains(&failed(Op::Flush, 0, 0, DeviceError::Gone)), "{all:?}");
    assert_eq!(all.len(), 2, "a discard that the device can't do is no failure: {all:?}");
    client.world.origins[0].faults.heal();

    // Destage keeps the meaning too.
    client.world.control(Control::SetMode { origin: OriginId(0), mode: Mode::Writeback });
    client.write(0, 80, 8, false);
    client.finish();
    fail(&mut client, Op::Write, DeviceError::ReadOnly);
    client.world.control(Control::Drain(true));
    client.world.pass(100_000_000);
    assert_eq!(told(&mut client), [failed(Op::Write, 80, 8, DeviceError::ReadOnly)]);
    client.world.origins[0].faults.heal();
    client.leave();
}
