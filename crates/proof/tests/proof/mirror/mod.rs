// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a cache on two devices: whichever dies, whenever, no client notices and nothing is
//! lost.

mod filling;
mod members;
mod opening;

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

/// A client whose cache has blocks that are dirty and durable, and clean ones behind them. The
/// origin takes no writes for now, so what is dirty stays dirty.
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

/// The origin takes writes again, and holds everything in the end.
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
