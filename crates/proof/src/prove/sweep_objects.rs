// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the crash sweep of volumes in an object store on all cores. Each core takes every nth event
//! of every workload.

use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "canary")]
use flashfront_proof::objects::sweep::Point;
use flashfront_proof::objects::sweep::{Swept, VARIANTS, WORKLOADS, Workload, named, reproduce, sweep};
use flashfront_proof::panics;
use flashfront_proof::sweep::Share;

use super::{USAGE, interrupted, on_all_cores, one_line, seconds_left};

/// Violations that are printed; the others are counted.
const SHOWN_MAX: usize = 20;

pub(crate) fn main(args: &[&str]) -> Result<bool, String> {
    panics::keep();
    match args {
        [] => all(|_| true),
        ["--workload", name] if named(name).is_some() => all(|it| it.name == *name),
        ["--point", point] => {
            let judged = reproduce(&point.parse()?);
            if let Err(violation) = &judged {
                println!("{point}: {}", one_line(violation));
            }
            println!("sweep --objects: 1 death, {} violations", u64::from(judged.is_err()));
            Ok(judged.is_ok())
        }
        _ => Err(USAGE.to_owned()),
    }
}

/// The first violation that the sweep of a workload finds.
#[cfg(feature = "canary")]
pub(crate) fn first_violation(workload: &str) -> Option<(Point, String)> {
    let workload = named(workload).expect("bug: a planted bug names its workload");
    let whole = Share { of: 1, nth: 0 };
    let mut violations = (0..VARIANTS).flat_map(|it| sweep(workload, it, whole, &|found| found == 0).violations);
    violations.next()
}

fn all(chosen: impl Fn(&Workload) -> bool + Sync) -> Result<bool, String> {
    let stop = interrupted()?;
    let parts: Vec<(&Workload, usize)> = WORKLOADS
        .iter()
        .filter(|it| chosen(it))
        .flat_map(|it| (0..VARIANTS).map(move |variant| (it, variant)))
        .collect();
    let done = AtomicU64::new(0);
    let shares = on_all_cores(
        |nth, of| {
            let goes_on = |_| !stop.load(Ordering::Relaxed);
            let mut outcome = Swept::default();
            for (workload, variant) in &parts {
                outcome.add(sweep(workload, *variant, Share { of, nth }, &goes_on));
                done.fetch_add(1, Ordering::Relaxed);
            }
            outcome
        },
        |elapsed| {
            let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
            let (done, all) = (done.load(Ordering::Relaxed), cores * parts.len() as u64);
            format!("sweep --objects: {done} parts done, about {} s left", seconds_left(elapsed, done, all))
        },
    );
    let mut outcome = Swept::default();
    shares.into_iter().for_each(|share| outcome.add(share));
    for (point, violation) in outcome.violations.iter().take(SHOWN_MAX) {
        println!("FAILED: cargo x sweep --objects --point {point}: {}", one_line(violation));
    }
    let Swept { points, deaths, looks, violations } = outcome;
    println!("sweep --objects: {points} points, {deaths} deaths, {looks} looks, {} violations", violations.len());
    Ok(violations.is_empty())
}
