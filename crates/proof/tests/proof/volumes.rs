// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes come, change and go while the cache serves.

use flashfront_device::sim::Fate;
use flashfront_engine::format::Shares;
use flashfront_engine::{
    Control, Destage, DirtyOnRemove, Event, Mode, NewVolume, OriginId, RequestError, RequestOp, VolumeChange,
    VolumeError,
};
use flashfront_proof::{Client, OriginSpec, WorldSpec};

const VOLUME: OriginSpec = OriginSpec { size_bytes: 1 << 20, logical_block_bytes: 512, mode: Mode::Writeback };

fn client(seed: u64, lanes: u32) -> Client {
    Client::fresh(WorldSpec { seed, lanes, origins: vec![VOLUME], ..WorldSpec::default() })
}

/// Writes blocks of a volume, all of them durable in the log.
fn fill(client: &mut Client, origin: usize) {
    for sector in (0..client.sectors(origin)).step_by(64) {
        client.write(origin, sector, 32, false);
    }
    client.flush(origin);
    client.finish();
}

fn dirty_of(client: &Client, origin: usize) -> u64 {
    let status = client.world.engine().status();
    status.origins.iter().find(|it| it.id.0 as usize == origin).map_or(0, |it| it.blocks_dirty)
}

#[test]
fn a_volume_that_was_added_is_there_after_a_crash_with_all_that_was_written() {
    for lanes in [1, 3] {
        let mut client = client(7, lanes);
        let added = client.add_volume(VOLUME).unwrap();
        assert_eq!((added, client.volumes()), (1, vec![0, 1]));
        fill(&mut client, 0);
        fill(&mut client, 1);
        client.crash(1, Fate::Lost, Fate::Lost);
        client.open();
        client.read_all();
        client.leave();
    }
}

/// Invariant 3. The log has its blocks, dirty and clean. The next volume is as large, so it would
/// be given the place of the one that is gone if anything was.
#[test]
fn a_removed_volume_never_comes_back() {
    for (dirty, lanes) in [(DirtyOnRemove::Destage, 1), (DirtyOnRemove::Discard, 1), (DirtyOnRemove::Discard, 3)] {
        let mut client = client(11, lanes);
        let first = client.add_volume(VOLUME).unwrap();
        fill(&mut client, first);
        client.read_all();
        assert!(dirty_of(&client, first) > 0);
        client.remove_volume(first, dirty).unwrap();
        assert_eq!(client.volumes(), [0]);
        let second = client.add_volume(VOLUME).unwrap();
        assert_ne!(second, first);
        client.read_all();
        client.crash(3, Fate::Kept, Fate::Kept);
        client.open();
        client.read_all();
        fill(&mut client, second);
        client.crash(5, Fate::Lost, Fate::Lost);
        client.open();
        client.read_all();
        client.leave();
    }
}

/// Its blocks leave the index, and so the log has their room.
#[test]
fn the_room_of_a_removed_volume_is_free() {
    let mut client = client(13, 2);
    for _ in 0..20 {
        let added = client.add_volume(VOLUME).unwrap();
        fill(&mut client, added);
        let before = client.world.engine().status();
        assert!(before.blocks_cached > 0 && before.blocks_dirty > 0);
        client.remove_volume(added, DirtyOnRemove::Discard).unwrap();
        let status = client.world.engine().status();
        assert_eq!((status.blocks_cached, status.blocks_dirty), (0, 0));
    }
    client.leave();
}

#[test]
fn a_volume_with_dirty_blocks_is_not_removed_unless_that_is_asked_for() {
    let mut client = client(17, 1);
    fill(&mut client, 0);
    let blocks = dirty_of(&client, 0);
    assert_eq!(client.remove_volume(0, DirtyOnRemove::Refuse), Err(VolumeError::Dirty { blocks }));
    fill(&mut client, 0);
    client.world.drain();
    assert_eq!(client.remove_volume(0, DirtyOnRemove::Refuse), Ok(0));
    client.judge_origin(0);
    client.leave();
}

/// What is in flight when the volume is removed ends first, and is destaged with the rest.
#[test]
fn what_clients_have_asked_for_ends_before_their_volume_goes() {
    let mut client = client(19, 1);
    let added = client.add_volume(VOLUME).unwrap();
    for sector in (0..client.sectors(added)).step_by(8) {
        client.write(added, sector, 8, false);
    }
    client.read(added, 0, 64);
    let ticket = client.ask_remove(added, DirtyOnRemove::Destage);
    let refused = client.read(added, 0, 8);
    assert_eq!(client.await_volume(ticket), Ok(added));
    let late = client.flush(added);
    client.finish();
    assert_eq!(client.take_failed(), [(refused, RequestError::Invalid), (late, RequestError::Invalid)]);
    client.leave();
}

/// Writers of the volume wait for room that only its own dirty blocks can give.
#[test]
fn a_full_cache_lets_a_volume_go_with_its_dirty_blocks() {
    let mut client = client(41, 1);
    client.world.control(Control::SetDirtyLimit { blocks: 1 });
    let added = client.add_volume(OriginSpec { size_bytes: 8 << 20, ..VOLUME }).unwrap();
    for sector in (0..client.sectors(added)).step_by(8) {
        client.write(added, sector, 8, false);
    }
    let ticket = client.ask_remove(added, DirtyOnRemove::Discard);
    assert_eq!(client.await_volume(ticket), Ok(added));
    client.finish();
    client.leave();
}

/// In order a write past the log waits until the eras before are on the origin.
#[test]
fn a_write_past_the_log_lets_its_volume_go() {
    let mut spec = WorldSpec { seed: 47, origins: vec![VOLUME], ..WorldSpec::default() };
    spec.options.destage = Destage::Ordered;
    let mut client = Client::fresh(spec);
    let added = client.add_volume(VOLUME).unwrap();
    fill(&mut client, added);
    client.flush(added);
    client.finish();
    client.change(RequestOp::Discard, added, 0, 64, false);
    let ticket = client.ask_remove(added, DirtyOnRemove::Discard);
    assert_eq!(client.await_volume(ticket), Ok(added));
    client.finish();
    client.leave();
}

/// More volumes have come and gone than an eighth of the dirty limit has blocks.
#[test]
fn volumes_that_went_leave_destage_its_batches() {
    let mut client = client(43, 1);
    client.world.control(Control::SetDirtyLimit { blocks: 1 });
    for _ in 0..100 {
        let added = client.add_volume(VOLUME).unwrap();
        client.remove_volume(added, DirtyOnRemove::Refuse).unwrap();
    }
    fill(&mut client, 0);
    client.world.drain();
    client.judge_origin(0);
    client.leave();
}

#[test]
fn a_second_word_about_dirty_blocks_counts() {
    let mut client = client(23, 1);
    fill(&mut client, 0);
    let waits = client.ask_remove(0, DirtyOnRemove::Destage);
    let discards = client.ask_remove(0, DirtyOnRemove::Discard);
    assert_eq!(client.await_volume(waits), Err(VolumeError::Busy));
    assert_eq!(client.await_volume(discards), Ok(0));
    client.leave();
}

#[test]
fn a_read_only_volume_takes_no_writes_and_is_read_only_after_a_crash() {
    let mut client = client(29, 1);
    fill(&mut client, 0);
    let set = |read_only| VolumeChange::SetReadOnly { origin: OriginId(0), read_only };
    let ticket = client.ask_volume(set(true));
    client.await_volume(ticket).unwrap();
    for _ in 0..2 {
        let write = client.write(0, 0, 8, false);
        client.finish();
        assert_eq!(client.take_failed(), [(write, RequestError::ReadOnly)]);
        client.read_all();
        client.crash(1, Fate::Lost, Fate::Lost);
        client.open();
    }
    let ticket = client.ask_volume(set(false));
    client.await_volume(ticket).unwrap();
    fill(&mut client, 0);
    assert_eq!(client.take_failed(), []);
    client.leave();
}

#[test]
fn names_and_shares_are_durable_when_they_are_told_of() {
    let mut client = client(31, 1);
    let added = client.add_volume(VOLUME).unwrap();
    let origin = OriginId(added as u32);
    let shares = Shares { min_bytes: 1 << 20, weight: 3, ..Shares::default() };
    for change in [
        VolumeChange::Rename { origin, name: "other".into() },
        VolumeChange::SetShares { origin, shares },
        VolumeChange::SetOriginPath { origin, origin_path: "/dev/sdx".into() },
    ] {
        let ticket = client.ask_volume(change);
        client.await_volume(ticket).unwrap();
    }
    client.crash(1, Fate::Lost, Fate::Lost);
    client.open();
    let record = client.world.engine().superblock().origin(origin).unwrap();
    assert_eq!((&*record.name, record.shares, &*record.origin_path), ("other", shares, "/dev/sdx"));
    client.leave();
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let mut client = client(37, 1);
    let before = client.world.engine().superblock().clone();
    let origin = OriginId(0);
    for (change, error) in [
        (VolumeChange::Rename { origin: OriginId(5), name: "x".into() }, VolumeError::NoSuchVolume),
        (VolumeChange::Rename { origin, name: String::new() }, VolumeError::BadName),
        (VolumeChange::Rename { origin, name: "x".repeat(65) }, VolumeError::BadName),
        (VolumeChange::Remove { origin: OriginId(9), dirty: DirtyOnRemove::Discard }, VolumeError::NoSuchVolume),
    ] {
        let ticket = client.ask_volume(change.clone());
        assert_eq!(client.await_volume(ticket), Err(error), "{change:?}");
    }
    let huge = NewVolume { name: "huge".into(), size_bytes: 1 << 50, block_bytes: 512, ..NewVolume::default() };
    let ticket = client.ask_volume(VolumeChange::Add(huge));
    assert_eq!(client.await_volume(ticket), Err(VolumeError::NoPlace));
    assert_eq!(*client.world.engine().superblock(), before);
    // Its table has room for 14.
    for _ in 1..14 {
        client.add_volume(VOLUME).unwrap();
    }
    assert_eq!(client.add_volume(VOLUME), Err(VolumeError::TooMany { most: 14 }));
}

/// A new volume may be larger than all others together: the index is made anew, and has all that
/// it had.
#[test]
fn the_index_grows_with_the_volumes() {
    let mut client = client(41, 2);
    fill(&mut client, 0);
    client.read_all();
    let large = client.add_volume(OriginSpec { size_bytes: 24 << 20, ..VOLUME }).unwrap();
    client.read_all();
    fill(&mut client, large);
    client.read_all();
    client.crash(1, Fate::Lost, Fate::Lost);
    client.open();
    client.read_all();
    client.leave();
}

#[test]
fn a_stop_gives_up_what_has_not_begun() {
    let mut client = client(43, 1);
    fill(&mut client, 0);
    let ticket = client.ask_remove(0, DirtyOnRemove::Destage);
    client.world.control(Control::Stop);
    let stopped = client.world.drive_until(|world| world.events.contains(&Event::Stopped));
    assert!(stopped);
    assert_eq!(client.volume_answer(ticket), Some(Err(VolumeError::NotServing)));
}
