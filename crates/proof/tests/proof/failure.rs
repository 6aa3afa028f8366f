// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache device fails. These tests say what clients see, what the origin has, and what the next
//! start does (invariant 7).

use flashfront_device::Rng;
use flashfront_device::sim::Fate;
use flashfront_device::wrap::{Fault, Rule};
use flashfront_engine::{Control, DeviceError, Event, Mode, Op, OriginId, RequestOp};
use flashfront_proof::{Client, OriginSpec, WorldSpec};

fn client(seed: u64, mode: Mode) -> Client {
    let origins = vec![OriginSpec { size_bytes: 2 << 20, logical_block_bytes: 512, mode }];
    Client::fresh(WorldSpec {
        seed,
        lanes: 1 + seed as u32 % 2,
        segments_per_lane: 24,
        origins,
        ..WorldSpec::default()
    })
}

/// Sends a read, a write of any kind, or a FLUSH.
fn anything(client: &mut Client, rng: &mut Rng) {
    let sectors = 1 + rng.below(40);
    let at = rng.below(1500 - sectors);
    match rng.below(20) {
        0..=1 => client.flush(0),
        2 => client.change(RequestOp::Discard, 0, at, sectors, false),
        3 => client.change(RequestOp::WriteZeroes { may_discard: true }, 0, at, sectors, false),
        4..=10 => client.read(0, at, sectors),
        n => client.write(0, at, sectors, n == 19),
    };
}

/// Makes the device fail: one write, one flush, all writes and flushes, or everything, as `how`
/// says.
fn fail(client: &mut Client, how: u64, nth: u64) {
    let faults = &mut client.world.cache.faults;
    match how {
        0 => faults.fail_nth(nth, Some(Op::Write), DeviceError::Io),
        1 => faults.fail_nth(nth, Some(Op::Flush), DeviceError::NoSpace),
        2 => {
            faults.fail_range(0..u64::MAX, Some(Op::Write), DeviceError::Io);
            faults.fail_nth(nth, Some(Op::Flush), DeviceError::Io);
        }
        _ => faults.lose_device(),
    }
}

/// Checks the end: the bare origin has everything, and this cache is never replayed. A new cache
/// takes its place.
fn end(client: &mut Client, seed: u64) {
    assert!(client.world.must_not_open());
    client.judge_origins();
    client.world.cache.faults.heal();
    client.crash(seed, Fate::Mixed, Fate::Mixed);
    assert!(client.world.must_not_open(), "the mark survives a power cut");
    client.world.replace_cache();
    client.open();
    client.read_all();
    client.leave();
}

/// In writethrough, writearound and passthrough no client sees an error, whatever the cache device
/// does.
#[test]
fn outside_writeback_nobody_notices() {
    let mut failures = 0;
    for (seed, mode) in (0..48).zip([Mode::Writethrough, Mode::Writearound, Mode::Passthrough].into_iter().cycle()) {
        let mut client = client(seed, mode);
        let mut rng = Rng::new(seed);
        for nth in 0..200 {
            anything(&mut client, &mut rng);
            client.finish_to(8);
            if nth == 60 {
                fail(&mut client, seed / 3 % 4, seed % 5);
            }
        }
        client.flush(0);
        client.finish();
        assert_eq!(client.take_failed(), [], "seed {seed}, {mode:?}");
        let failed = client.world.engine().status().cache_failed;
        client.stop();
        if failed {
            failures += 1;
            end(&mut client, seed);
        }
    }
    assert!(failures >= 20, "{failures} of 48 caches failed");
}

/// After a power cut at any moment after the failure, either the cache is marked, or replaying it
/// is right.
#[test]
fn no_power_cut_brings_old_data_back_after_a_failure() {
    let (mut marked, mut replayed) = (0, 0);
    for (seed, mode) in (0..240).zip([Mode::Writethrough, Mode::Writearound].into_iter().cycle()) {
        let mut client = client(seed, mode);
        let mut rng = Rng::new(seed);
        for _ in 0..60 {
            anything(&mut client, &mut rng);
            client.finish_to(8);
        }
        fail(&mut client, seed / 2 % 4, 0);
        for _ in 0..rng.below(10) {
            anything(&mut client, &mut rng);
            (0..rng.below(6)).for_each(|_| _ = client.world.step());
        }
        client.crash(seed, Fate::Mixed, Fate::Mixed);
        client.world.cache.faults.heal();
        if client.world.must_not_open() {
            marked += 1;
            client.judge_origins();
            client.world.replace_cache();
        } else {
            replayed += 1;
        }
        client.open();
        client.read_all();
        client.leave();
    }
    assert!(marked >= 40 && replayed >= 40, "{marked} marked, {replayed} replayed");
}

/// In writeback, a device that takes no more writes but can be read loses nothing. No client sees
/// an error. A FLUSH is answered when all is on the origin.
#[test]
fn a_cache_that_takes_no_writes_loses_nothing() {
    let mut failures = 0;
    for seed in 0..24 {
        let mut client = client(seed, Mode::Writeback);
        let mut rng = Rng::new(seed);
        for nth in 0..200 {
            anything(&mut client, &mut rng);
            client.finish_to(8);
            if nth == 60 {
                fail(&mut client, seed % 3, seed % 5);
            }
        }
        client.flush(0);
        client.finish();
        assert_eq!(client.take_failed(), [], "seed {seed}");
        let status = client.world.engine().status();
        assert_eq!(status.lost, [], "seed {seed}");
        if !status.cache_failed {
            continue;
        }
        failures += 1;
        assert_eq!(status.blocks_dirty, 0, "seed {seed}: FLUSH came before the data was on the origin");
        // This is no clean stop: the power goes.
        client.judge();
        client.crash(seed, Fate::Lost, Fate::Lost);
        end(&mut client, seed);
    }
    assert!(failures >= 12, "{failures} of 24 caches failed");
}

/// FLUSH keeps its promise in writeback, also if the flush that would make the mark durable times
/// out. Without a mark the log is replayed after a power cut, and it has older data. Blocks that an
/// acknowledged FLUSH covered must still be there.
#[test]
fn flush_waits_for_the_record_of_the_failure() {
    let (mut marked, mut replayed) = (0, 0);
    for seed in 0..60 {
        let mut client = client(seed, Mode::Writeback);
        for sector in (0..640).step_by(8) {
            client.write(0, sector, 8, true);
        }
        client.finish();
        // Data that only the origin gets, and that no FLUSH covers, may be older again after the
        // power cut.
        client.oracle.forgive_time_travel();
        let faults = &mut client.world.cache.faults;
        faults.fail_nth(0, Some(Op::Flush), DeviceError::Io);
        faults.order(Rule { op: Some(Op::Flush), times: 1, ..Rule::always(Fault::Timeout { hold_ns: 5_000_000_000 }) });
        for sector in (0..640).step_by(8) {
            client.write(0, sector, 8, false);
        }
        client.finish();
        let flush = client.flush(0);
        // The power goes at some moment. For half of the seeds that is after the FLUSH is answered.
        let mut steps = if seed % 2 == 0 { u64::MAX } else { seed / 2 };
        while steps > 0 && client.world.waits(flush) && client.world.step() {
            steps -= 1;
        }
        client.judge();
        assert_eq!(client.take_failed(), [], "seed {seed}");
        let answered = !client.world.waits(flush);
        let fate = if seed % 4 < 2 { Fate::Lost } else { Fate::Mixed };
        client.crash(seed, fate, fate);
        client.world.cache.faults.heal();
        if client.world.must_not_open() {
            marked += 1;
            if !answered {
                // Blocks that are still dirty there are for `destage` or `repair`.
                continue;
            }
            client.world.replace_cache();
        } else {
            replayed += 1;
        }
        client.open();
        client.read_all();
        client.leave();
    }
    assert!(marked >= 20 && replayed >= 10, "{marked} marked, {replayed} replayed");
}

/// FLUSH promises nothing if neither the cache nor the state folder can remember the failure. Then
/// a replay may undo new writes of blocks that the log knows. Reads go on, and a stop works.
#[test]
fn flush_fails_where_the_failure_can_t_be_recorded() {
    for seed in 0..8 {
        let mut client = client(seed, Mode::Writeback);
        client.write(0, 0, 64, true);
        client.finish();
        client.oracle.forgive_time_travel();
        client.world.forgetful = true;
        let faults = &mut client.world.cache.faults;
        faults.fail_range(0..u64::MAX, Some(Op::Write), DeviceError::Io);
        faults.order(Rule { op: Some(Op::Flush), ..Rule::always(Fault::Error(DeviceError::Io)) });
        client.write(0, 0, 64, false);
        client.finish();
        for _ in 0..2 {
            let asked = [client.flush(0), client.write(0, 0, 8, true)];
            client.finish();
            let failed: Vec<_> = client.take_failed().into_iter().map(|(id, _)| id).collect();
            assert!(asked.iter().all(|id| failed.contains(id)), "seed {seed}: {asked:?} of {failed:?}");
        }
        client.read(0, 0, 64);
        client.finish();
        assert_eq!(client.take_failed(), [], "seed {seed}");
        client.stop();
    }
}

/// In writeback, a device that is gone loses its dirty blocks. They are listed, and reading them is
/// an error; all other blocks are served. Lost blocks that no FLUSH had covered make the next FLUSH
/// fail, once.
#[test]
fn a_cache_that_is_gone_loses_what_was_dirty_and_says_so() {
    let mut client = client(0, Mode::Writeback);
    client.world.control(Control::SetDirtyLimit { blocks: u64::MAX });
    client.write(0, 0, 800, false);
    client.flush(0);
    client.finish();
    // This block is in the open commit, that is, in RAM.
    client.write(0, 1000, 8, false);
    client.finish();
    client.world.cache.faults.lose_device();
    client.write(0, 1600, 8, true);
    client.finish();
    let lost = client.world.engine().status().lost;
    assert!(lost.iter().all(|key| key.origin == OriginId(0) && key.block.0 < 100), "{lost:?}");
    client.take_failed();
    for key in &lost {
        client.read(0, key.block.0 * 8, 8);
        client.finish();
        assert_eq!(client.take_failed().len(), 1, "{key:?} is served though it is lost");
    }
    let events = client.take_events();
    assert!(events.contains(&Event::CacheFailed));
    // All other blocks are served: from RAM by way of the origin, and new ones.
    client.read(0, 1000, 8);
    client.read(0, 1600, 8);
    client.read(0, 2000, 80);
    client.flush(0);
    client.finish();
    client.flush(0);
    client.finish();
    let failed = client.take_failed();
    assert!(failed.len() <= 1, "{failed:?}");
    // Lost blocks that are written anew are lost no more.
    client.write(0, 0, 800, false);
    client.flush(0);
    client.finish();
    assert_eq!(client.take_failed(), []);
    assert_eq!(client.world.engine().status().lost, []);
    client.stop();
    end(&mut client, 1);
}

/// A cache opens even if its device fails at any write or flush of the opening. The data that
/// replay has found is served.
#[test]
fn a_cache_that_fails_during_its_opening_opens() {
    let mut failed = 0;
    for op in [Op::Write, Op::Flush] {
        for nth in 0..8 {
            let mut client = Client::fresh(WorldSpec { lanes: 2, stripe_blocks: 8, ..WorldSpec::default() });
            client.write(0, 0, 1000, false);
            client.flush(0);
            client.finish();
            client.crash(nth, Fate::Kept, Fate::Kept);
            client.world.cache.faults.fail_nth(nth, Some(op), DeviceError::Io);
            client.open();
            client.read_all();
            assert_eq!(client.take_failed(), [], "{op:?} {nth}");
            failed += u32::from(client.world.engine().status().cache_failed);
            client.leave();
        }
    }
    assert!(failed > 8, "only {failed} failed: the test proves little");
}

/// A failed flush also affects a block that was written through and waits in the open commit. The
/// origin may have dropped it, so it must not be committed as clean.
#[test]
fn what_a_failed_flush_dropped_is_not_committed_as_clean() {
    let origins = vec![OriginSpec { size_bytes: 2 << 20, logical_block_bytes: 512, mode: Mode::Writethrough }];
    let mut client = Client::fresh(WorldSpec { segments_per_lane: 24, origins, ..WorldSpec::default() });
    client.world.pass(1_000_000_000);
    client.make_origins_fickle();
    client.write(0, 320, 8, false);
    client.finish();
    client.world.origins[0].faults.fail_nth(0, Some(Op::Flush), DeviceError::Io);
    client.flush(0);
    client.finish();
    assert_eq!(client.take_failed().len(), 1, "the client is told");
    client.flush(0);
    client.finish();
    assert_eq!(client.take_failed().len(), 0);
    // These reads fill the commit that the block waits in.
    (0..40).for_each(|nth| _ = client.read(0, 1024 + nth * 8, 8));
    client.finish();
    client.flush(0);
    client.finish();
    assert_eq!(client.take_failed().len(), 0);
    client.crash(1, Fate::Kept, Fate::Lost);
    client.open();
    client.read(0, 320, 8);
    client.finish();
    client.world.control(Control::SetMode { origin: OriginId(0), mode: Mode::Passthrough });
    client.read(0, 320, 8);
    client.finish();
}

/// Blocks that the policy declined leave the window after a failed flush. They wait in RAM for
/// their next reader, who may have them committed. After the failed flush the origin is asked what
/// it has.
#[test]
fn what_a_failed_flush_may_have_dropped_leaves_the_window() {
    for fails in [false, true] {
        let origins = vec![OriginSpec { size_bytes: 16 << 20, logical_block_bytes: 512, mode: Mode::Writethrough }];
        let mut spec = WorldSpec { segments_per_lane: 24, origins, ..WorldSpec::default() };
        (spec.options.sequential_bypass_bytes, spec.options.read_around_blocks) = (0, 0);
        let mut client = Client::fresh(spec);
        // No block comes back, until the policy declines blocks that it sees for the first time.
        for nth in 0..3000 {
            client.read(0, nth * 7919 % 3000 * 8, 8);
            client.finish();
        }
        let places = || (0..4).map(|nth| 25_600 + nth * 64);
        for at in places() {
            client.write(0, at, 8, false);
            client.finish();
        }
        if fails {
            client.world.origins[0].faults.fail_nth(0, Some(Op::Flush), DeviceError::Io);
        }
        client.flush(0);
        client.finish();
        assert_eq!(client.take_failed().len(), usize::from(fails), "the client is told");
        let before = client.world.counters().ram_hits;
        for at in places() {
            client.read(0, at, 8);
            client.finish();
        }
        let from_ram = client.world.counters().ram_hits - before;
        assert!(if fails { from_ram == 0 } else { from_ram > 0 }, "a flush that fails: {fails}, {from_ram} from RAM");
    }
}
