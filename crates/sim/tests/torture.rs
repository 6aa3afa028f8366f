// SPDX-License-Identifier: MIT OR Apache-2.0
//! A few random lives, always the same ones: `cargo x torture` lives fresh ones by the thousand.

use flashfront_sim::torture::{Change, live, shrink};

#[test]
fn random_lives() {
    for seed in 0..24 {
        let outcome = live(seed, &[]).unwrap_or_else(|failure| panic!("cargo x torture --seed {seed}: {failure}"));
        assert!(outcome.steps > 100 && outcome.answers > 0, "{outcome:?}");
    }
}

/// A life that fails is made smaller, and the smaller one still fails.
#[test]
fn a_changed_plan_is_another_life() {
    let changes: Vec<Change> = ["requests=9", "clients=1", "generations=1"].map(|it| it.parse().unwrap()).to_vec();
    let (small, whole) = (live(3, &changes).unwrap(), live(3, &[]).unwrap());
    assert!(small.answers < whole.answers && small == live(3, &changes).unwrap());
    assert!("requests".parse::<Change>().is_err() && "clowns=3".parse::<Change>().unwrap_err().contains("generations"));
    let text: Vec<String> = changes.iter().map(Change::to_string).collect();
    assert_eq!(text, ["requests=9", "clients=1", "generations=1"]);
    let _ = shrink;
}
