// SPDX-License-Identifier: MIT OR Apache-2.0
//! A few random lives are lived, always the same ones. `cargo x torture` lives fresh ones by the
//! thousand.

use flashfront_proof::torture::{Change, Extra, Plan, live, run};

#[test]
fn random_lives() {
    for seed in 0..24 {
        let outcome = live(seed, &[]).unwrap_or_else(|failure| panic!("cargo x torture --seed {seed}: {failure}"));
        assert!(outcome.steps > 100 && outcome.answers > 0, "{outcome:?}");
    }
}

/// Lanes that work apart do the same, byte for byte, whoever does their work: the engine's thread,
/// or helpers alone.
#[test]
fn threads_change_no_effect() {
    let mut turns = Vec::new();
    for seed in (0..32).filter(|seed| Plan::from_seed(*seed).spec.lanes > 1) {
        let with = |helpers| {
            let mut plan = Plan::from_seed(seed);
            // No lane works apart while messages are on their way.
            (plan.spec.apart, plan.spec.by_mail, plan.spec.batches) = (helpers, false, true);
            run(plan, seed)
        };
        let alone = with(Some(0));
        assert_eq!(alone, with(Some(1)), "seed {seed}");
        assert_eq!(alone, with(Some(3)), "seed {seed}");
        turns.push(alone.turns_apart);
    }
    assert!(turns.iter().filter(|turns| **turns > 50).count() > 4, "lanes hardly ever worked apart: {turns:?} times");
}

/// Messages between lanes and the coordinator may come in any order that threads can produce. Each
/// order keeps every promise, another seed is another order, and an order comes again byte by byte.
#[test]
fn any_order_of_messages_keeps_the_promises() {
    let mut orders = 0;
    for seed in (0..12).filter(|seed| Plan::from_seed(*seed).spec.lanes > 1) {
        let by_mail = |order: u64| {
            let mut plan = Plan::from_seed(seed);
            (plan.spec.apart, plan.spec.by_mail, plan.spec.order) = (None, true, order);
            (plan.requests, plan.generations) = (plan.requests.min(30), plan.generations.min(2));
            run(plan, seed)
        };
        let first = by_mail(1);
        assert_eq!(first, by_mail(1), "seed {seed}");
        orders += u32::from(first.hash != by_mail(2).hash);
    }
    assert!(orders > 2, "hardly any life had a second order: {orders}");
}

/// What a reproducing line says is what is lived.
#[test]
fn a_changed_plan_is_another_life() {
    let changes: Vec<Change> = ["requests=9", "clients=1", "generations=1"].map(|it| it.parse().unwrap()).to_vec();
    let (small, whole) = (live(3, &changes).unwrap(), live(3, &[]).unwrap());
    assert!(small.answers < whole.answers && small == live(3, &changes).unwrap());
    assert!("requests".parse::<Change>().is_err() && "clowns=3".parse::<Change>().unwrap_err().contains("generations"));
    let text: Vec<String> = changes.iter().map(Change::to_string).collect();
    assert_eq!(text, ["requests=9", "clients=1", "generations=1"]);
}

/// Each extra is some lives', most lives have none, and what takes them away leaves none.
#[test]
fn extras_are_the_minority() {
    let mut plans: Vec<Plan> = (0..200).map(Plan::from_seed).collect();
    assert!(plans.iter().filter(|plan| plan.extras.is_empty()).count() > 100);
    for (extra, name) in Extra::ALL {
        let with = plans.iter_mut().filter(|plan| plan.has(extra)).map(|plan| {
            plan.change(format!("{name}=0").parse().unwrap());
            assert!(!plan.has(extra), "{name}=0 changes nothing");
        });
        assert!(with.count() > 4, "hardly any life has {name}");
    }
    assert!(plans.iter().all(|plan| plan.extras.is_empty()));
}

/// Lives that once failed, each for the reason beside it; there was neither a RAM front nor a
/// mirror then, nor an extra.
#[test]
fn what_failed_once() {
    let as_then: Vec<Change> = ["ram-front=0", "mirror=0", "read-around=0", "extras=0", "ordered=0", "breaks=0"]
        .map(|it| it.parse().unwrap())
        .to_vec();
    for (seed, why) in [
        (20, "a long write before a small dirty limit waited for a destage that never began"),
        (60, "reclaim trusted a sound but old header, left by a lost write, and freed a segment in use"),
        (78, "writes waited for room for ever where every segment held a lost block"),
        (236, "a destage that failed at the end of a sweep was not tried again before the next request"),
        (1_795_248_388_664, "a direct write dropped a lost block before the origin had flushed the new one"),
        (1_795_248_388_692, "the same, in another order"),
        (
            1_795_253_232_573,
            "a direct write recorded a lost block in its range as dropped, before the origin was written",
        ),
        (1_795_254_042_000, "a stop that had given up on a refusing origin waited for it again, and never ended"),
    ] {
        live(seed, &as_then).unwrap_or_else(|failure| panic!("cargo x torture --seed {seed} ({why}): {failure}"));
    }
}

/// A life in which a cache shrinks. Clients were not to begin segments of the end, and few were
/// free before it. Reclaim read dirty blocks for ever that it found no room for.
#[test]
fn nothing_is_read_for_ever_while_an_end_is_shut() {
    let (seed, shares) = (1_796_070_994_796, ["shares=1".parse().unwrap()]);
    live(seed, &shares).unwrap_or_else(|failure| panic!("cargo x torture --seed {seed} --with shares=1: {failure}"));
}

/// A life with connections to origins that break. Reclaim copied the blocks of a smallest part for
/// ever, beside dirty blocks whose origin was away.
#[test]
fn a_smallest_part_keeps_nobody_waiting() {
    let (seed, breaks) = (1_795_981_488_984, ["breaks=30".parse().unwrap()]);
    live(seed, &breaks).unwrap_or_else(|failure| panic!("cargo x torture --seed {seed} --with breaks=30: {failure}"));
}
