// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads that are made to hurt our policy, beside an LRU over the same requests.

use std::sync::atomic::AtomicU64;

use flashfront_sim::adapt::load::{self, Case};
use flashfront_sim::adapt::{Experiment, Outcome};
use flashfront_sim::policy;

const CACHE_BLOCKS: u64 = 1 << 14;

fn beside_lru(case: &'static Case, seed: u64) -> Outcome {
    let policies = ["flashfront", "lru"].map(|name| policy::by_name(name).expect("a policy"));
    Experiment { cache_blocks: CACHE_BLOCKS, rounds: 24, seed }.run(case, &policies, &AtomicU64::new(0))
}

/// By how many points ours may be under LRU in any round. The aim is 2 for all; the rest is by how much it is missed, with a little
/// room for other seeds (measured with seeds 1 and 2 at 4,096, 16,384 and 65,536 blocks).
const BOUNDS: &[(&Case, f64)] = &[
    (&load::FITS, 0.5),
    (&load::LARGER, 1.5),
    // 75.2 in round 2, and 0 from round 3 on: each block is missed twice. Missed by far, for good: to have it sooner a scan
    // would have to be written to flash.
    (&load::LOOP_FITS, 80.0),
    (&load::LOOP_LARGER, 0.0),
    // 10.6 to 11.0 in a round of change, 46 when the gate was never held open: by the time that the duel knows, a fifth of the data was
    // declined.
    (&load::PHASES, 13.0),
    // 4.1 to 5.2 in round 2, when it leaves the junk behind; ahead of LRU from round 3 on.
    (&load::SCAN_AND_HOT, 7.0),
    // 2.4 to 3.8.
    (&load::HOT_JUNK, 4.5),
];

#[test]
fn every_load_stays_within_its_bound_against_lru() {
    let cases: Vec<&str> = load::ALL.iter().flat_map(|load| load.cases).map(|case| case.name).collect();
    assert_eq!(BOUNDS.iter().map(|bound| bound.0.name).collect::<Vec<_>>(), cases, "a bound for each");
    for (case, bound) in BOUNDS {
        for seed in [1, 2] {
            let outcome = beside_lru(case, seed);
            let (round, below) = outcome.worst_round(&outcome.rows[0]).expect("an LRU takes part");
            println!("{}: {:.1} points under LRU in round {round}", case.name, below * 100.0);
            assert!(below * 100.0 <= *bound, "{}: {:.1} points under LRU in round {round}", case.name, below * 100.0);
        }
    }
}

#[test]
fn a_scan_beside_hot_data_is_hardly_written_to_flash_once_it_is_known() {
    let outcome = beside_lru(&load::SCAN_AND_HOT, 1);
    let [ours, lru] = [0, 1].map(|row| {
        let [from, to] = [12, 24].map(|round| outcome.rows[row].points[outcome.end_of_round(round)]);
        to - from
    });
    // Half of the reads are of the scan, 6 caches full of it; 1.0 is written, nearly all of it hot blocks once more.
    let written = ours.flash_blocks_written() as f64 / CACHE_BLOCKS as f64;
    assert!(written < 1.5, "{written:.2} caches full were written");
    assert!(ours.hits > lru.hits + lru.hits / 10, "{} hits, LRU {}", ours.hits, lru.hits);
}

#[test]
fn of_a_loop_that_is_a_little_too_large_ours_keeps_most() {
    let outcome = beside_lru(&load::LOOP_LARGER, 1);
    let [ours, lru] = [0, 1].map(|row| outcome.hit_ratio(&outcome.rows[row], 4 * 8, outcome.points()));
    assert!(ours > 0.7 && lru == 0.0, "{ours} {lru}");
}
