// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of power cuts, failures and rot of a member while a mirrored cache opens.

use super::*;

#[test]
fn a_power_cut_while_a_mirror_is_filled() {
    for events in (0..400).step_by(7) {
        let mut client = client();
        client.world.member_mut(1).unwrap().faults.lose_device();
        write_and_flush(&mut client, 3);
        client.world.take_away(1);
        client.world.control(Control::AddMirror);
        (0..events).for_each(|_| _ = client.world.step());
        client.crash(events, Fate::Mixed, Fate::Lost);
        client.open();
        nobody_noticed(&mut client);
    }
}

/// A checkpoint's head that reached one device before the power was cut counts from then on. The
/// next opening overwrites the area of the one before it (torture, seed 1795808960690).
#[test]
fn power_cuts_while_it_opens_leave_a_checkpoint_on_either_device() {
    let origin = spec().origins[0];
    let mut reached_head = 0;
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let mut client =
            Client::fresh(WorldSpec { origins: vec![OriginSpec { size_bytes: 64 << 10, ..origin }], ..spec() });
        client.world.origins[0].faults.fail_range(0..u64::MAX, Some(Op::Write), DeviceError::Io);
        write_and_flush(&mut client, 7);
        client.stop();
        for _ in 0..2 {
            client.crash(rng.next_u64(), Fate::Mixed, Fate::Lost);
            client.world.begin_open();
            (0..rng.below(40)).for_each(|_| _ = client.world.step());
            reached_head += u64::from(client.world.engine().status().counters.checkpoints > 0);
        }
        client.crash(rng.next_u64(), Fate::Mixed, Fate::Lost);
        client.world.take_away(rng.below(2) as u8);
        client.world.alone = true;
        client.open();
        nobody_noticed(&mut client);
    }
    assert!(reached_head > 100, "{reached_head}");
}

/// A commit that had reached one device when the power was cut is in the log, though it was never
/// acknowledged. From then on clients see it, so the other device must have it too.
#[test]
fn what_replay_found_on_one_device_is_on_both() {
    for events in 0..24 {
        for lead_dies in [true, false] {
            let mut client = client();
            client.write(0, 800, 8, true);
            (0..events).for_each(|_| _ = client.world.step());
            client.crash(events, Fate::Mixed, Fate::Lost);
            client.open();
            nobody_noticed(&mut client);
            assert_eq!(client.world.engine().status().mirror, MirrorStatus::Whole);
            client.world.member_mut(u8::from(!lead_dies)).unwrap().faults.lose_device();
            write_and_flush(&mut client, 7);
            nobody_noticed(&mut client);
            leave(client);
        }
    }
}

/// The end of the log decays on one device: the commits there were acknowledged, and the other
/// device has them.
#[test]
fn the_end_of_the_log_is_read_from_either_device() {
    for member in 0..2 {
        for nth in 0..12 {
            let mut client = client();
            for block in 0..4 {
                write_and_flush(&mut client, 20 + block);
            }
            client.crash(7, Fate::Kept, Fate::Lost);
            let disk = client.world.member_mut(member).unwrap();
            // Of the reads of the opening each one in turn: checkpoint heads are read first.
            disk.faults.order(Rule { op: Some(Op::Read), after: 2 + nth, times: 2, ..Rule::always(Fault::Rot) });
            match client.world.open() {
                Ok(_) => {
                    nobody_noticed(&mut client);
                    leave(client);
                }
                // Refused aloud: what was durable and can't be told from a torn checkpoint is no
                // end of the log.
                Err(error) => assert!(matches!(error, OpenError::CheckpointDamaged { .. }), "{error}"),
            }
        }
    }
}

/// Both fail at once, as behind one controller: what is asked for then is on the origin before it
/// is acknowledged.
#[test]
fn nothing_counts_that_both_have_refused() {
    for (op, events) in [Op::Flush, Op::Write].into_iter().flat_map(|op| (0..20).map(move |events| (op, events))) {
        let mut client = client();
        client.world.origins[0].faults.heal();
        for member in 0..2 {
            client.world.member_mut(member).unwrap().faults.fail_nth(0, Some(op), DeviceError::Io);
        }
        client.write(0, 3000, 64, false);
        for _ in 0..events {
            client.world.step();
        }
        client.flush(0);
        client.finish();
        assert_eq!(client.take_failed(), [], "{op:?}: the origin is well, and RAM has it all");
        assert!(client.world.engine().status().cache_failed);
        client.crash(7, Fate::Kept, Fate::Lost);
        // The cache is not opened again.
        assert!(client.world.must_not_open());
        client.judge_origins();
    }
}

/// A block of the checkpoints rots on the lead, or the head of one or of both: the other member has
/// them whole.
#[test]
fn a_checkpoint_that_rots_on_one_is_read_from_the_other() {
    let spec = WorldSpec { mirrored: true, ..WorldSpec::default() };
    let superblock = spec.superblock();
    // Heads, the ages of segments, then the first entries of the index.
    for (block, areas) in [(2, 0..2), (0, 0..2), (0, 0..1), (0, 1..2)] {
        let mut client = Client::fresh(spec.clone());
        (0..20).for_each(|nth| _ = client.write(0, nth * 64, 64, true));
        client.stop();
        for area in areas.clone() {
            client.world.cache.inner_mut().corrupt(superblock.checkpoint_offset(0, area) + block * BLOCK_BYTES + 100);
        }
        client.open();
        assert_eq!(client.world.engine().status().blocks_cached, 160, "block {block} of {areas:?}");
        client.read_all();
        assert_eq!(client.take_failed(), []);
    }
}

/// A part of the checkpoint has rotted on the lead, and the log on the other member: each is read
/// where it is whole.
#[test]
fn a_log_is_read_from_the_lead_though_its_checkpoint_is_not() {
    let spec = WorldSpec { mirrored: true, ..WorldSpec::default() };
    let superblock = spec.superblock();
    for block in [0, 2] {
        let mut client = Client::fresh(spec.clone());
        (0..20).for_each(|nth| _ = client.write(0, nth * 64, 64, true));
        client.stop();
        client.open();
        client.write(0, 100, 8, true);
        client.finish();
        client.crash(7, Fate::Kept, Fate::Lost);
        for area in 0..2 {
            client.world.cache.inner_mut().corrupt(superblock.checkpoint_offset(0, area) + block * BLOCK_BYTES + 100);
        }
        for slot in 0..superblock.segments_per_lane * superblock.segment_blocks {
            client.world.member_mut(1).unwrap().inner_mut().corrupt(superblock.slot_offset(0, slot) + 100);
        }
        client.open();
        nobody_noticed(&mut client);
    }
}

/// The member that replay reads fails while another lane is done. What only that member had of the
/// log's end is no part of the log, since its data is nowhere else (torture, seed 1795810602588).
#[test]
fn a_commit_of_a_member_that_fails_during_replay_is_not_taken() {
    const DURABLE: u64 = 32;
    let mut replayed = Vec::new();
    for (seed, nth) in (0..8).flat_map(|seed| (5..10).map(move |nth| (seed, nth))) {
        let options = Options { commit_age_max_ns: 1_000_000, ..spec().options };
        let mut client = Client::fresh(WorldSpec { lanes: 4, options, ..spec() });
        // Lanes that wait for each other don't write while one replays.
        client.world.holds = false;
        client.world.origins[0].faults.fail_range(0..u64::MAX, Some(Op::Write), DeviceError::Io);
        // All in one lane, each a commit of its own: durable, then not.
        for (flush, block) in
            [true, false].into_iter().flat_map(|flush| (64..64 + DURABLE).map(move |block| (flush, block)))
        {
            client.write(0, block * 8, 8, false);
            if flush {
                client.flush(0);
            }
            client.finish();
            client.world.pass(2_000_000);
        }
        client.world.mirror_fate = Some(Fate::Lost);
        client.crash(seed, Fate::Kept, Fate::Lost);
        client.world.cache.faults.fail_nth(nth, Some(Op::Flush), DeviceError::Io);
        replayed.push(client.open().commits_replayed);
        nobody_noticed(&mut client);
        leave(client);
    }
    assert!(replayed.iter().any(|commits| (DURABLE + 1..2 * DURABLE).contains(commits)), "{replayed:?}");
}

/// The next daemon says that the cache failed, not that the other member is missing.
#[test]
fn a_lead_that_fails_beside_a_new_mirror_is_known_as_failed() {
    let mut failed_then = 0;
    for events in 0..60 {
        let mut client = Client::fresh(WorldSpec { mirrored: false, ..spec() });
        write_and_flush(&mut client, 7);
        client.world.put_beside();
        client.world.control(Control::AddMirror);
        for _ in 0..events {
            // What is being recorded keeps that the mirror is whole from being recorded.
            client.world.control(Control::SetMode { origin: OriginId(0), mode: Mode::Writeback });
            client.world.step();
        }
        let filling = matches!(client.world.engine().status().mirror, MirrorStatus::Syncing { .. });
        client.world.cache.faults.fail_nth(0, Some(Op::Flush), DeviceError::Io);
        write_and_flush(&mut client, 9);
        client.world.drive_until(|world| world.engine().status().cache_failed);
        if !client.world.engine().status().cache_failed {
            continue;
        }
        client.finish();
        client.crash(events, Fate::Kept, Fate::Kept);
        assert!(client.world.can_open() && client.world.must_not_open(), "after {events} events");
        failed_then += u64::from(filling);
    }
    assert!(failed_then > 5, "{failed_then}");
}

/// Both members fail, one after the other, while the cache opens, and then the power. What was
/// whole before is whole after, or it is known that the cache failed.
#[test]
fn both_members_may_fail_while_it_opens() {
    let origin = OriginSpec { size_bytes: 64 << 10, ..spec().origins[0] };
    let mut opened_again = 0;
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut client = Client::fresh(WorldSpec { lanes: 4, stripe_blocks: 2, origins: vec![origin], ..spec() });
        client.world.origins[0].faults.fail_range(0..u64::MAX, Some(Op::Write), DeviceError::Io);
        (0..8).for_each(|block| write_and_flush(&mut client, block * 2));
        client.stop();
        for _ in 0..1 + rng.below(2) {
            client.crash(rng.next_u64(), Fate::Mixed, Fate::Lost);
            client.world.begin_open();
            (0..rng.below(60)).for_each(|_| _ = client.world.step());
        }
        client.crash(rng.next_u64(), Fate::Mixed, Fate::Lost);
        let first = rng.below(2) as u8;
        for (member, op) in [(first, Op::Flush), (1 - first, Op::Write)] {
            client.world.member_mut(member).unwrap().faults.fail_nth(rng.below(12), Some(op), DeviceError::Io);
        }
        client.world.begin_open();
        (0..rng.below(120)).for_each(|_| _ = client.world.step());
        client.world.heal();
        client.crash(rng.next_u64(), Fate::Mixed, Fate::Lost);
        assert!(client.world.can_open(), "seed {seed}");
        if client.world.must_not_open() {
            continue;
        }
        client.open();
        nobody_noticed(&mut client);
        opened_again += 1;
    }
    assert!(opened_again > 50, "{opened_again}");
}
