// SPDX-License-Identifier: MIT OR Apache-2.0
//! The RAM front, seen from outside, answers repeated reads of a client at no cost for the cache
//! device. It keeps its bound, and a scan does not empty it. Torture shows that it never serves old
//! bytes.

use flashfront_engine::{BLOCK_BYTES, Options};
use flashfront_proof::{Client, OriginSpec, WorldSpec};

/// A client of a cache with 256 blocks of origin, all dirty and durable on the cache device. The
/// RAM front has `front_blocks` blocks.
fn client(front_blocks: u64) -> Client {
    let origin = OriginSpec { size_bytes: 1 << 20, logical_block_bytes: 512, mode: flashfront_engine::Mode::Writeback };
    let options = Options {
        ram_front_bytes: front_blocks * BLOCK_BYTES,
        sequential_bypass_bytes: 0,
        dirty_age_max_ns: u64::MAX / 4,
        ..Options::default()
    };
    let mut client = Client::fresh(WorldSpec { origins: vec![origin], options, ..WorldSpec::default() });
    client.write(0, 0, 256 * 8, false);
    client.finish();
    client.flush(0);
    client.finish();
    client
}

/// Reads these blocks one after the other. Returns the blocks that were in RAM and the blocks that
/// were read from the cache device.
fn read(client: &mut Client, blocks: impl Iterator<Item = u64>) -> (u64, u64) {
    let before = client.world.engine().status().counters;
    for block in blocks {
        client.read(0, block * 8, 8);
        client.finish();
    }
    client.judge();
    let after = client.world.engine().status().counters;
    (after.ram_hits - before.ram_hits, (after.cache_reads_bytes - before.cache_reads_bytes) / BLOCK_BYTES)
}

#[test]
fn what_is_read_again_comes_from_ram() {
    let mut client = client(128);
    assert_eq!(read(&mut client, 0..64), (0, 64));
    assert_eq!(read(&mut client, 0..64), (64, 0));
}

#[test]
fn the_bound_holds() {
    let mut client = client(64);
    read(&mut client, 0..256);
    read(&mut client, 0..256);
    assert_eq!(client.world.engine().status().ram_front_bytes, 64 * BLOCK_BYTES);
}

#[test]
fn without_room_nothing_is_kept() {
    let mut client = client(0);
    assert_eq!(read(&mut client, 0..64), (0, 64));
    assert_eq!(read(&mut client, 0..64), (0, 64));
    assert_eq!(client.world.engine().status().ram_front_bytes, 0);
}

#[test]
fn a_scan_does_not_push_out_what_is_read_beside_it() {
    let mut client = client(128);
    for piece in 0..12 {
        read(&mut client, 0..32);
        read(&mut client, 64 + piece * 16..80 + piece * 16);
    }
    assert_eq!(read(&mut client, 0..32), (32, 0));
}

#[test]
fn a_rewritten_block_is_new() {
    let mut client = client(64);
    read(&mut client, 0..64);
    client.write(0, 0, 64 * 8, false);
    client.finish();
    // The oracle of the client compares.
    read(&mut client, 0..64);
}
