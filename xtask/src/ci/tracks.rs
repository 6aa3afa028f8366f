// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs steps: those that run alone one after the other, then both tracks side by side.
//!
//! The first track prints as it goes. A step of the second track prints when the step has ended.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::time::Instant;

use super::Ended;
use super::said::Said;
use super::steps::{Step, Track};
use crate::run::{Failed, cargo, spawn};

/// Runs all of `steps`; the results are in the order of the list.
pub(super) fn run(steps: &[Step]) -> Result<Vec<Ended>, Failed> {
    let of = |track| steps.iter().filter(move |step| step.track == track);
    let mut ended = Vec::new();
    for step in of(Track::Alone) {
        ended.push(live(step)?);
    }
    let (first, second) = std::thread::scope(|scope| {
        let beside = scope.spawn(|| of(Track::Second).map(at_once).collect::<Result<Vec<_>, _>>());
        let first = of(Track::First).map(live).collect::<Result<Vec<_>, _>>();
        (first, beside.join().expect("the second track does not panic"))
    });
    ended.extend(first?);
    ended.extend(second?);
    Ok(ended)
}

/// Runs `step` and prints each line as it comes.
fn live(step: &Step) -> Result<Ended, Failed> {
    println!("\n== {}: cargo {}", step.name, step.cargo.join(" "));
    run_one(step, print_raw)
}

/// Runs `step`, and prints its output when it has ended.
fn at_once(step: &Step) -> Result<Ended, Failed> {
    println!("== {} begins beside this", step.name);
    let mut output = format!("\n== {}: cargo {}\n", step.name, step.cargo.join(" ")).into_bytes();
    let ended = run_one(step, |line| output.extend_from_slice(line))?;
    output.extend_from_slice(format!("== {} has ended\n\n", step.name).as_bytes());
    print_raw(&output);
    Ok(ended)
}

/// Runs `step` with stdout and stderr in one pipe; hands each line on, with its end.
fn run_one(step: &Step, mut print: impl FnMut(&[u8])) -> Result<Ended, Failed> {
    let begin = Instant::now();
    let pipe = |error| Failed::Start { program: "a pipe".to_owned(), error };
    let (reader, writer) = std::io::pipe().map_err(pipe)?;
    let mut command = cargo(step.cargo);
    command.stdin(Stdio::null()).stdout(writer.try_clone().map_err(pipe)?).stderr(writer);
    let mut child = spawn(&mut command)?;
    // The command holds the pipe's writing end too. Without it the pipe ends with the step.
    drop(command);
    let mut said = Said::default();
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).map_err(pipe)? > 0 {
        said.line(String::from_utf8_lossy(&line).trim_end());
        print(&line);
        line.clear();
    }
    let status = child.wait().map_err(pipe)?;
    Ok(Ended { name: step.name, took: begin.elapsed(), passed: status.success(), said })
}

/// Prints bytes as they are; stdout's lock keeps them in one piece.
fn print_raw(bytes: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    // If stdout is gone the exit code still tells.
    let _ = stdout.write_all(bytes).and_then(|()| stdout.flush());
}
