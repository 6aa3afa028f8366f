// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x ci`: every step of CI, and at the end what each took, what was skipped, what failed.
//!
//! `./test` installs the tools that tests need, and then calls this. A step that fails keeps no
//! other step from running. `--quick` is for a contributor between two edits: it builds no release
//! binary.
//!
//! Many tests wait for devices and clients, while others use every processor they get. So steps of
//! the two tracks run side by side (`ci/tracks.rs`); what each prints is never mixed with the
//! other's.

mod said;
mod steps;
mod tracks;

use std::time::Duration;

use crate::run::Failed;
use said::Said;
use steps::{QUICK, STEPS};

/// How one step ended.
struct Ended {
    name: &'static str,
    took: Duration,
    passed: bool,
    said: Said,
}

/// Runs all steps and sums them up. `--list` prints them instead, in order, with their tracks.
pub(crate) fn ci(args: &[String]) -> Result<(), Failed> {
    let (mut list, mut steps) = (false, &STEPS[..]);
    for arg in args {
        match arg.as_str() {
            "--list" => list = true,
            "--quick" => steps = &QUICK,
            other => return Err(Failed::Usage(format!("unknown argument {other}: there are --quick and --list"))),
        }
    }
    if list {
        for step in steps {
            println!("{}\t{}\tcargo {}", step.name, step.track.name(), step.cargo.join(" "));
        }
        return Ok(());
    }
    let ended = tracks::run(steps)?;
    summary(&ended)
}

/// Prints what each step took, what was skipped, and what failed.
fn summary(ended: &[Ended]) -> Result<(), Failed> {
    println!("\n== summary");
    for step in ended {
        let result = if step.passed { "passed" } else { "FAILED" };
        println!("{result} {:5} s  {}", step.took.as_secs(), step.name);
    }
    let skipped: Vec<&String> = ended.iter().flat_map(|step| &step.said.skipped).collect();
    if !skipped.is_empty() {
        println!("skipped on this machine ({}):", skipped.len());
        skipped.iter().for_each(|what| println!("  {what}"));
    }
    let failures: Vec<String> = ended
        .iter()
        .filter(|step| !step.passed)
        .flat_map(|step| step.said.what_failed().into_iter().map(move |what| format!("{}: {what}", step.name)))
        .collect();
    if failures.is_empty() {
        println!("all passed");
        return Ok(());
    }
    println!("FAILED ({}):", failures.len());
    failures.iter().for_each(|what| println!("  {what}"));
    Err(Failed::Findings(failures.len()))
}
