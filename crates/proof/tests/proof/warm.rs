// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is brought into the cache before anybody asks for it: [`RequestOp::Warm`].

use flashfront_engine::{Counters, Mode, Options, RequestOp};
use flashfront_proof::{Client, OriginSpec, WorldSpec};

/// A cache of 3,072 blocks before a volume of 16,384.
fn client(seed: u64) -> Client {
    let origins = vec![OriginSpec { size_bytes: 64 << 20, logical_block_bytes: 512, mode: Mode::Writeback }];
    let options = Options { sequential_bypass_bytes: 0, read_around_blocks: 0, ..Options::default() };
    Client::fresh(WorldSpec { seed, segments_per_lane: 192, origins, options, ..WorldSpec::default() })
}

fn counters(client: &Client) -> Counters {
    client.world.engine().status().counters
}

/// Brings so many blocks from that one on.
fn warm(client: &mut Client, block: u64, blocks: u64, replace: bool) {
    for part in (block..block + blocks).step_by(64) {
        client.warm(0, part * 8, 64.min(block + blocks - part) * 8, replace);
        client.finish();
    }
}

fn read(client: &mut Client, block: u64, blocks: u64) {
    for part in (block..block + blocks).step_by(16) {
        client.read(0, part * 8, 16 * 8);
        client.finish();
    }
}

#[test]
fn what_is_brought_is_hit_and_not_read_twice() {
    let mut client = client(1);
    warm(&mut client, 100, 1000, false);
    let first = counters(&client);
    assert_eq!((first.warmed_blocks, first.unwarmed_blocks, first.read_misses), (1000, 0, 0));
    warm(&mut client, 100, 1000, false);
    let again = counters(&client);
    assert_eq!((again.warmed_blocks, again.origin_reads), (1000, first.origin_reads));
    read(&mut client, 100, 992);
    let after = counters(&client);
    assert_eq!((after.origin_reads, after.read_hits), (first.origin_reads, 992));
    client.leave();
}

/// Dirty blocks between are left alone, and writes that come meanwhile win.
#[test]
fn what_is_brought_is_the_newest() {
    for seed in 0..20 {
        let mut client = client(seed);
        for nth in 0..200_u64 {
            let block = nth * 37 % 400;
            client.write(0, block * 8 + nth % 5, 1 + nth % 20, nth % 7 == 0);
            client.warm(0, (nth * 53 % 380) * 8, 8 * 20, nth % 2 == 0);
            if nth % 3 == 0 {
                client.change(RequestOp::Discard, 0, (nth * 91 % 390) * 8, 64, false);
            }
            client.finish_to(8);
        }
        client.finish();
        client.read_all();
        client.leave();
    }
}

#[test]
fn without_leave_to_replace_nothing_makes_room() {
    let mut client = client(3);
    warm(&mut client, 0, 8192, false);
    let full = counters(&client);
    assert!(full.warmed_blocks > 2000 && full.evicted_blocks == 0, "{full:?}");
    assert_eq!(full.warmed_blocks + full.unwarmed_blocks, 8192);
    read(&mut client, 0, 2000);
    assert_eq!(counters(&client).read_misses, 0, "what came first is there");
    // Blocks that were asked for stay, and others make room. What found the log full comes later.
    (0..4).for_each(|_| warm(&mut client, 10_000, 900, true));
    let after = counters(&client);
    assert!(after.evicted_blocks > 0 && after.warmed_blocks >= full.warmed_blocks + 800, "{after:?}");
    let before = after.read_hits;
    read(&mut client, 10_000, 800);
    assert!(counters(&client).read_hits - before >= 700);
    client.leave();
}

/// Nobody waits for it, and so it counts as no read.
#[test]
fn it_is_no_read_of_a_client() {
    let mut client = client(5);
    warm(&mut client, 0, 64, true);
    warm(&mut client, 0, 64, true);
    let after = counters(&client);
    assert_eq!((after.reads, after.read_hits, after.read_misses), (0, 0, 0));
    client.leave();
}
