// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices hang. These tests say what clients see meanwhile, and that what lands late brings
//! nothing old back.

use std::collections::BTreeSet;

use flashfront_device::Rng;
use flashfront_device::sim::Fate;
use flashfront_device::wrap::{Fault, Rule};
use flashfront_engine::{Control, Destage, DeviceError, DeviceId, Event, MirrorStatus, Mode, Op, Options, OriginId};
use flashfront_proof::{Client, OriginSpec, WorldSpec};

const SECOND: u64 = 1_000_000_000;
const LIMIT: u64 = 30 * SECOND;

fn spec(mode: Mode) -> WorldSpec {
    let origin = OriginSpec { size_bytes: 4 << 20, logical_block_bytes: 512, mode };
    WorldSpec {
        origins: vec![origin],
        cache_limit_ns: Some(LIMIT),
        origin_limit_ns: Some(LIMIT),
        ..WorldSpec::default()
    }
}

/// I/O of this kind hangs, each for so many seconds.
fn hang(seconds: u64, op: Option<Op>) -> Rule {
    Rule { op, ..Rule::always(Fault::Hang { hold_ns: seconds * SECOND }) }
}

fn destage_failed(client: &mut Client) -> bool {
    client.take_events().iter().any(|event| matches!(event, Event::DestageFailed { .. }))
}

/// The older version is on its way to the origin, and given up. The newer one is there in the end,
/// whenever the power fails.
#[test]
fn a_late_write_of_destage_never_wins() {
    for steps in 0..60 {
        let mut client = Client::fresh(spec(Mode::Writeback));
        client.write(0, 0, 64, false);
        client.flush(0);
        client.finish();
        client.world.origins[0].faults.order(Rule { times: 1, ..hang(75, Some(Op::Write)) });
        client.world.control(Control::Drain(true));
        assert!(client.world.drive_until(|world| !world.hung().is_empty()));
        client.world.control(Control::Drain(false));
        assert!(destage_failed(&mut client));
        // The newer version, and what is not hindered by the origin that hangs.
        client.write(0, 0, 64, false);
        client.flush(0);
        client.finish();
        assert_eq!(client.take_failed(), []);
        assert_eq!(client.world.hung(), [DeviceId::Origin(OriginId(0))], "all that happened meanwhile");
        client.world.control(Control::Drain(true));
        for _ in 0..steps {
            client.world.step();
        }
        if steps % 3 == 0 {
            client.crash(steps, Fate::Mixed, Fate::Kept);
            client.open();
        }
        client.read_all();
        client.leave();
    }
}

#[test]
fn what_an_origin_that_hangs_is_asked_fails_in_time_and_it_comes_back() {
    let mut client = Client::fresh(spec(Mode::Writethrough));
    client.read(0, 0, 64);
    client.finish();
    client.world.origins[0].faults.order(hang(75, None));
    let began = client.world.now;
    client.read(0, 800, 8);
    client.write(0, 1600, 8, false);
    client.finish();
    assert_eq!((client.take_failed().len(), client.world.now.since_ns(began) / SECOND), (2, 30));
    // What is cached needs no origin; what needs it fails at once.
    client.read(0, 0, 64);
    client.finish();
    assert_eq!(client.take_failed(), []);
    let began = client.world.now;
    client.read(0, 2400, 8);
    client.write(0, 1600, 8, false);
    client.finish();
    assert_eq!((client.take_failed().len(), client.world.now.since_ns(began) / SECOND), (2, 0));
    client.world.origins[0].faults.heal();
    assert!(client.world.drive_until(|world| world.hung().is_empty()), "it answers");
    client.write(0, 1600, 8, false);
    client.read(0, 800, 8);
    client.flush(0);
    client.finish();
    client.read_all();
    assert_eq!(client.take_failed(), [], "as before");
    client.leave();
}

/// Both devices fill the buffer of a request. The origin is still busy with its part when the read
/// of the cache is given up.
#[test]
fn what_the_origin_reads_while_the_cache_is_given_up_is_not_lost() {
    let mut client = Client::fresh(WorldSpec { origin_limit_ns: None, ..spec(Mode::Writethrough) });
    client.write(0, 0, 128, false);
    client.flush(0);
    client.finish();
    client.world.control(Control::SetMode { origin: OriginId(0), mode: Mode::Passthrough });
    client.write(0, 64, 64, false);
    client.finish();
    client.world.control(Control::SetMode { origin: OriginId(0), mode: Mode::Writethrough });
    client.world.cache.faults.order(hang(75, Some(Op::Read)));
    client.world.origins[0].faults.order(Rule { times: 1, ..hang(31, Some(Op::Read)) });
    let began = client.world.now;
    client.read(0, 0, 128);
    client.finish();
    assert_eq!((client.take_failed(), client.world.now.since_ns(began) / SECOND), (vec![], 31));
    client.read_all();
    client.leave();
}

/// A long stream goes past the cache. What of it was on its way when its origin hung goes into the
/// log, and so does all that follows. Clients see no error, and nothing old comes back.
#[test]
fn a_stream_goes_into_the_cache_while_its_origin_hangs() {
    for (destage, seed) in
        [Destage::Free, Destage::Ordered].into_iter().flat_map(|it| (0..20).map(move |seed| (it, seed)))
    {
        let mut spec = WorldSpec { seed, ..spec(Mode::Writeback) };
        spec.options.sequential_bypass_bytes = 256 << 10;
        spec.options.destage = destage;
        let mut client = Client::fresh(spec);
        let direct = |client: &Client| client.world.engine().status().counters.writes_direct_blocks;
        for nth in 0..16 {
            client.write(0, nth * 64, 64, false);
            client.finish();
        }
        let before = direct(&client);
        assert!(before > 0, "the test needs a stream that goes past the cache");
        client.world.origins[0].faults.order(hang(75, None));
        // The one that is asked is given up; meanwhile another one comes.
        let began = client.world.now;
        client.write(0, 16 * 64, 64, seed % 2 == 0);
        client.world.pass(5 * SECOND);
        let on_its_way = direct(&client);
        assert!(on_its_way > before, "it is on its way to the origin");
        client.write(0, 17 * 64, 64, seed % 3 == 0);
        client.world.pass(SECOND);
        assert_eq!(direct(&client), on_its_way, "the origin is known to be away");
        client.finish();
        assert_eq!(client.world.now.since_ns(began) / SECOND, 30, "when it is given up, the log has it");
        for nth in 18..24 {
            client.write(0, nth * 64, 64, false);
            client.finish();
        }
        assert_eq!(client.world.now.since_ns(began) / SECOND, 30, "nobody waits any more");
        // Some of it anew, on top of what may land late.
        client.write(0, 16 * 64 + 8 * (seed % 8), 8, false);
        client.finish();
        assert_eq!(client.take_failed(), []);
        if seed % 4 == 0 {
            client.crash(seed, Fate::Mixed, Fate::Mixed);
            client.open();
        }
        client.world.origins[0].faults.heal();
        // After a crash the next opening has asked it, too.
        client.world.pass(200 * SECOND);
        assert!(client.world.hung().is_empty(), "it answers");
        let before = direct(&client);
        for nth in 24..48 {
            client.write(0, nth * 64, 64, false);
            client.finish();
        }
        assert!(direct(&client) > before, "seed {seed}, {destage:?}: streams go past the cache again");
        client.read_all();
        assert_eq!(client.take_failed(), []);
        client.leave();
    }
}

#[test]
fn a_flush_of_an_origin_that_hangs_fails_in_time() {
    let mut client = Client::fresh(spec(Mode::Writethrough));
    client.write(0, 0, 8, false);
    client.finish();
    client.world.origins[0].faults.order(Rule { times: 1, ..hang(75, Some(Op::Flush)) });
    let began = client.world.now;
    client.flush(0);
    client.finish();
    assert_eq!((client.take_failed().len(), client.world.now.since_ns(began) / SECOND), (1, 30));
    client.world.pass(60 * SECOND);
    client.write(0, 0, 8, false);
    client.flush(0);
    client.finish();
    assert_eq!(client.take_failed(), []);
    client.leave();
}

/// The only cache device hangs. Nothing clean is missed, and the next start knows that it failed.
#[test]
fn hits_of_clean_data_that_hang_are_answered_by_the_origin() {
    let mut client = Client::fresh(spec(Mode::Writethrough));
    for block in 0..64 {
        client.read(0, block * 8, 8);
        client.finish();
    }
    client.world.pass(10 * SECOND);
    client.world.cache.faults.order(hang(75, None));
    for block in 0..64 {
        client.read(0, block * 8, 8);
    }
    client.write(0, 0, 8, true);
    client.finish();
    assert_eq!(client.take_failed(), []);
    assert!(client.world.engine().status().cache_failed);
    assert!(client.world.must_not_open(), "its own superblock can't say so");
    client.read_all();
    client.world.pass(200 * SECOND);
    client.read_all();
    assert_eq!(client.take_failed(), []);
    client.stop();
    assert!(client.world.must_not_open());
    client.judge_origins();
}

#[test]
fn dirty_data_of_a_cache_that_hung_is_destaged_when_it_answers() {
    for destage in [Destage::Free, Destage::Ordered] {
        hang_then_destage(destage);
    }
}

fn hang_then_destage(destage: Destage) {
    let mut spec = spec(Mode::Writeback);
    spec.options.destage = destage;
    let mut client = Client::fresh(spec);
    // Durable in the log, and not in RAM.
    for block in 0..32 {
        client.write(0, block * 16, 8, false);
    }
    client.flush(0);
    client.finish();
    client.world.cache.faults.order(hang(300, None));
    client.read(0, 0, 8);
    client.finish();
    assert_eq!(client.take_failed().len(), 1, "only this device has it");
    assert!(client.world.engine().status().cache_failed);
    client.world.pass(60 * SECOND);
    assert!(client.world.engine().status().blocks_dirty > 0);
    client.world.cache.faults.heal();
    assert!(client.world.drive_until(|world| world.hung().is_empty() && world.engine().status().blocks_dirty == 0));
    assert_eq!(client.world.engine().status().lost, []);
    client.read_all();
    assert_eq!(client.take_failed(), []);
    client.stop();
    client.judge_origins();
}

#[test]
fn either_member_may_hang() {
    for member in 0..2 {
        for op in [None, Some(Op::Write), Some(Op::Flush), Some(Op::Read)] {
            let mut client = Client::fresh(WorldSpec { mirrored: true, ..spec(Mode::Writeback) });
            for block in 0..32 {
                client.write(0, block * 16, 8, false);
            }
            client.flush(0);
            client.finish();
            client.world.member_mut(member).unwrap().faults.order(hang(75, op));
            let began = client.world.now;
            client.write(0, 8, 8, false);
            client.read(0, 0, 8);
            client.flush(0);
            client.finish();
            assert_eq!(client.take_failed(), [], "{member} {op:?}");
            assert!(client.world.now.since_ns(began) <= 31 * SECOND);
            // It is recorded; and nobody reads from the mirror.
            client.world.pass(SECOND);
            if (member, op) != (1, Some(Op::Read)) {
                let status = client.world.engine().status();
                assert_eq!(status.mirror, MirrorStatus::Alone { member: 1 - member }, "{op:?}");
            }
            for block in 0..32 {
                client.write(0, block * 16, 8, false);
                client.flush(0);
            }
            client.finish();
            // What lands late on the member that was left out is believed by nobody.
            client.world.member_mut(member).unwrap().faults.heal();
            client.world.pass(200 * SECOND);
            client.crash(7, Fate::Mixed, Fate::Mixed);
            client.open();
            client.read_all();
            assert_eq!(client.take_failed(), []);
            client.leave();
        }
    }
}

/// A read of reclaim hangs on the lead, which is left out meanwhile. That the read fails says
/// nothing of the other member, which leads by then.
#[test]
fn a_read_that_hangs_on_the_old_lead_does_not_fail_the_new_one() {
    let origin = OriginSpec { size_bytes: 64 << 20, logical_block_bytes: 512, mode: Mode::Writeback };
    let options = Options { sequential_bypass_bytes: 0, read_around_blocks: 0, ..Options::default() };
    let mut client =
        Client::fresh(WorldSpec { mirrored: true, origins: vec![origin], options, ..spec(Mode::Writeback) });
    client.world.member_mut(0).unwrap().faults.order(hang(75, Some(Op::Read)));
    let cache_reads = |client: &Client| client.world.engine().status().counters.cache_reads;
    let (mut block, before) = (0, cache_reads(&client));
    // Nothing is read from the cache but by reclaim.
    while cache_reads(&client) == before {
        assert!(block < 16_384, "reclaim reads nothing");
        client.read(0, block * 8, 8);
        client.finish();
        block += 1;
    }
    client.world.member_mut(0).unwrap().faults.fail_nth(0, Some(Op::Write), DeviceError::Io);
    let began = client.world.now;
    for nth in 0..100 {
        client.write(0, (block + nth) * 8, 8, true);
        client.finish();
    }
    assert_eq!(client.world.engine().status().mirror, MirrorStatus::Alone { member: 1 });
    assert!(client.world.now.since_ns(began) < LIMIT / 2, "the read has failed by now");
    for _ in 0..40 {
        client.world.pass(SECOND);
        let status = client.world.engine().status();
        assert!(!status.cache_failed && status.mirror == MirrorStatus::Alone { member: 1 }, "{status:?}");
    }
    client.leave();
}

/// Begins of ranges of four blocks that the cache holds clean, below this block.
fn clean_ranges(client: &Client, below: u64) -> Vec<u64> {
    let clean: BTreeSet<u64> =
        client.world.engine().clean_blocks(usize::MAX).into_iter().map(|key| key.block.0).collect();
    (0..below - 3).filter(|first| (*first..first + 4).all(|block| clean.contains(&block))).collect()
}

/// Writers fill the dirty limit and wait. Who reads what is cached, or waits for FLUSHes,
/// doesn't; and the writers go on when the origin answers again.
#[test]
fn writers_at_the_dirty_limit_stop_nobody_else_beside_an_origin_that_hangs() {
    for (lanes, batches, cache_ns, seed) in [(1, false), (2, true)]
        .into_iter()
        .flat_map(|(lanes, batches)| [50_000, 2_000_000].map(|cache_ns| (lanes, batches, cache_ns)))
        .flat_map(|(lanes, batches, cache_ns)| (0..2).map(move |seed| (lanes, batches, cache_ns, seed)))
    {
        let base = spec(Mode::Writeback);
        let mut spec = WorldSpec { seed, lanes, stripe_blocks: 16, batches, cache_ns, check: false, ..base };
        spec.options.dirty_limit_blocks = Some(300);
        let (mut client, mut rng) = (Client::fresh(spec), Rng::new(seed));
        for block in 0..64 {
            client.read(0, block * 8, 8);
        }
        client.finish();
        client.world.pass(10 * SECOND);
        client.world.origins[0].faults.order(hang(300, None));
        // More than may be dirty; of the first 64 blocks nothing.
        let mut writers = Vec::new();
        for nth in 0..500 {
            writers.push(client.write(0, 512 + nth * 8, 8, false));
        }
        client.world.pass(SECOND);
        let wait = |client: &Client| writers.iter().filter(|id| client.world.waits(**id)).count();
        assert!(wait(&client) > 150, "the test needs writers at the limit");
        // Before the origin is given up, as that happens, and long after.
        for minute in 0..3 {
            for nth in 0..100 {
                let (began, hits) = (client.world.now, clean_ranges(&client, 64));
                assert!(!hits.is_empty(), "the test needs clean blocks");
                let id = match nth % 4 {
                    0 => client.flush(0),
                    1 => client.read(0, (64 + rng.below(200)) * 8, 8),
                    _ => client.read(0, hits[rng.below(hits.len() as u64) as usize] * 8, 32),
                };
                client.world.drive_until(|world| !world.waits(id) || world.now.since_ns(began) > SECOND);
                assert!(!client.world.waits(id), "seed {seed}, {lanes} lanes: {nth} in minute {minute} waits");
                client.judge();
            }
            client.world.pass(60 * SECOND);
            client.take_events();
        }
        assert_eq!(client.take_failed(), []);
        assert!(wait(&client) > 150, "and they still wait");
        client.world.origins[0].faults.heal();
        assert!(client.world.drive_until(|world| world.hung().is_empty()), "it answers");
        client.finish();
        assert_eq!(client.take_failed(), [], "they were answered");
        client.read_all();
        client.leave();
    }
}
