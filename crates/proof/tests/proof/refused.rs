// SPDX-License-Identifier: MIT OR Apache-2.0
//! A part of an origin takes no writes, for good: a thin volume that is full, or a bad place of a
//! disk. Blocks that are dirty there stay dirty. All other blocks go to the origin and the cache as
//! before.

use flashfront_device::Rng;
use flashfront_engine::{DeviceError, Mode, Op, Options, Time};
use flashfront_proof::{Client, OriginSpec, WorldSpec};

const B: u64 = 8;

fn client(dirty_limit_blocks: Option<u64>) -> Client {
    let origin = OriginSpec { size_bytes: 16 << 20, logical_block_bytes: 512, mode: Mode::Writeback };
    let options = Options { dirty_limit_blocks, ..Options::default() };
    Client::fresh(WorldSpec { origins: vec![origin], options, ..WorldSpec::default() })
}

fn refuse(client: &mut Client, first: u64, blocks: u64) {
    let range = first * 4096..(first + blocks) * 4096;
    client.world.origins[0].faults.fail_range(range, Some(Op::Write), DeviceError::NoSpace);
}

/// Reclaim goes on beside segments full of refused blocks. They are the oldest segments in the log,
/// so a former reclaim chose them and waited for them. With as many of them as it has victims it
/// did nothing any more.
#[test]
fn reclaim_goes_on_beside_what_is_refused() {
    // The limit lets each segment hold something dirty.
    let mut client = client(Some(u64::MAX));
    refuse(&mut client, 0, 256);
    for nth in 0..16 {
        client.write(0, nth * 15 * B, 15 * B, false);
    }
    client.finish();
    let mut rng = Rng::new(1);
    for _ in 0..3000 {
        client.write(0, (512 + rng.below(3500)) * B, 15 * B, false);
        while client.world.in_flight() > 8 {
            assert!(
                client.world.now < Time(600_000_000_000),
                "writers wait for ever: {:?}",
                client.world.engine().status()
            );
            client.world.step();
        }
        client.judge();
    }
    client.finish();
    assert!(client.take_failed().is_empty());
    client.world.pass(100_000_000_000);
    assert_eq!(client.world.engine().status().blocks_dirty, 240);
    client.read_all();
    client.world.origins[0].faults.heal();
    client.leave();
}

/// A refused run may be of any length. It is tried in halves until the refused block is alone.
#[test]
fn one_block_that_is_refused_keeps_no_others_dirty() {
    for refused in [0, 100, 254, 255] {
        let mut client = client(None);
        refuse(&mut client, 1000 + refused, 1);
        client.write(0, 1000 * B, 256 * B, false);
        client.finish();
        client.world.pass(600_000_000_000);
        assert_eq!(client.world.engine().status().blocks_dirty, 1, "block {refused} of 256 is refused");
        client.world.origins[0].faults.heal();
        client.leave();
    }
}
