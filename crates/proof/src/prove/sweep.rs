// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the crash sweep on all cores. Each core takes every nth event of every workload.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use flashfront_proof::panics;
use flashfront_proof::sweep::{Point, Share, Swept, WORKLOADS, Workload, events, reproduce, sweep};

use super::{USAGE, interrupted, on_all_cores, one_line, seconds_left};

/// Violations that are printed; the others are counted.
const SHOWN_MAX: usize = 20;

pub(crate) fn main(args: &[&str]) -> Result<bool, String> {
    panics::keep();
    match args {
        [] => all(|_| true),
        ["--workload", name] if WORKLOADS.iter().any(|it| it.name == *name) => all(|it| it.name == *name),
        ["--objects", rest @ ..] => super::sweep_objects::main(rest),
        ["--point", point] => one(&point.parse()?),
        _ => Err(USAGE.to_owned()),
    }
}

fn one(point: &Point) -> Result<bool, String> {
    let judged = reproduce(point);
    if let Err(violation) = &judged {
        println!("{point}: {}", one_line(violation));
    }
    println!("sweep: 1 crash points, 1 fates, {} violations", u64::from(judged.is_err()));
    Ok(judged.is_ok())
}

fn all(chosen: impl Fn(&Workload) -> bool + Sync) -> Result<bool, String> {
    let stop = interrupted()?;
    let counted = panics::caught(|| WORKLOADS.iter().filter(|it| chosen(it)).map(events).sum::<u64>());
    let all = counted.map_err(|said| format!("a workload goes wrong before any power cut: {said}"))?;
    let done = AtomicU64::new(0);
    let shares = on_all_cores(
        |nth, of| {
            let mut outcome = Swept::default();
            for workload in WORKLOADS.iter().filter(|it| chosen(it)) {
                outcome.add(sweep(workload, Share { of, nth }, &mut |_| {
                    done.fetch_add(1, Ordering::Relaxed);
                    if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                }));
            }
            outcome
        },
        |elapsed| {
            let done = done.load(Ordering::Relaxed);
            format!("sweep: {done} of {all} events cut, about {} s left", seconds_left(elapsed, done, all))
        },
    );
    let mut outcome = Swept::default();
    shares.into_iter().for_each(|share| outcome.add(share));
    for (point, violation) in outcome.violations.iter().take(SHOWN_MAX) {
        println!("FAILED: cargo x sweep --point {point}: {}", one_line(violation));
    }
    let violations = outcome.violations.len();
    println!("sweep: {} crash points, {} fates, {violations} violations", outcome.points, outcome.fates);
    Ok(violations == 0)
}
