// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes have limits of their own in a cache that they share.

use flashfront_device::sim::Fate;
use flashfront_engine::format::Shares;
use flashfront_engine::{Control, DeviceError, Mode, Op, OriginId, VolumeChange, VolumeError};
use flashfront_proof::{Client, OriginSpec, WorldSpec};

const VOLUME: OriginSpec = OriginSpec { size_bytes: 8 << 20, logical_block_bytes: 512, mode: Mode::Writeback };
/// The least dirty limit of a volume's own: the longest request fits.
const LEAST_BLOCKS: u64 = 257;
const LEAST: Shares = Shares {
    min_bytes: 0,
    max_bytes: 0,
    dirty_limit_bytes: LEAST_BLOCKS * 4096,
    dirty_age_ms: 0,
    weight: 0,
    bypass_bytes: None,
    read_around_bytes: None,
};

/// A cache of 3,072 blocks, of which half may be dirty, before slow origins.
fn client(seed: u64, volumes: usize) -> Client {
    let origins = vec![VOLUME; volumes];
    Client::fresh(WorldSpec { seed, segments_per_lane: 192, origin_ns: 5_000_000, origins, ..WorldSpec::default() })
}

fn set(client: &mut Client, origin: u32, shares: Shares) -> Result<usize, VolumeError> {
    let ticket = client.ask_volume(VolumeChange::SetShares { origin: OriginId(origin), shares });
    client.await_volume(ticket)
}

fn dirty_of(client: &Client, origin: u32) -> u64 {
    let status = client.world.engine().status();
    status.origins.iter().find(|it| it.id.0 == origin).map_or(0, |it| it.blocks_dirty)
}

/// Writes 200 pieces of 16 blocks at random places, and looks after each step what is dirty.
fn write_much(client: &mut Client, origin: usize, limit: u64) {
    let look = |client: &Client| {
        let dirty = dirty_of(client, origin as u32);
        assert!(dirty <= limit, "{dirty} blocks are dirty, of {limit}");
    };
    for number in 0..200u64 {
        let block = number.wrapping_mul(2_654_435_761) % 2000;
        client.write(origin, block * 8, 8 * 16, false);
        while client.world.in_flight() > 32 {
            assert!(client.world.step(), "writers wait forever");
            look(client);
        }
    }
    while client.world.in_flight() > 0 {
        assert!(client.world.step(), "writers wait forever");
        look(client);
    }
    client.finish();
}

/// Invariant 6, for a volume: alone in its cache or not, and after a crash.
#[test]
fn a_volume_keeps_its_own_dirty_limit() {
    for volumes in [1, 3] {
        let mut client = client(3, volumes);
        set(&mut client, 0, LEAST).unwrap();
        for _ in 0..2 {
            write_much(&mut client, 0, LEAST_BLOCKS);
            let slowed = client.world.counters().throttled_writes;
            assert!(slowed > 0, "the load was too small to show anything");
            client.crash(1, Fate::Kept, Fate::Kept);
            client.open();
        }
        client.leave();
    }
}

/// A volume at its own limit waits for itself.
#[test]
fn a_volume_at_its_own_limit_stops_no_other() {
    let mut client = client(5, 2);
    set(&mut client, 0, LEAST).unwrap();
    let many: Vec<_> = (0..64).map(|nth| client.write(0, nth * 8 * 16, 8 * 16, false)).collect();
    while client.world.in_flight() > 48 {
        assert!(client.world.step());
    }
    let other: Vec<_> = (0..64).map(|nth| client.write(1, nth * 8 * 16, 8 * 16, false)).collect();
    assert!(client.world.drive_until(|world| other.iter().all(|id| !world.waits(*id))));
    let waiting = many.iter().filter(|id| client.world.waits(**id)).count();
    assert!(waiting > 20, "{waiting} of the first volume's writes wait");
    assert!(dirty_of(&client, 1) > 3 * LEAST_BLOCKS);
    client.finish();
    client.leave();
}

/// The limit of the cache holds for a volume with a higher one.
#[test]
fn the_lower_limit_counts() {
    let mut client = client(7, 2);
    set(&mut client, 0, Shares { dirty_limit_bytes: 1 << 30, ..LEAST }).unwrap();
    client.world.control(Control::SetDirtyLimit { blocks: 600 });
    write_much(&mut client, 0, 600);
    client.leave();
}

#[test]
fn a_volume_has_its_own_dirty_age() {
    let mut client = client(9, 2);
    set(&mut client, 0, Shares { dirty_age_ms: 2_000, ..Shares::default() }).unwrap();
    for origin in 0..2 {
        client.write(origin, 0, 64, false);
    }
    client.finish();
    // Clients that come again and again leave no idle moment.
    for _ in 0..60 {
        client.world.pass(50_000_000);
        client.read(1, 4096, 8);
        client.finish();
    }
    assert_eq!((dirty_of(&client, 0), dirty_of(&client, 1)), (0, 8));
    client.leave();
}

#[test]
fn a_dirty_limit_without_room_for_a_request_is_refused() {
    let mut client = client(11, 1);
    let low = Shares { dirty_limit_bytes: LEAST_BLOCKS * 4096 - 1, ..LEAST };
    let error = VolumeError::DirtyLimitTooLow { least_bytes: LEAST_BLOCKS * 4096 };
    assert_eq!(set(&mut client, 0, low), Err(error));
    assert_eq!(client.world.engine().superblock().origins[0].shares, Shares::default());
    client.leave();
}

/// A cache that nobody uses is not written for ever, though an origin takes nothing. What a
/// smallest part protects stays.
#[test]
fn a_cache_that_rests_is_not_written() {
    for (segment_blocks, sixteenths) in [(16, 5), (64, 3), (64, 4), (64, 5), (256, 5), (256, 8)] {
        let origins = vec![VOLUME; 2];
        let spec = WorldSpec { segment_blocks, segments_per_lane: 32, origins, ..WorldSpec::default() };
        let blocks = 32 * u64::from(segment_blocks);
        let mut client = Client::fresh(spec);
        set(&mut client, 0, Shares { min_bytes: blocks * 4096 / 2, ..Shares::default() }).unwrap();
        for _ in 0..3 {
            for first in (0..blocks / 2).step_by(8) {
                client.read(0, first * 8, 64);
                client.finish_to(8);
            }
            client.finish();
        }
        client.world.origins[1].faults.fail_range(0..8 << 20, Some(Op::Write), DeviceError::Gone);
        for nth in 0..blocks * sixteenths / 16 {
            client.write(1, nth * 2_654_435_761 % 2000 * 8, 8, false);
            client.world.pass(1_000_000);
        }
        let before = client.world.engine().status().counters.cache_writes_bytes;
        client.world.pass(3_000_000_000);
        let status = client.world.engine().status();
        let written = (status.counters.cache_writes_bytes - before) / 4096;
        assert!(written < blocks / 4, "{segment_blocks}: {written} blocks were written at rest, of {blocks}");
        let lost = status.origins[0].evicted_below_min;
        assert!(lost <= blocks / 20, "{segment_blocks}: {lost} blocks of a smallest part were dropped, of {blocks}");
        client.world.origins[1].faults.heal();
        client.finish();
        client.leave();
    }
}
