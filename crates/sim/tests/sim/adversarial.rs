// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads that are made to hurt our policy run beside an LRU over the same requests.

use std::sync::atomic::AtomicU64;

use flashfront_sim::adapt::load::{self, Case};
use flashfront_sim::adapt::{Experiment, Findings};
use flashfront_sim::policy;

const CACHE_BLOCKS: u64 = 1 << 14;

fn beside_lru(case: &'static Case, seed: u64) -> Findings {
    let policies = ["flashfront", "lru"].map(|name| policy::by_name(name).expect("a policy"));
    Experiment { cache_blocks: CACHE_BLOCKS, rounds: 24, seed }.run(case, &policies, &AtomicU64::new(0))
}

/// By how many points ours may be under LRU: over any turnover, and in any round. The promise is 2
/// over a turnover for all. Of a round it is what these two seeds have at this size, with a little
/// room. The comments have what was measured with seeds 1 to 3 at 4,096, 16,384 and 65,536 blocks
/// over a turnover, and in the worst round.
const BOUNDS: &[(&Case, Option<f64>, f64)] = &[
    // 1.5 in round 1.
    (&load::FITS, None, 1.5),
    // 0.4 to 0.6; 1.8.
    (&load::LARGER, Some(1.0), 2.0),
    // 97 in round 2, and 0 from round 3 on: each block is missed twice. Missed by far, for good: to
    // have it sooner a scan would have to be written to flash.
    (&load::LOOP_FITS, None, 98.0),
    (&load::LOOP_LARGER, Some(0.0), 0.0),
    // 0.5 to 0.6; 2.7 in the first round. 27 when the gate was never held open, and 46 in the round
    // of a change.
    (&load::PHASES, Some(0.8), 3.0),
    // 1.1 to 1.5 when it leaves the junk behind; ahead of LRU from round 3 on.
    (&load::SCAN_AND_HOT, Some(2.0), 2.5),
    // 0.4 to 1.1; 1.6.
    (&load::HOT_JUNK, Some(1.2), 2.0),
];

#[test]
fn every_load_stays_within_its_bound_against_lru() {
    let cases: Vec<&str> = load::ALL.iter().flat_map(|load| load.cases).map(|case| case.name).collect();
    assert_eq!(BOUNDS.iter().map(|bound| bound.0.name).collect::<Vec<_>>(), cases, "a bound for each");
    for (case, over_turnover, in_round) in BOUNDS {
        for seed in [1, 2] {
            let outcome = beside_lru(case, seed);
            let ours = &outcome.rows[0];
            let over = outcome.worst_turnover(ours).map(|below| below * 100.0);
            let (round, below) = outcome.worst_round(ours).expect("an LRU takes part");
            let found = format!("{}: {over:.1?} points under LRU, {:.1} in round {round}", case.name, below * 100.0);
            println!("{found}");
            assert_eq!(over.is_some(), over_turnover.is_some(), "{found}");
            assert!(over <= *over_turnover && below * 100.0 <= *in_round, "{found}");
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
    // Half of the reads are of the scan, 6 caches full of it; 0.14 is written.
    let written = ours.flash_blocks_written() as f64 / CACHE_BLOCKS as f64;
    assert!(written < 0.3, "{written:.2} caches full were written");
    assert!(ours.hits > lru.hits + lru.hits / 10, "{} hits, LRU {}", ours.hits, lru.hits);
}

#[test]
fn of_a_loop_that_is_a_little_too_large_ours_keeps_most() {
    let outcome = beside_lru(&load::LOOP_LARGER, 1);
    let [ours, lru] = [0, 1].map(|row| outcome.hit_ratio(&outcome.rows[row], 4 * 8, outcome.points()));
    assert!(ours > 0.7 && lru == 0.0, "{ours} {lru}");
}
