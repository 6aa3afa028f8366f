// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the lives of volumes in an object store on all cores: fresh seeds for some seconds, or one
//! seed. Or it plants each bug, and demands that it is caught.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flashfront_proof::objects::{Lived, live};
use flashfront_proof::panics;

use super::{USAGE, interrupted, on_all_cores, one_line};

/// A seed in this many is lived twice, to see that both lives are the same.
const TWICE_EVERY: u64 = 8;
const SECONDS: u64 = 60;

#[derive(Default)]
struct Sum {
    seeds: u64,
    lived: Lived,
    violations: u64,
}

impl Sum {
    fn add(&mut self, one: &Lived) {
        let sum = &mut self.lived;
        sum.operations += one.operations;
        sum.writers += one.writers;
        sum.faults += one.faults;
        sum.looks += one.looks;
        sum.snapshots += one.snapshots;
        sum.deleted += one.deleted;
        sum.virtual_ms += one.virtual_ms;
    }

    fn told(&self) -> String {
        let Lived { operations, writers, faults, looks, snapshots, deleted, .. } = self.lived;
        format!(
            "torture --objects: {} seeds, {operations} operations, {writers} writers, {faults} faults, {looks} looks, \
             {snapshots} snapshots, {deleted} objects deleted, {} violations",
            self.seeds, self.violations
        )
    }
}

pub(crate) fn main(args: &[&str]) -> Result<bool, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("`{text}` is no number"));
    let (mut seconds, mut seed) = (SECONDS, None);
    match args {
        ["--canaries"] => return canaries(),
        [] => {}
        ["--seconds", value] => seconds = number(value)?,
        ["--seed", value] => seed = Some(number(value)?),
        _ => return Err(USAGE.to_owned()),
    }
    panics::keep();
    let stop = interrupted()?;
    let fresh = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_millis() as u64);
    let first = seed.unwrap_or(fresh);
    let next = AtomicU64::new(first);
    let end = Instant::now() + Duration::from_secs(seconds);
    let sum = Mutex::new(Sum::default());
    let lock = || sum.lock().expect("nobody panics while counting");
    on_all_cores(
        |_, _| {
            loop {
                let this = next.fetch_add(1, Ordering::SeqCst);
                let is_over = seed.map_or(Instant::now() >= end, |seed| this > seed);
                if is_over || stop.load(Ordering::Relaxed) {
                    return;
                }
                let lived = life(this);
                let mut sum = lock();
                sum.seeds += 1;
                match lived {
                    Ok(lived) => sum.add(&lived),
                    Err(failure) => {
                        sum.violations += 1;
                        drop(sum);
                        println!("FAILED: cargo x torture --objects --seed {this}: {}", one_line(&failure));
                    }
                }
            }
        },
        |elapsed| format!("{}; {:.0} s left", lock().told(), (seconds as f64 - elapsed).max(0.0)),
    );
    let sum = lock();
    println!("seeds from {first}; {} hours of virtual time", sum.lived.virtual_ms / 3_600_000);
    println!("{}", sum.told());
    Ok(sum.violations == 0)
}

fn life(seed: u64) -> Result<Lived, String> {
    let lived = live(seed)?;
    if seed.is_multiple_of(TWICE_EVERY) {
        let again = live(seed)?;
        if again != lived {
            return Err(format!("the same seed gave two lives: {lived:?} and {again:?}"));
        }
    }
    Ok(lived)
}

#[cfg(not(feature = "canary"))]
fn canaries() -> Result<bool, String> {
    Err("built without the feature `canary`; run `cargo x torture --canaries --objects`".to_owned())
}

/// The workloads of the sweep that must catch a planted bug. Nothing harms bytes there, so
/// `checksum-ignored` is not among them. Torture alone catches `page-unsent` and `page-forgotten`.
#[cfg(feature = "canary")]
const SWEPT: [(&str, &str); 9] = [
    ("manifest-early", "flush"),
    ("flush-torn", "stream"),
    ("live-deleted", "flush"),
    ("fence-ignored", "overtaken"),
    ("snapshot-forgotten", "snapshot"),
    ("changes-lost", "pages"),
    ("uses-twice", "pages"),
    ("covered-forgotten", "beside"),
    ("changes-stale", "beside"),
];

/// Plants each bug, and demands that a life sees it which is innocent without it. The sweep must
/// see it, too.
#[cfg(feature = "canary")]
pub(crate) fn canaries() -> Result<bool, String> {
    use flashfront_proof::objects::canary::{Canary, plant};

    const SEEDS_MAX: u64 = 4000;
    panics::keep();
    let mut caught = 0;
    for (canary, name) in Canary::ALL {
        plant(Some(*canary));
        let found = (0..SEEDS_MAX).find_map(|seed| Some((seed, live(seed).err()?)));
        let workload = SWEPT.iter().find(|(it, _)| it == name).map(|(_, workload)| *workload);
        let swept = workload.map(|workload| (workload, super::sweep_objects::first_violation(workload)));
        plant(None);
        match found {
            Some((seed, failure)) if live(seed).is_ok() => {
                let short: String = one_line(&failure).chars().take(120).collect();
                println!("{name}: caught by seed {seed}: {short}");
                match swept {
                    None => caught += 1,
                    Some((_, Some((point, _)))) => {
                        caught += 1;
                        println!("{name}: caught by the sweep at {point}");
                    }
                    Some((workload, None)) => println!("{name}: NOT CAUGHT by the sweep of {workload}"),
                }
            }
            Some((seed, _)) => println!("FAILED: cargo x torture --objects --seed {seed}, without any canary"),
            None => println!("{name}: NOT CAUGHT by {SEEDS_MAX} seeds"),
        }
    }
    println!("canaries of objects: {caught} of {} caught", Canary::ALL.len());
    Ok(caught == Canary::ALL.len())
}
