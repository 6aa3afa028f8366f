// SPDX-License-Identifier: MIT OR Apache-2.0
//! The invariants are swept once more: power cuts at every event, every copy rotten, each device
//! failing, in each mode. `invariants.rs` has one short test for each name; `torture.rs` has the
//! random lives.

mod away;
mod corruption;
mod crash;
mod destage;
mod failure;
mod fickle;
mod origin;

use flashfront_device::Rng;
use flashfront_device::sim::Fate;
use flashfront_engine::{Mode, RequestOp};
use flashfront_proof::{Client, OriginSpec, WorldSpec};

const FATES: [Fate; 4] = [Fate::Kept, Fate::Lost, Fate::Torn, Fate::Mixed];

/// A small cache before one origin of that many MiB.
fn small(mode: Mode, origin_mib: u64) -> WorldSpec {
    let origins = vec![OriginSpec { size_bytes: origin_mib << 20, logical_block_bytes: 512, mode }];
    WorldSpec { segments_per_lane: 24, origins, ..WorldSpec::default() }
}

/// A cache in which destage waits until it is asked to.
fn lazy(origin_mib: u64) -> WorldSpec {
    let mut spec = WorldSpec { segments_per_lane: 48, ..small(Mode::Writeback, origin_mib) };
    // Below 30 % of the limit nothing is destaged while there are requests.
    spec.options.dirty_limit_blocks = Some(u64::MAX);
    spec
}

/// A random place of up to `longest` sectors within the first `within` sectors.
fn place(rng: &mut Rng, within: u64, longest: u64) -> (u64, u64) {
    let sectors = 1 + rng.below(longest);
    (rng.below(within - sectors), sectors)
}

/// Submits a random read or write, or now and then something else.
fn anything(client: &mut Client, rng: &mut Rng, within: u64, longest: u64) {
    let (at, sectors) = place(rng, within, longest);
    match rng.below(20) {
        0 => client.flush(0),
        1 => client.change(RequestOp::Discard, 0, at, sectors, false),
        2 => client.change(RequestOp::WriteZeroes { may_discard: true }, 0, at, sectors, false),
        3..=10 => client.read(0, at, sectors),
        n => client.write(0, at, sectors, n == 19),
    };
}

/// Lets so many events happen.
fn events(client: &mut Client, count: u64) {
    for _ in 0..count {
        client.world.step();
    }
}

/// Makes room: reads blocks that nobody has touched, until everything else has been evicted.
fn evict_all(client: &mut Client, from_sector: u64) {
    let chunks = (client.sectors(0) - from_sector) / 64;
    for nth in 0..3 * chunks {
        // In an order that is no sequential stream.
        client.read(0, from_sector + nth * 37 % chunks * 64, 64);
        client.finish_to(8);
    }
    client.finish();
    assert!(client.world.engine().status().counters.evicted_blocks > 0, "nothing was evicted");
}
