// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a member that fails while the cache serves: no client notices.

use super::*;

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
