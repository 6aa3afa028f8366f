// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a mirror that is being filled: the cache counts as whole only when the mirror is.

use super::*;

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

/// That a dirty block was taken for lost is no proof that it is. A mirror is not whole without the
/// block while it may still be read (torture, seed 1795802398347).
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

/// A block was copied, and couldn't be read by destage afterwards. It is on both devices, or on the
/// new one at least, so it is not lost.
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

/// A dirty block that couldn't be read while a mirror was filled is on one device only. The other
/// device has something else in its place. Another failed read is no proof that the block is lost.
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
