// SPDX-License-Identifier: MIT OR Apache-2.0

use super::load::{FITS, LARGER, PHASES};
use super::*;
use crate::policy;
use crate::zipf::Scatter;

const SMALL: Experiment = Experiment { cache_blocks: 2048, rounds: 12, seed: 7 };

fn run(experiment: &Experiment, case: &'static Case, names: &[&str]) -> Findings {
    let policies: Vec<_> = names.iter().map(|name| policy::by_name(name).expect("a policy of ours")).collect();
    experiment.run(case, &policies, &AtomicU64::new(0))
}

fn all() -> Vec<&'static str> {
    policy::ALL.iter().map(|spec| spec.name).collect()
}

/// The hit ratio of an LRU in the long run: H. Che, Y. Tung, Z. Wang, "Hierarchical Web caching
/// systems", 2002. A block is cached if it was asked for recently. Recently means the time in which
/// as many different blocks are asked for as the cache has room for.
fn che(blocks: u64, data_blocks: u64) -> f64 {
    let weights: Vec<f64> = (1..=data_blocks).map(|rank| (rank as f64).powf(-SKEW)).collect();
    let sum: f64 = weights.iter().sum();
    let there = |weight: &f64, time: f64| 1.0 - (-weight / sum * time).exp();
    let (mut low, mut high) = (0.0, 1e9);
    for _ in 0..100 {
        let time = (low + high) / 2.0;
        let room: f64 = weights.iter().map(|it| there(it, time)).sum();
        if room < blocks as f64 { low = time } else { high = time }
    }
    weights.iter().map(|it| it / sum * there(it, low)).sum()
}

#[test]
fn the_static_optimum_is_what_the_most_popular_blocks_get() {
    let (blocks, reads) = SMALL.draw(&LARGER);
    let mut counts = vec![0_u64; reads.data_blocks as usize];
    blocks.iter().for_each(|block| counts[*block as usize] += 1);
    let scatter = Scatter::new(reads.data_blocks);
    let held: u64 = (0..SMALL.cache_blocks).map(|rank| counts[scatter.place(rank) as usize]).sum();
    let weights: Vec<f64> = (1..=reads.data_blocks).map(|rank| (rank as f64).powf(-SKEW)).collect();
    let by_law = weights[..2048].iter().sum::<f64>() / weights.iter().sum::<f64>();
    assert!((reads.static_optimum - by_law).abs() < 1e-9, "{} {by_law}", reads.static_optimum);
    // 24,576 reads: four standard deviations are less than 0.8 points.
    assert!((held as f64 / blocks.len() as f64 - by_law).abs() < 0.008, "{held} of {}, {by_law}", blocks.len());
    assert!((SMALL.draw(&FITS).1.static_optimum - 1.0).abs() < 1e-9);
}

#[test]
fn compulsory_reads_are_the_different_blocks() {
    let (mut blocks, reads) = SMALL.draw(&LARGER);
    assert_eq!(blocks.len() as u64, SMALL.reads());
    let first = blocks[..SMALL.step() as usize].iter().collect::<std::collections::HashSet<_>>().len();
    assert_eq!(reads.compulsory_blocks[1], first as u64);
    blocks.sort_unstable();
    blocks.dedup();
    assert_eq!(reads.compulsory_blocks.last(), Some(&(blocks.len() as u64)));
    let turnover = reads.turnover().expect("12 rounds are enough for a small cache");
    assert!(reads.compulsory_blocks[turnover - 1] < 2048 && reads.compulsory_blocks[turnover] >= 2048);
}

#[test]
fn a_turnover_is_over_when_as_many_different_blocks_were_asked_for_as_the_cache_has() {
    let (blocks, reads) = SMALL.draw(&PHASES);
    let step = SMALL.step() as usize;
    let different = |from: usize, to: usize| {
        blocks[from * step..to * step].iter().collect::<std::collections::HashSet<_>>().len() as u64
    };
    assert!(reads.turnovers.len() > 20, "{:?}", reads.turnovers);
    for (from, &to) in reads.turnovers.iter().enumerate() {
        assert!(
            different(from, to - 1) < SMALL.cache_blocks && different(from, to) >= SMALL.cache_blocks,
            "{from} {to}"
        );
    }
    assert!(different(reads.turnovers.len(), blocks.len() / step) < SMALL.cache_blocks, "no later one");
}

#[test]
fn the_cache_is_full_of_junk_at_first() {
    let rivals: Vec<&str> = all().into_iter().filter(|name| !name.starts_with("flashfront")).collect();
    for row in run(&SMALL, &FITS, &rivals).rows {
        let (junk, room) = (row.junk_blocks, row.cache_blocks);
        assert!(junk * 100 >= room * 95 && junk <= room, "{}: {junk} of {room}", row.policy);
        assert_eq!(row.points[0], Totals::default());
    }
    for row in run(&SMALL, &FITS, &["lru", "fifo", "clock", "2q", "arc", "lirs", "s3fifo", "sieve", "belady"]).rows {
        assert_eq!((row.junk_blocks, row.cache_blocks), (2048, 2048), "{}", row.policy);
    }
}

#[test]
fn nothing_is_hit_that_was_not_asked_for_before() {
    for case in load::ALL.iter().flat_map(|load| load.cases) {
        let outcome = run(&SMALL, case, &all());
        for row in &outcome.rows {
            let last = row.points[outcome.points()];
            assert_eq!((last.accesses, last.reads), (SMALL.reads(), SMALL.reads()));
            let misses = last.accesses - last.hits;
            // These policies bring neighbours along.
            assert!(
                ["smq", "flashfront_disk"].contains(&row.policy)
                    || misses >= outcome.reads.compulsory_blocks[outcome.points()],
                "{}",
                row.policy
            );
            let hits = outcome.hit_ratio(row, 0, outcome.points());
            assert!((hits - last.hit_ratio()).abs() < 1e-12);
        }
    }
}

/// Junk is older than all else: nothing else needs to go while the data fits.
#[test]
fn what_throws_out_the_oldest_reads_each_block_once_if_all_fit() {
    let outcome = run(&SMALL, &FITS, &["lru", "fifo", "belady"]);
    let last = outcome.points();
    for row in &outcome.rows {
        assert_eq!(row.points[last].origin_read_blocks, outcome.reads.compulsory_blocks[last], "{}", row.policy);
        assert!((outcome.hit_ratio(row, 0, last) - outcome.unlimited_hit_ratio(0, last)).abs() < 1e-12);
    }
}

#[test]
fn an_lru_hits_what_theory_says() {
    let long = Experiment { cache_blocks: 1024, rounds: 64, seed: 1 };
    let outcome = run(&long, &LARGER, &["lru"]);
    let found = outcome.hit_ratio(&outcome.rows[0], outcome.end_of_round(24), outcome.end_of_round(64));
    let expected = che(1024, 12 * 1024);
    // 40,960 reads, of which a sixth miss: four standard deviations are 0.75 points.
    assert!((found - expected).abs() < 0.0075, "{found} {expected}");
    assert!(found < outcome.reads.static_optimum - 0.02);
}

#[test]
fn who_knows_the_future_is_the_best() {
    let outcome = run(&SMALL, &LARGER, &all());
    let last = outcome.points();
    let hits = |name: &str| outcome.rows.iter().find(|row| row.policy == name).map(|row| row.points[last].hits);
    for name in ["lru", "arc", "s3fifo", "wtinylfu", "sieve"] {
        assert!(hits("belady") > hits(name), "{name}");
    }
    assert!(outcome.after_turnover().is_some_and(|(from, to)| from + 1 == to && to <= last));
}

#[test]
fn the_same_seed_gives_the_same_whoever_else_takes_part() {
    let together = run(&SMALL, &LARGER, &all());
    let alone = run(&SMALL, &LARGER, &["arc"]);
    let again = together.rows.iter().find(|row| row.policy == "arc").expect("all take part");
    assert_eq!(again.points, alone.rows[0].points);
    let other = run(&Experiment { seed: 8, ..SMALL }, &LARGER, &["arc"]);
    assert_ne!(other.rows[0].points, alone.rows[0].points);
}
