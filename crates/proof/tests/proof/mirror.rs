// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache on two devices: whichever dies, whenever, no client notices and nothing is lost.

use flashfront_device::Rng;
use flashfront_device::sim::Fate;
use flashfront_device::wrap::{Fault, Rule};
use flashfront_engine::{
    BLOCK_BYTES, Control, DeviceError, Event, MirrorStatus, Mode, Op, OpenError, Options, OriginId,
};
use flashfront_proof::{Client, OriginSpec, WorldSpec};

const FATES: [Fate; 4] = [Fate::Kept, Fate::Lost, Fate::Torn, Fate::Mixed];
/// Blocks that are dirty, in tests that don't destage.
const DIRTY: u64 = 200;

fn spec() -> WorldSpec {
    let origin = OriginSpec { size_bytes: 4 << 20, logical_block_bytes: 512, mode: Mode::Writeback };
    let options = Options { sequential_bypass_bytes: 0, dirty_age_max_ns: u64::MAX / 4, ..Options::default() };
    WorldSpec { origins: vec![origin], mirrored: true, options, ..WorldSpec::default() }
}

/// With blocks that are dirty and durable, and clean ones behind them. The origin takes no writes
/// for now, so what is dirty stays dirty.
fn client() -> Client {
    let mut client = Client::fresh(spec());
    client.world.origins[0].faults.fail_range(0..u64::MAX, Some(Op::Write), DeviceError::Io);
    for block in (0..DIRTY).step_by(8) {
        client.write(0, block * 8, 64, false);
        client.finish();
    }
    client.flush(0);
    client.finish();
    for block in 300..400 {
        client.read(0, block * 8, 8);
        client.finish();
    }
    client
}

fn write_and_flush(client: &mut Client, block: u64) {
    client.write(0, block * 8, 8, false);
    client.flush(0);
    client.finish();
}

/// The origin takes writes again: in the end it holds all.
fn leave(mut client: Client) {
    client.world.origins[0].faults.heal();
    client.leave();
}

fn nobody_noticed(client: &mut Client) {
    client.read_all();
    assert_eq!(client.take_failed(), []);
    let status = client.world.engine().status();
    assert!(status.lost.is_empty() && !status.cache_failed, "{status:?}");
}

#[test]
fn either_member_may_die() {
    for member in 0..2 {
        let mut client = client();
        client.world.member_mut(member).unwrap().faults.lose_device();
        write_and_flush(&mut client, 7);
        nobody_noticed(&mut client);
        assert_eq!(client.world.engine().status().mirror, MirrorStatus::Alone { member: 1 - member });
        assert!(client.take_events().iter().any(|event| matches!(event, Event::MemberLeft { .. })));
        leave(client);
    }
}

/// What is dirty is on both devices: either one alone brings all of it back.
#[test]
fn either_member_alone_has_all_after_a_power_cut() {
    for fate in FATES {
        for member in 0..2 {
            let mut client = client();
            client.crash(1, fate, fate);
            client.world.take_away(member);
            assert!(!client.world.can_open(), "nobody has said that the other member will not come back");
            client.world.alone = true;
            let opened = client.open();
            assert!(opened.blocks_dirty > 0, "{opened:?}");
            nobody_noticed(&mut client);
            leave(client);
        }
    }
}

/// A member that was left out comes back after a power cut, and is older than the other.
#[test]
fn a_member_that_was_left_out_is_not_believed() {
    for fate in FATES {
        for member in 0..2 {
            let mut client = client();
            client.world.member_mut(member).unwrap().faults.fail_nth(0, Some(Op::Write), DeviceError::Io);
            for block in 0..50 {
                write_and_flush(&mut client, block);
            }
            assert_eq!(client.world.engine().status().mirror, MirrorStatus::Alone { member: 1 - member });
            client.crash(2, fate, fate);
            client.open();
            nobody_noticed(&mut client);
            leave(client);
        }
    }
}

#[test]
fn a_member_may_die_during_the_opening() {
    for member in 0..2 {
        for nth in 0..4 {
            let mut client = client();
            client.crash(4, Fate::Mixed, Fate::Lost);
            client.world.member_mut(member).unwrap().faults.fail_nth(nth, Some(Op::Write), DeviceError::Io);
            client.open();
            nobody_noticed(&mut client);
            client.crash(5, Fate::Mixed, Fate::Lost);
            client.open();
            nobody_noticed(&mut client);
            leave(client);
        }
    }
}

/// A member takes nothing more once the cache is being opened, and several commits at the log's end
/// wait to be verified.
#[test]
fn a_member_may_die_while_replay_verifies() {
    for (member, lanes, fate) in [(0, 1, Fate::Kept), (1, 1, Fate::Torn), (1, 1, Fate::Kept), (0, 2, Fate::Mixed)] {
        for op in [None, Some(Op::Write), Some(Op::Read)] {
            let mut client = Client::fresh(WorldSpec { lanes, stripe_blocks: 8, ..spec() });
            client.world.origins[0].faults.fail_range(0..u64::MAX, Some(Op::Write), DeviceError::Io);
            // Several full commits under one flush.
            (0..12).for_each(|nth| _ = client.write(0, nth * 64, 64, false));
            client.finish();
            // Of clean blocks only the lead has the data.
            (0..60).for_each(|nth| _ = client.read(0, (500 + nth * 3) * 8, 8));
            client.finish();
            (12..24).for_each(|nth| _ = client.write(0, nth * 64, 64, false));
            client.flush(0);
            client.finish();
            // What is not flushed may be torn.
            (24..28).for_each(|nth| _ = client.write(0, nth * 64, 64, false));
            client.finish();
            let log = client.world.spec.superblock().slot_offset(0, 0);
            client.crash(3, fate, Fate::Lost);
            client.world.member_mut(member).unwrap().faults.fail_range(log..u64::MAX, op, DeviceError::Io);
            client.open();
            eprintln!("member {member}, {lanes} lanes, {fate:?}, {op:?}");
            nobody_noticed(&mut client);
            leave(client);
        }
    }
}

/// At every moment of a member's failure: a power cut, then both members are there, the failed one
/// as well.
#[test]
fn a_power_cut_while_a_member_is_left_out() {
    for member in 0..2 {
        for events in 0..60 {
            let mut client = client();
            client.world.member_mut(member).unwrap().faults.fail_nth(0, Some(Op::Write), DeviceError::Io);
            client.write(0, 8, 64, true);
            client.write(0, 800, 8, false);
            client.flush(0);
            (0..events).for_each(|_| _ = client.world.step());
            client.crash(events, Fate::Kept, Fate::Lost);
            client.open();
            nobody_noticed(&mut client);
        }
    }
}

/// An operator who hears that a device is out takes it away. Whenever the power fails then, the
/// cache opens without him.
#[test]
fn nobody_is_left_out_before_that_is_recorded() {
    for member in 0..2 {
        let mut client = client();
        client.world.member_mut(member).unwrap().faults.fail_nth(0, Some(Op::Write), DeviceError::Io);
        client.write(0, 56, 8, true);
        while client.world.engine().status().mirror == MirrorStatus::Whole {
            assert!(client.world.step(), "it fails, and is left out");
        }
        client.world.take_away(member);
        client.crash(3, Fate::Lost, Fate::Lost);
        assert!(client.world.can_open(), "member {member} is out, and the other one knows");
        client.open();
        nobody_noticed(&mut client);
        leave(client);
    }
}

#[test]
fn a_dirty_block_that_rots_on_one_is_read_from_the_other() {
    let mut client = client();
    // All the log's data on the lead.
    let size = client.world.engine().superblock().cache_bytes;
    let data = client.world.engine().superblock().slot_offset(0, 0);
    for at in (data..size - 2 * BLOCK_BYTES).step_by(512) {
        client.world.cache.inner_mut().corrupt(at);
    }
    nobody_noticed(&mut client);
    assert!(client.take_events().iter().any(|event| matches!(event, Event::ReadFromMirror { .. })));
    leave(client);
}

#[test]
fn either_member_is_replaced_while_the_cache_serves() {
    for first in 0..2 {
        for fate in FATES {
            let mut client = client();
            client.world.member_mut(first).unwrap().faults.lose_device();
            write_and_flush(&mut client, 3);
            client.world.take_away(first);
            client.world.control(Control::AddMirror);
            write_and_flush(&mut client, 5);
            let whole = client.world.drive_until(|world| world.engine().status().mirror == MirrorStatus::Whole);
            assert!(whole, "{:?}", client.world.engine().status().mirror);
            assert!(client.world.engine().status().blocks_dirty >= DIRTY / 2, "it was not destaged instead");
            write_and_flush(&mut client, 9);
            // Now the other one is gone, and only the new one is left.
            client.crash(3, fate, fate);
            client.world.take_away(1 - first);
            client.world.alone = true;
            client.open();
            nobody_noticed(&mut client);
            leave(client);
        }
    }
}

/// A read that fails while the new member is filled leaves no hole in it.
#[test]
fn a_mirror_that_is_whole_has_all_that_is_dirty() {
    for nth in [0, 1, 20, 100] {
        let mut client = client();
        client.world.member_mut(1).unwrap().faults.lose_device();
        write_and_flush(&mut client, 7);
        assert_eq!(client.world.engine().status().mirror, MirrorStatus::Alone { member: 0 });
        client.take_events();
        client.world.take_away(1);
        client.world.cache.faults.fail_nth(nth, Some(Op::Read), DeviceError::Io);
        client.world.control(Control::AddMirror);
        let whole = client.world.drive_until(|world| world.events.contains(&Event::MirrorWhole { lacking: 0 }));
        assert!(whole);
        assert!(client.world.cache.faults.hits().values().sum::<u64>() > 0, "no read has failed");
        client.world.cache.faults.lose_device();
        nobody_noticed(&mut client);
        leave(client);
    }
}

const SECOND_NS: u64 = 1_000_000_000;

/// A cache on one device, with another one beside it, and a dirty block that is taken for lost
/// since it couldn't be read.
fn lost() -> Client {
    let mut client = Client::fresh(WorldSpec { mirrored: false, ..spec() });
    client.world.origins[0].faults.fail_range(0..u64::MAX, Some(Op::Write), DeviceError::Io);
    write_and_flush(&mut client, 7);
    client.world.put_beside();
    client.world.cache.faults.fail_range(0..u64::MAX, Some(Op::Read), DeviceError::Io);
    client.world.control(Control::Drain(true));
    assert!(client.world.drive_until(|world| !world.engine().status().lost.is_empty()), "destage reads it, too");
    client
}

fn await_mirror(client: &mut Client, lacking: u64) {
    let whole = client.world.drive_until(|world| world.events.contains(&Event::MirrorWhole { lacking }));
    assert!(whole, "{:?}", client.take_events());
    assert_eq!(client.world.engine().status().mirror_lacks_blocks, lacking);
}

/// That a dirty block was taken for lost is no proof that it is: a mirror is not whole without it
/// while it may still be read (torture, seed 1795802398347).
#[test]
fn a_mirror_that_is_whole_has_what_was_taken_for_lost() {
    for seconds in [0, 2, 10] {
        let mut client = lost();
        if seconds == 0 {
            client.world.cache.faults.heal();
        }
        client.world.control(Control::AddMirror);
        client.world.pass(seconds * SECOND_NS);
        client.world.cache.faults.heal();
        await_mirror(&mut client, 0);
        client.world.cache.faults.lose_device();
        nobody_noticed(&mut client);
        leave(client);
    }
}

/// A block that was copied, and couldn't be read by destage afterwards, is on both devices, or on
/// the new one at least: it is not lost.
#[test]
fn what_a_mirror_has_is_not_lost() {
    for heals in [true, false] {
        let mut client = lost();
        client.world.cache.faults.heal();
        client.world.control(Control::Drain(false));
        write_and_flush(&mut client, 9);
        client.world.control(Control::AddMirror);
        client.world.pass(SECOND_NS / 2);
        assert!(matches!(client.world.engine().status().mirror, MirrorStatus::Syncing { copied: 1, .. }));
        client.world.cache.faults.fail_range(0..u64::MAX, Some(Op::Read), DeviceError::Io);
        client.world.control(Control::Drain(true));
        assert!(client.world.drive_until(|world| world.engine().status().lost.len() == 2));
        if heals {
            client.world.cache.faults.heal();
        }
        await_mirror(&mut client, u64::from(!heals));
        client.read(0, 9 * 8, 8);
        client.finish();
        assert_eq!(client.take_failed(), []);
        let lost = client.world.engine().status().lost;
        assert!(lost.iter().all(|key| !heals && key.block.0 == 7), "{lost:?}");
        client.world.cache.faults.heal();
        leave(client);
    }
}

/// The lost block is being replaced on the origin when it can be read again: destage must not bring
/// it back there.
#[test]
fn what_is_being_replaced_is_not_found_again_for_a_mirror() {
    let mut client = lost();
    client.world.cache.faults.heal();
    client.world.origins[0].faults.heal();
    client.world.control(Control::Drain(false));
    client.world.control(Control::SetMode { origin: OriginId(0), mode: Mode::Writearound });
    let slow = Fault::Stall { hold_ns: 30 * SECOND_NS };
    client.world.origins[0].faults.order(Rule { op: Some(Op::Write), ..Rule::always(slow) });
    client.write(0, 7 * 8, 8, false);
    client.world.control(Control::AddMirror);
    client.world.pass(10 * SECOND_NS);
    assert!(!client.world.engine().status().lost.is_empty(), "it is being replaced");
    client.world.origins[0].faults.heal();
    await_mirror(&mut client, 0);
    client.finish();
    nobody_noticed(&mut client);
    leave(client);
}

/// Neither the end of the new device nor a stop waits for blocks that can't be read.
#[test]
fn a_mirror_that_waits_for_a_block_may_end() {
    let mut client = lost();
    client.world.control(Control::AddMirror);
    client.world.pass(2 * SECOND_NS);
    assert!(matches!(client.world.engine().status().mirror, MirrorStatus::Syncing { .. }));
    client.world.member_mut(1).unwrap().faults.lose_device();
    write_and_flush(&mut client, 9);
    assert_eq!(client.world.engine().free_member(), Some(1));
    client.world.take_away(1);
    client.world.control(Control::AddMirror);
    client.world.pass(2 * SECOND_NS);
    client.stop();
    client.world.heal();
    client.open();
    nobody_noticed(&mut client);
    leave(client);
}

/// What is rewritten while it can't be read is on both devices.
#[test]
fn a_mirror_lacks_nothing_that_was_written_anew() {
    let mut client = lost();
    client.world.control(Control::AddMirror);
    client.world.pass(2 * SECOND_NS);
    write_and_flush(&mut client, 7);
    await_mirror(&mut client, 0);
    client.world.cache.faults.lose_device();
    nobody_noticed(&mut client);
    leave(client);
}

/// A dirty block that couldn't be read while a mirror was filled is on one device only, and the
/// other has something else in its place. That it can't be read once more is no proof that it is
/// lost.
#[test]
fn a_mirror_that_lacks_a_block_does_not_hide_it() {
    for (readers, destaged) in [(1, false), (2, false), (1, true), (2, true)] {
        let mut client = Client::fresh(WorldSpec { mirrored: false, ..spec() });
        client.world.origins[0].faults.fail_range(0..u64::MAX, Some(Op::Write), DeviceError::Io);
        write_and_flush(&mut client, 7);
        client.world.put_beside();
        client.world.cache.faults.fail_range(0..u64::MAX, Some(Op::Read), DeviceError::Io);
        client.world.control(Control::AddMirror);
        await_mirror(&mut client, 1);
        client.world.cache.faults.heal();
        for nth in 0..readers {
            client.world.cache.faults.fail_nth(nth, Some(Op::Read), DeviceError::Io);
        }
        if destaged {
            client.world.origins[0].faults.heal();
        }
        (0..readers).for_each(|_| _ = client.read(0, 7 * 8, 8));
        client.finish();
        assert_eq!(client.take_failed().len(), readers as usize, "neither device had it then");
        let events = client.take_events();
        assert!(!events.iter().any(|event| matches!(event, Event::Corrupt { .. })), "{events:?}");
        nobody_noticed(&mut client);
        leave(client);
    }
}

/// What is asked for too early would be forgotten.
#[test]
fn the_place_of_a_mirror_is_free_when_its_filling_has_ended() {
    let mut client = client();
    client.world.member_mut(1).unwrap().faults.lose_device();
    write_and_flush(&mut client, 7);
    client.world.take_away(1);
    let slow = Fault::Stall { hold_ns: 10 * SECOND_NS };
    client.world.cache.faults.order(Rule { op: Some(Op::Read), ..Rule::always(slow) });
    client.world.control(Control::AddMirror);
    client.world.pass(SECOND_NS);
    client.world.member_mut(1).unwrap().faults.lose_device();
    write_and_flush(&mut client, 9);
    assert_eq!(client.world.engine().status().mirror, MirrorStatus::Alone { member: 0 });
    assert_eq!(client.world.engine().free_member(), None, "blocks are being read for it");
    client.world.cache.faults.heal();
    client.world.pass(20 * SECOND_NS);
    client.world.take_away(1);
    assert_eq!(client.world.engine().free_member(), Some(1));
    client.world.control(Control::AddMirror);
    assert!(client.world.drive_until(|world| world.engine().status().mirror == MirrorStatus::Whole));
    nobody_noticed(&mut client);
    leave(client);
}

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

/// A checkpoint's head that reached one device before the power was cut counts from then on, and
/// the next opening overwrites the area of the one before it (torture, seed 1795808960690).
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

/// The member that replay reads fails while another lane is done: what only that one had of the
/// log's end is no part of it, since nobody else has its data (torture, seed 1795810602588).
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

/// Both members fail, one after the other, while the cache opens, and then the power: what was
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
