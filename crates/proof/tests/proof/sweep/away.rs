// SPDX-License-Identifier: MIT OR Apache-2.0
//! Some origins are away: they refuse, or they are silent. The other origins of the same cache
//! notice nothing (ADR 0023).

use flashfront_device::Rng;
use flashfront_device::sim::Fate;
use flashfront_device::wrap::{Fault, Rule};
use flashfront_engine::{Control, DeviceError, Event, Mode, Op, RequestError, RequestId, RequestOp};
use flashfront_proof::{Client, WorldSpec};

use super::{FATES, events, lazy, place, small};

const MINUTE_NS: u64 = 60_000_000_000;
/// The fault of an origin that refuses.
const REFUSES: Fault = Fault::Error(DeviceError::Io);
/// The fault of an origin that answers nothing for three minutes.
const SILENCE: Fault = Fault::Timeout { hold_ns: 3 * MINUTE_NS };

/// A cache before `origins` origins.
fn before(origins: usize, lanes: u32) -> WorldSpec {
    let mut spec = WorldSpec { lanes, stripe_blocks: 16, segments_per_lane: 256, ..small(Mode::Writeback, 12) };
    spec.origins = vec![spec.origins[0]; origins];
    spec
}

/// Lets time pass until a request is answered, for a minute at most.
fn answered(client: &mut Client, id: RequestId, what: &str) {
    let began = client.world.now;
    client.world.drive_until(|world| !world.waits(id) || world.now.since_ns(began) > MINUTE_NS);
    let status = client.world.engine().status();
    assert!(!client.world.waits(id), "{what} waits for another origin: {status:?}");
    client.judge();
}

/// An origin of two refuses all writes, or answers no write for minutes. Its writers use up all
/// that they may have dirty, and more. Meanwhile the writers of the other origin write many times
/// the limit. All of that is destaged at the pace of their disk.
#[test]
fn an_origin_that_is_away_stops_no_other() {
    const LIMIT: u64 = 1024;
    let ways = [Fault::Error(DeviceError::Io), SILENCE];
    for (lanes, fault) in [1, 2].into_iter().flat_map(|lanes| ways.map(|fault| (lanes, fault))) {
        let mut spec = before(2, lanes);
        spec.options.dirty_limit_blocks = Some(LIMIT);
        let mut client = Client::fresh(spec);
        client.world.origins[0].faults.order(Rule { op: Some(Op::Write), ..Rule::always(fault) });
        let mut rng = Rng::new(lanes.into());
        let all = client.sectors(0);
        let mut away = Vec::new();
        for nth in 0..4 * LIMIT {
            if nth % 16 == 0 {
                let (at, sectors) = place(&mut rng, all, 64);
                away.push(client.write(0, at, sectors, false));
            }
            let id = write_anywhere(&mut client, 1, &mut rng);
            answered(&mut client, id, &format!("{fault:?}: write {nth}"));
        }
        assert!(away.iter().any(|id| client.world.waits(*id)), "who writes more than its part has to wait");
        assert!(client.take_failed().is_empty(), "what waits has not failed");
        client.world.origins[0].faults.heal();
        client.finish();
        client.leave();
    }
}

/// Two of three origins fall silent at the same moment, when their writers have filled the limit
/// together.
#[test]
fn origins_that_fall_silent_together_leave_room() {
    const LIMIT: u64 = 1024;
    let mut spec = before(3, 2);
    spec.options.dirty_limit_blocks = Some(LIMIT);
    let mut client = Client::fresh(spec);
    for away in [0, 2] {
        client.world.origins[away].faults.order(Rule { op: Some(Op::Write), ..Rule::always(SILENCE) });
    }
    let mut rng = Rng::new(3);
    for nth in 0..4 * LIMIT {
        write_anywhere(&mut client, nth as usize % 2 * 2, &mut rng);
    }
    // This is not long enough to know that they are silent.
    client.world.pass(2_500_000_000);
    let status = client.world.engine().status();
    assert!(status.blocks_dirty > LIMIT * 2 / 3, "they have not filled it: {status:?}");
    for nth in 0..2 * LIMIT {
        let id = write_anywhere(&mut client, 1, &mut rng);
        answered(&mut client, id, &format!("write {nth}"));
    }
    for away in [0, 2] {
        client.world.origins[away].faults.heal();
    }
    client.finish();
    client.leave();
}

/// A log of `segments` segments for each of `lanes` lanes. The segments are all dirty in part, as
/// after many random writes. The origin of those blocks is away from now on.
fn scattered(segments: u32, lanes: u32, percent: u64, fault: Fault) -> Client {
    let mut spec = WorldSpec { segments_per_lane: segments, ..before(2, lanes) };
    let capacity = u64::from(segments * 16 * lanes);
    spec.options.dirty_limit_blocks = Some(capacity * percent / 100);
    let mut client = Client::fresh(spec);
    let mut rng = Rng::new(percent);
    for _ in 0..4 * capacity {
        write_anywhere(&mut client, 0, &mut rng);
        client.finish_to(32);
    }
    client.world.origins[0].faults.order(Rule { op: Some(Op::Write), ..Rule::always(fault) });
    client
}

fn write_anywhere(client: &mut Client, origin: usize, rng: &mut Rng) -> RequestId {
    let blocks = client.sectors(origin) / 8;
    client.write(origin, rng.below(blocks) * 8, 8, false)
}

/// Writers of the other origin may wait until the cache knows that this origin is away. From then
/// on there is room wherever the log has holes.
///
/// 30 % are 307 blocks, of which 50 are kept for each origin. A former version kept nothing of so
/// few blocks. Then an origin that had all of them when it fell silent stopped the other one.
#[test]
fn a_log_full_of_scattered_dirty_blocks_has_room() {
    for (lanes, percent, fault) in
        [(1, 30, SILENCE), (2, 50, SILENCE), (1, 50, REFUSES), (1, 70, SILENCE), (2, 88, SILENCE)]
    {
        let mut client = scattered(64, lanes, percent, fault);
        let (mut rng, mut longest) = (Rng::new(7), 0);
        for nth in 0..2 * 64 * 16 * lanes {
            if nth % 16 == 0 {
                write_anywhere(&mut client, 0, &mut rng);
            }
            let (id, began) = (write_anywhere(&mut client, 1, &mut rng), client.world.now);
            answered(&mut client, id, &format!("{percent} % may be dirty: write {nth}"));
            longest = longest.max(client.world.now.since_ns(began));
        }
        assert!(longest < MINUTE_NS / 12, "{percent} % may be dirty: a write took {longest} ns");
        client.world.origins[0].faults.heal();
        client.finish();
        client.leave();
    }
}

/// A power cut at any of many moments of a compaction loses nothing, and leaves room to start.
/// Dirty blocks are moved into the last free segments, and the segments that they leave are written
/// anew.
#[test]
fn a_power_cut_while_a_log_is_compacted() {
    let mut cut = 0;
    for (seed, percent) in (0..).zip([50, 88]) {
        let mut client = scattered(48, 1, percent, SILENCE);
        let mut rng = Rng::new(seed);
        let moved = |client: &Client| client.world.counters().reinserted_blocks;
        client.world.pass(4_000_000_000);
        let mut last = moved(&client);
        for nth in 0..200 {
            write_anywhere(&mut client, 1, &mut rng);
            if nth % 7 == 0 {
                client.flush(1);
            }
            events(&mut client, rng.below(12));
            // The first 32 are requests to the silent origin.
            client.finish_to(32 + 24);
            if moved(&client) == last || nth % 2 == 0 {
                continue;
            }
            last = moved(&client);
            cut += 1;
            let mut after = client.crashed(nth, FATES[nth as usize % 4], Fate::Mixed);
            after.world.origins[0].faults.heal();
            after.open();
            after.read_all();
            after.leave();
        }
    }
    assert!(cut > 20, "compacted at {cut} moments only");
}

/// Each opening takes new segments for the next writes, even where hardly any are free. The writers
/// of the other origin still have room. (In a former version the second case stopped for good in
/// its sixth life.)
#[test]
fn a_restart_beside_an_origin_that_refuses_leaves_room() {
    for (seed, lanes, percent, fault) in [(1, 1, 50, REFUSES), (8, 2, 70, REFUSES), (4, 1, 88, SILENCE)] {
        let mut client = scattered(48, lanes, percent, fault);
        let mut rng = Rng::new(seed);
        for life in 0..12 {
            for nth in 0..60 {
                let id = write_anywhere(&mut client, 1, &mut rng);
                answered(&mut client, id, &format!("{percent} % may be dirty, seed {seed}, life {life}: write {nth}"));
            }
            // Blocks that are read twice are cached, and begin segments of their own.
            let blocks = client.sectors(1) / 8;
            for at in (0..8).map(|_| rng.below(blocks) * 8).collect::<Vec<_>>().repeat(2) {
                let id = client.read(1, at, 8);
                answered(&mut client, id, "a read");
            }
            for _ in 0..rng.below(8) {
                write_anywhere(&mut client, 1, &mut rng);
            }
            events(&mut client, rng.below(40));
            client = client.crashed(life, FATES[life as usize % 4], Fate::Mixed);
            client.open();
        }
        client.world.origins[0].faults.heal();
        client.read_all();
        client.leave();
    }
}

/// A limit that is too small to be divided among origins still holds.
#[test]
fn a_small_limit_holds_beside_a_silent_origin() {
    for limit in [257, 600, 1100] {
        let mut spec = before(2, 2);
        spec.options.dirty_limit_blocks = Some(limit);
        let mut client = Client::fresh(spec);
        client.world.origins[0].faults.order(Rule { op: Some(Op::Write), ..Rule::always(SILENCE) });
        let mut rng = Rng::new(limit);
        for nth in 0..4 * limit {
            write_anywhere(&mut client, nth as usize % 2, &mut rng);
            events(&mut client, 8);
            let status = client.world.engine().status();
            assert!(status.blocks_dirty <= status.dirty_limit_blocks, "{status:?}");
            if nth == limit {
                client.world.pass(5_000_000_000);
            }
        }
        client.world.origins[0].faults.heal();
        client.finish();
        client.leave();
    }
}

/// Bounds hold for each origin alone. Parts of blocks that have to be completed have a bound, and
/// so have discards and zeroes without payload.
#[test]
fn bounds_are_an_origins_own() {
    let kinds = [
        (RequestOp::Write, 1, 1u64),
        (RequestOp::WriteZeroes { may_discard: false }, 1, 1),
        (RequestOp::WriteZeroes { may_discard: false }, 0, 8 * 128),
        (RequestOp::Discard, 0, 8 * 128),
    ];
    for (op, skip, sectors) in kinds {
        let mut client = Client::fresh(before(2, 2));
        client.world.origins[0].faults.order(Rule::always(Fault::Stall { hold_ns: 3 * MINUTE_NS }));
        let places: Vec<_> = (0..)
            .map(|nth| nth * sectors.next_multiple_of(8))
            .take_while(|at| at + sectors < client.sectors(0))
            .collect();
        for at in &places {
            client.change(op, 0, at + skip, sectors, false);
        }
        for (nth, at) in places.iter().step_by(16).enumerate() {
            let id = client.change(op, 1, at + skip, sectors, false);
            answered(&mut client, id, &format!("{op:?} {nth}"));
        }
        client.world.origins[0].faults.heal();
        client.finish();
        assert_eq!(client.take_failed(), []);
        client.read_all();
        client.leave();
    }
}

/// After the cache device has failed, FLUSH of a volume waits until all its dirty blocks are on its
/// own origin.
#[test]
fn after_a_failed_cache_flush_each_origin_is_destaged_for_itself() {
    let mut spec = lazy(2);
    spec.origins.push(spec.origins[0]);
    let mut client = Client::fresh(spec);
    for origin in 0..2 {
        client.write(origin, 0, 800, false);
    }
    client.finish();
    client.world.origins[0].faults.order(Rule { op: Some(Op::Write), ..Rule::always(SILENCE) });
    client.world.cache.faults.fail_nth(0, Some(Op::Flush), DeviceError::Io);
    let silent = client.flush(0);
    let flushed = client.flush(1);
    answered(&mut client, flushed, "FLUSH");
    assert!(client.take_events().contains(&Event::CacheFailed));
    assert!(client.take_failed().is_empty(), "all of it can be read");
    assert!(client.world.waits(silent), "what isn't on its origin isn't durable");
    client.world.origins[0].faults.heal();
    client.finish();
    client.read_all();
    client.leave();
}

/// A daemon stops while writers wait at the dirty limit, and for blocks that would have to be
/// destaged first. The writers are told so in time. All acknowledged writes are kept, and the stop
/// is a clean one.
#[test]
fn no_origin_holds_those_who_leave() {
    const LIMIT: u64 = 1024;
    for (lanes, fault) in [1, 2].into_iter().flat_map(|lanes| [REFUSES, SILENCE].map(|fault| (lanes, fault))) {
        let mut spec = before(1, lanes);
        spec.options.dirty_limit_blocks = Some(LIMIT);
        let mut client = Client::fresh(spec);
        client.world.origins[0].faults.order(Rule { op: Some(Op::Write), ..Rule::always(fault) });
        let (mut rng, all) = (Rng::new(lanes.into()), client.sectors(0));
        let first = client.write(0, 0, 8, false);
        answered(&mut client, first, "the first write");
        let mut writes = Vec::new();
        for _ in 0..LIMIT {
            let (at, sectors) = place(&mut rng, all, 64);
            writes.push(client.write(0, at, sectors, false));
        }
        client.world.pass(5_000_000_000);
        let origin = client.world.engine().superblock().origins[0].id;
        client.world.control(Control::SetMode { origin, mode: Mode::Writethrough });
        writes.push(client.write(0, 0, 8, false));
        client.world.pass(5_000_000_000);
        client.judge();
        assert!(writes.iter().any(|id| client.world.waits(*id)), "{fault:?}: nobody has to wait");
        client.take_failed();

        client.world.control(Control::LetClientsGo);
        for id in writes {
            answered(&mut client, id, &format!("{fault:?}: a write when all leave"));
        }
        let failed = client.take_failed();
        assert!(failed.iter().any(|(_, error)| *error == RequestError::Stopping), "{fault:?}: {failed:?}");
        let dirty = client.world.engine().status().blocks_dirty;
        assert!(dirty > LIMIT / 2, "{dirty} blocks are dirty");
        client.stop();

        client.world.origins[0].faults.heal();
        client.open();
        assert!(client.world.engine().status().blocks_dirty > 0);
        client.read_all();
        client.leave();
    }
}
