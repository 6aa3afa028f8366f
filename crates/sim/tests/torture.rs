// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random lives of a cache. `FLASHFRONT_SEEDS=N` lives N of them, `FLASHFRONT_SEED=S` only that one.

use flashfront_sim::torture::{Plan, run};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn random_lives() {
    let seeds = match number("FLASHFRONT_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("FLASHFRONT_FIRST_SEED").unwrap_or(0);
            first..first + number("FLASHFRONT_SEEDS").unwrap_or(100)
        }
    };
    let (mut steps, mut failed) = (0, Vec::new());
    for seed in seeds {
        let plan = Plan::from_seed(seed);
        match std::panic::catch_unwind(|| run(plan, seed)) {
            Ok(outcome) => steps += outcome.steps,
            Err(_) => {
                eprintln!("FAILED: FLASHFRONT_SEED={seed} cargo test -p flashfront-sim --test torture");
                failed.push(seed);
            }
        }
    }
    eprintln!("{steps} inputs");
    assert!(failed.is_empty(), "failed seeds: {failed:?}");
}
