// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs torture on all cores: fresh seeds for some seconds, or one seed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flashfront_proof::panics;
use flashfront_proof::torture::{Change, Lived, live, shrink};

use super::{USAGE, interrupted, on_all_cores, one_line};

/// The torture lives one seed in this many twice, to see that both lives are the same.
const TWICE_EVERY: u64 = 8;
const SECONDS: u64 = 60;

/// The sum of all lives.
#[derive(Default)]
struct Sum {
    seeds: u64,
    operations: u64,
    crashes: u64,
    faults: u64,
    virtual_ns: u128,
    refused: u64,
    violations: u64,
}

impl Sum {
    fn add(&mut self, outcome: &Lived) {
        self.operations += outcome.answers;
        self.crashes += outcome.crashes;
        self.faults += outcome.faults;
        self.virtual_ns += u128::from(outcome.virtual_ns);
        self.refused += u64::from(outcome.refused);
    }
}

struct Asked {
    seconds: u64,
    seed: Option<u64>,
    changes: Vec<Change>,
}

fn asked(args: &[&str]) -> Result<Asked, String> {
    let mut asked = Asked { seconds: SECONDS, seed: None, changes: Vec::new() };
    let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is no number"));
    let mut pairs = args.chunks_exact(2);
    for pair in &mut pairs {
        match pair {
            ["--seconds", value] => asked.seconds = number(value)?,
            ["--seed", value] => asked.seed = Some(number(value)?),
            ["--with", value] => asked.changes = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
            _ => return Err(USAGE.to_owned()),
        }
    }
    if pairs.remainder().is_empty() { Ok(asked) } else { Err(USAGE.to_owned()) }
}

pub(crate) fn main(args: &[&str]) -> Result<bool, String> {
    let asked = asked(args)?;
    panics::keep();
    let stop = interrupted()?;
    let fresh = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_millis() as u64);
    let first = asked.seed.unwrap_or(fresh);
    let next = AtomicU64::new(first);
    let last = if asked.seed.is_some() { first } else { u64::MAX };
    let end = Instant::now() + Duration::from_secs(asked.seconds);
    let sum = Mutex::new(Sum::default());
    let lock = || sum.lock().expect("nobody panics while counting");
    on_all_cores(
        |_, _| {
            loop {
                let seed = next.fetch_add(1, Ordering::SeqCst);
                let over = asked.seed.is_none() && Instant::now() >= end;
                if seed > last || over || stop.load(Ordering::Relaxed) {
                    return;
                }
                let lived = life(seed, &asked.changes);
                let mut sum = lock();
                sum.seeds += 1;
                match lived {
                    Ok(outcome) => sum.add(&outcome),
                    Err(failure) => {
                        sum.violations += 1;
                        drop(sum);
                        report(seed, &asked.changes, failure);
                    }
                }
            }
        },
        |elapsed| {
            let (sum, left) = (lock(), asked.seconds as f64 - elapsed);
            format!(
                "torture: {} seeds, {} operations, {} crashes, {} faults, {} violations; {:.0} s left",
                sum.seeds,
                sum.operations,
                sum.crashes,
                sum.faults,
                sum.violations,
                left.max(0.0)
            )
        },
    );
    let sum = lock();
    let hours = sum.virtual_ns / 3_600_000_000_000;
    println!(
        "seeds from {first}; {hours} hours of virtual time; {} caches refused after their device had lied",
        sum.refused
    );
    println!(
        "torture: {} seeds, {} operations, {} crashes, {} faults, {} violations",
        sum.seeds, sum.operations, sum.crashes, sum.faults, sum.violations
    );
    Ok(sum.violations == 0)
}

/// Lives a seed, some of them twice.
fn life(seed: u64, changes: &[Change]) -> Result<Lived, String> {
    let outcome = live(seed, changes)?;
    if seed.is_multiple_of(TWICE_EVERY) {
        let again = live(seed, changes)?;
        if again != outcome {
            return Err(format!("the same seed gave two lives: {outcome:?} and {again:?}"));
        }
    }
    Ok(outcome)
}

fn report(seed: u64, changes: &[Change], failure: String) {
    println!("FAILED: cargo x torture --seed {seed}: {}", one_line(&failure));
    let (changes, failure) = shrink(seed, changes.to_vec(), failure);
    if !changes.is_empty() {
        let with: Vec<String> = changes.iter().map(Change::to_string).collect();
        println!("smaller: cargo x torture --seed {seed} --with {}: {}", with.join(","), one_line(&failure));
    }
}
