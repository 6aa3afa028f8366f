// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices that fail: every request is answered, a stop ends, and no answer is wrong.

use flashfront_device::Rng;
use flashfront_device::sim::Fate;
use flashfront_engine::{DeviceError, Mode, Op};
use flashfront_sim::{Client, WorldSpec};

use super::{FATES, anything, lazy, small};

/// The cache device's nth write or flush fails, or it is lost altogether.
#[test]
fn cache_failure_hangs_nobody() {
    for (seed, mode) in (0..40).zip(Mode::ALL.into_iter().cycle()) {
        let mut client = Client::fresh(WorldSpec { seed, lanes: 1 + seed as u32 % 2, ..small(mode, 2) });
        let mut rng = Rng::new(seed);
        client.oracle.forgive_time_travel();
        for nth in 0..200 {
            anything(&mut client, &mut rng, 1500, 40);
            client.finish_to(8);
            if nth == 60 {
                let faults = &mut client.world.cache.faults;
                match seed / 4 % 3 {
                    0 => faults.fail_nth(seed % 5, Some(Op::Write), DeviceError::Io),
                    1 => faults.fail_nth(seed % 5, Some(Op::Flush), DeviceError::NoSpace),
                    _ => faults.lose_device(),
                }
            }
        }
        client.finish();
        client.world.stop();
        client.judge();
        client.world.cache.faults.heal();
        client.crash(seed, FATES[seed as usize % 4], Fate::Mixed);
        client.open();
        client.read_all();
        client.leave();
    }
}

/// An origin whose reads fail: an error for the client, and after that everything is as before.
#[test]
fn origin_read_errors_are_the_clients_only() {
    let mut client = Client::fresh(small(Mode::Writeback, 2));
    client.write(0, 0, 80, false);
    client.finish();
    client.world.origins[0].faults.fail_range(0..u64::MAX, Some(Op::Read), DeviceError::Io);
    let (cached, missed) = (client.read(0, 0, 80), client.read(0, 800, 8));
    let merged = client.write(0, 1003, 2, false);
    client.finish();
    let failed: Vec<_> = client.take_failed().into_iter().map(|it| it.0).collect();
    assert!(failed.contains(&missed) && failed.contains(&merged) && !failed.contains(&cached));
    client.world.origins[0].faults.heal();
    client.read_all();
    client.leave();
}

/// Dirty blocks that can't be read are lost only while they can't.
#[test]
fn unreadable_dirty_blocks_are_listed_and_come_back() {
    let mut client = Client::fresh(lazy(2));
    client.write(0, 0, 800, false);
    client.flush(0);
    client.finish();
    let data = client.world.spec.superblock().slot_offset(0, 0);
    client.world.cache.faults.fail_range(data + 4096 * 5..data + 4096 * 6, Some(Op::Read), DeviceError::Io);
    client.world.drain();
    let status = client.world.engine().status();
    assert_eq!((status.lost.len(), status.blocks_dirty), (1, 1), "only that one");
    client.world.cache.faults.heal();
    client.read_all();
    assert!(client.world.engine().status().lost.is_empty(), "it was read");
    client.leave();
}
