// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads of the cache device fail. Cache devices that fail for writes: tests/failure.rs.

use flashfront_engine::{DeviceError, Mode, Op};
use flashfront_proof::Client;

use super::{lazy, small};

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
