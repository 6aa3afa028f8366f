// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes have weights: what they have together is divided by weight, as long as they use it.

use flashfront_device::Rng;
use flashfront_engine::Mode;
use flashfront_engine::format::Shares;
use flashfront_proof::Client;

use crate::parts::{client, counters, of, read, set, unchecked};

/// Blocks of the cache.
const CACHE_BLOCKS: u64 = 3072;

/// Gives a volume a weight.
fn weigh(client: &mut Client, origin: u32, weight: u16) {
    set(client, origin, Shares { weight, ..Shares::default() }).expect("a weight can always be had");
}

/// Volumes read at random, one after the other, of the first blocks that each has.
fn random_reads(client: &mut Client, reads: u64, seed: u64, of: [u64; 2]) {
    let mut rng = Rng::new(seed);
    for _ in 0..reads {
        for (origin, blocks) in of.into_iter().enumerate().filter(|(_, blocks)| *blocks > 0) {
            // The blocks lie in many stripes. (A stripe has 4,096 blocks.)
            client.read(origin, rng.below(blocks) * 5 * 8, 8);
        }
        client.finish_to(4);
    }
    client.finish();
}

/// Blocks that the cache has of each volume.
fn cached(client: &Client) -> [u64; 2] {
    [0, 1].map(|origin| of(client, origin).blocks_cached)
}

#[test]
fn volumes_that_ask_for_the_same_have_the_cache_by_weight() {
    for lanes in [1, 4] {
        let mut client = unchecked(client(3, lanes, Mode::Writearound));
        let both = [CACHE_BLOCKS; 2];
        random_reads(&mut client, 40_000, 1, both);
        let [first, second] = cached(&client);
        println!("{lanes} lanes: no weights: {first} and {second}");
        assert!(first.abs_diff(second) < CACHE_BLOCKS / 8, "{first} and {second} without weights");
        let all = first + second;
        for (round, weights) in [[300, 100], [100, 300], [100, 100]].into_iter().enumerate() {
            for (origin, weight) in (0..).zip(weights) {
                weigh(&mut client, origin, weight);
            }
            let before = counters(&client);
            random_reads(&mut client, 40_000, 2 + round as u64, both);
            let [first, second] = cached(&client);
            let is = counters(&client);
            println!(
                "{lanes} lanes: {weights:?}: {first} and {second}; {} copied, {} came",
                is.reinserted_blocks - before.reinserted_blocks,
                is.promoted_blocks - before.promoted_blocks
            );
            let [light, heavy] = if weights[0] > weights[1] { [second, first] } else { [first, second] };
            match round {
                2 => assert!(first.abs_diff(second) < CACHE_BLOCKS / 8, "{first} and {second} with equal weights"),
                _ => assert!(heavy * 10 > light * 13, "{light} and {heavy} by {weights:?}"),
            }
            assert!(first + second > all * 9 / 10, "{first} and {second}, {all} without weights");
        }
        assert_eq!(of(&client, 0).evicted_below_min + of(&client, 1).evicted_below_min, 0);
        client.leave();
    }
}

/// A volume that asks seldom keeps what it is due beside one that asks often.
#[test]
fn a_busy_volume_takes_no_more_than_its_due_until_the_other_one_sleeps() {
    for lanes in [1, 4] {
        let quiet = || (0..900).map(|nth| nth * 17);
        let missed = [0, 100].map(|weight| {
            let mut client = unchecked(client(5, lanes, Mode::Writearound));
            for origin in 0..2 {
                weigh(&mut client, origin, weight);
            }
            read(&mut client, 0, quiet());
            let mut missed = 0;
            for round in 0..10 {
                random_reads(&mut client, 12_000, round, [0, CACHE_BLOCKS * 6 / 5]);
                missed += read(&mut client, 0, quiet());
            }
            let awake = cached(&client);
            // The quiet volume sleeps.
            random_reads(&mut client, 100_000, 10, [0, CACHE_BLOCKS * 6 / 5]);
            println!("{lanes} lanes, weight {weight}: {missed} missed, {awake:?}; asleep {:?}", cached(&client));
            assert!(of(&client, 0).blocks_cached < 50, "a volume that sleeps keeps {:?}", of(&client, 0));
            client.leave();
            missed
        });
        assert!(missed[0] > 4000, "the busy volume was too weak to show anything: {missed:?}");
        assert!(missed[1] < 100, "{missed:?} of 9,000");
    }
}
