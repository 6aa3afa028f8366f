// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x soak --hours N`: the long versions of the proofs, in rounds, until the time is over.
//!
//! Each round is torture with fresh seeds, repair with fresh seeds, and fuzzing of every
//! target, guided by coverage where that works. The crash sweep has no seed: it runs once, at
//! the beginning. A finding is printed with the command that repeats it, and the rounds go on.
//! Ctrl-C ends the soak at once; what the fuzzer has learned stays in `target/fuzz/corpus`.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::fuzz;
use crate::run::{Failed, cargo, run};

const TORTURE_SECONDS: u64 = 900;
const FUZZ_SECONDS: u64 = 60;
/// The repair test takes a third of a second for each of its seeds.
const REPAIR_SEEDS: u64 = 1000;
const REPAIR: &str = "repair_of_several_damages_serves_only_what_is_right";

pub(crate) fn soak(args: &[String]) -> Result<(), Failed> {
    let hours = match args {
        [option, hours] if option == "--hours" => hours
            .parse::<f64>()
            .ok()
            .filter(|hours| (0.0..=10_000.0).contains(hours))
            .ok_or_else(|| Failed::Usage(format!("`{hours}` is no number of hours from 0 to 10000")))?,
        _ => return Err(Failed::Usage("usage: cargo x soak --hours N".to_owned())),
    };
    let (begin, all) = (Instant::now(), Duration::from_secs_f64(hours * 3600.0));
    let mut findings = Vec::new();
    let mut rounds = 0_u64;
    let mut keep = |what: &str, result: Result<(), Failed>| {
        if let Err(failed) = result {
            println!("soak: FAILED: {what}: {failed}");
            findings.push(what.to_owned());
        }
    };
    keep("sweep", run(&mut cargo(["x", "sweep"])));
    keep("sweep of objects", run(&mut cargo(["x", "sweep", "--objects"])));
    loop {
        let left = all.saturating_sub(begin.elapsed());
        if rounds > 0 && left.is_zero() {
            break;
        }
        rounds += 1;
        println!("soak: round {rounds}, {} to go", told(left));
        // The last round is as long as the time that is left, but each part of it runs for a while.
        let seconds = TORTURE_SECONDS.min(left.as_secs() / 2).max(10);
        keep("torture", run(&mut cargo(["x", "torture", "--seconds", &seconds.to_string()])));
        let first = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let mut repair = cargo(["test", "--package", "flashfront-serve", "--lib", REPAIR]);
        repair.env("REPAIR_SEED", first.to_string());
        repair.env("REPAIR_SEEDS", REPAIR_SEEDS.min(left.as_secs()).max(25).to_string());
        keep("repair", run(&mut repair));
        let seconds = FUZZ_SECONDS.min(left.as_secs() / 20).max(5);
        keep("fuzz", fuzz::fuzz(&["--seconds".to_owned(), seconds.to_string()]));
    }
    println!("soak: {rounds} rounds in {}, {} findings", told(begin.elapsed()), findings.len());
    if findings.is_empty() { Ok(()) } else { Err(Failed::Findings(findings.len())) }
}

/// A span of time for people.
fn told(time: Duration) -> String {
    let minutes = time.as_secs() / 60;
    format!("{} h {:02} min", minutes / 60, minutes % 60)
}
