// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront drain`: writes everything dirty to the origin, and shows how it goes.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use flashfront_engine::BLOCK_BYTES;
use flashfront_serve::config::Age;
use flashfront_serve::control::Command;
use flashfront_serve::report::StatusReport;
use serde::Serialize;

use crate::interrupt::Interrupt;
use crate::status::{Socket, connect};
use crate::{human, progress};

/// Write everything dirty to the origin, and wait until it is there.
///
/// Ctrl-C and --timeout stop it; what has been written stays written, and the next drain goes on.
/// While it lasts new writes go through to the origin. Afterwards the mode is what it was.
#[derive(Debug, Args)]
pub(crate) struct Drain {
    #[command(flatten)]
    socket: Socket,
    /// Stop the drain after this time, with exit code 1 if anything is left [default: wait until it
    /// ends].
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Age>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Why it was not waited for any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GivenUp {
    /// Ctrl-C ended the wait.
    Interrupted,
    /// `--timeout` ended the wait.
    TimedOut(Age),
    /// Other writers have what is left: it can never be written.
    Fenced,
}

/// How it ended.
#[derive(Debug, Serialize)]
struct Outcome {
    drained: bool,
    /// `--timeout` has ended it.
    timed_out: bool,
    blocks_written: u64,
    blocks_left: u64,
    lost_blocks: u64,
    /// Why an origin refuses what is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    origin_error: Option<String>,
    /// The volumes of what is left, and by whom each was taken over, if that has ended it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fenced: Vec<String>,
    seconds: f64,
}

impl Drain {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut client = connect(&self.socket.path())?;
        let interrupt = Interrupt::new()?;
        let started = Instant::now();
        let before = client.status()?;
        client.call(&Command::Drain { start: true })?;
        let bar = progress::of_bytes("draining");
        bar.set_length(before.blocks_dirty * BLOCK_BYTES);
        let mut told = Vec::new();
        let (report, given_up) = loop {
            let report = client.status()?;
            // New dirty data may come from partial blocks; the bar never runs past its end.
            bar.set_position(before.blocks_dirty.saturating_sub(report.blocks_dirty) * BLOCK_BYTES);
            for line in refusals(&report).into_iter().filter(|_| report.draining) {
                // The daemon tries again for ever.
                if !told.contains(&line) {
                    bar.suspend(|| eprintln!("{line}"));
                    told.push(line);
                }
            }
            if !report.draining {
                break (report, None);
            }
            let left = self.timeout.map(|timeout| timeout.0.saturating_sub(started.elapsed()));
            let given_up = match (left, self.timeout) {
                _ if is_in_vain(&report) => Some(GivenUp::Fenced),
                (Some(Duration::ZERO), Some(timeout)) => Some(GivenUp::TimedOut(timeout)),
                _ => interrupt
                    .wait(left.unwrap_or(progress::LOOK_EVERY).min(progress::LOOK_EVERY))
                    .then_some(GivenUp::Interrupted),
            };
            if given_up.is_some() {
                // The daemon goes on as before the drain.
                client.call(&Command::Drain { start: false })?;
                break (client.status()?, given_up);
            }
        };
        bar.finish_and_clear();
        let fenced = if given_up == Some(GivenUp::Fenced) { fenced(&report) } else { Vec::new() };
        let mut outcome = Outcome::new(&before, &report, started.elapsed());
        outcome.fenced = fenced;
        outcome.timed_out = !outcome.drained && matches!(given_up, Some(GivenUp::TimedOut(_)));
        if self.json {
            human::read_or_not(human::print_json(&outcome))?;
        } else {
            human::read_or_not(human::tell(&text(&outcome, given_up)))?;
        }
        Ok(if outcome.drained { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Outcome {
    fn new(before: &StatusReport, after: &StatusReport, time: Duration) -> Self {
        Self {
            // The daemon counts the moments at which nothing was dirty. On a busy volume none of
            // them lasts until the next look.
            drained: after.counters.drains > before.counters.drains || after.blocks_dirty == 0,
            timed_out: false,
            blocks_written: after.counters.destaged_blocks.saturating_sub(before.counters.destaged_blocks),
            blocks_left: after.blocks_dirty,
            lost_blocks: after.lost_blocks,
            origin_error: after.volumes.iter().find_map(|it| it.origin_error.clone()),
            fenced: Vec::new(),
            seconds: time.as_secs_f64(),
        }
    }
}

/// Whether all that is dirty is that of volumes which other writers have taken over.
fn is_in_vain(report: &StatusReport) -> bool {
    let fenced = report.volumes.iter().filter(|it| it.fenced).map(|it| it.blocks_dirty);
    report.blocks_dirty > 0 && fenced.sum::<u64>() == report.blocks_dirty
}

/// The volumes with dirty data that other writers have taken over, and these.
fn fenced(report: &StatusReport) -> Vec<String> {
    let by = |by: &Option<String>| by.clone().unwrap_or_else(|| "another writer".to_owned());
    let volumes = report.volumes.iter().filter(|it| it.fenced && it.blocks_dirty > 0);
    volumes.map(|it| format!("volume {}: {}", it.name, by(&it.fenced_by))).collect()
}

/// A line for each origin that refuses its dirty data.
pub(crate) fn refusals(report: &StatusReport) -> Vec<String> {
    let line = |name: &str, error: &str| {
        format!(
            "volume {name}: the origin refused writes ({error}); what is dirty stays in the cache, and is tried again. Mend the origin, or stop waiting with Ctrl-C"
        )
    };
    let volumes = report.volumes.iter();
    volumes.filter_map(|it| Some(line(&it.name, it.origin_error.as_deref()?))).collect()
}

fn text(outcome: &Outcome, given_up: Option<GivenUp>) -> String {
    let (written, left) = (human::blocks(outcome.blocks_written), human::blocks(outcome.blocks_left));
    let lost = outcome.lost_blocks;
    if outcome.drained && outcome.blocks_left == 0 {
        format!("drained: {written} written in {:.1} s; nothing is dirty\n", outcome.seconds)
    } else if outcome.drained {
        format!(
            "drained: {written} written in {:.1} s; clients go on writing, so {left} are dirty again. \
             To end with a complete origin, stop the clients and drain once more\n",
            outcome.seconds
        )
    } else if !outcome.fenced.is_empty() {
        format!(
            "not drained: {written} written; {left} still dirty never reach the store, since another writer has opened the volume ({}). They are lost to that writer; stop this daemon\n",
            outcome.fenced.join(", ")
        )
    } else if let Some(given_up) = given_up {
        let why = outcome.origin_error.as_ref();
        let why = why.map_or_else(String::new, |error| format!(" (the origin refused writes: {error})"));
        let when = match given_up {
            GivenUp::Interrupted | GivenUp::Fenced => "stopped".to_owned(),
            GivenUp::TimedOut(timeout) => format!("not drained within {timeout}, and stopped"),
        };
        format!("{when}: {written} written, {left} still dirty{why}; run `flashfront drain` again to go on\n")
    } else if lost > 0 {
        format!(
            "drained but for {} ({} of {left} dirty), corrupt on the cache device; see `flashfront status`\n",
            human::counted(lost, "lost block"),
            human::blocks(lost)
        )
    } else {
        format!("stopped by another operator: {written} written, {left} still dirty; run `flashfront drain` again\n")
    }
}

#[cfg(test)]
mod tests {
    use flashfront_engine::{Mode, OriginId, OriginStatus, Status};
    use flashfront_serve::report::{Facts, VolumeFacts};

    use super::*;

    fn outcome(drained: bool, left: u64, lost: u64) -> Outcome {
        let timed_out = false;
        let (blocks_written, origin_error) = (256, None);
        let fenced = Vec::new();
        let (blocks_left, lost_blocks, seconds) = (left, lost, 1.0);
        Outcome { drained, timed_out, blocks_written, blocks_left, lost_blocks, origin_error, fenced, seconds }
    }

    #[test]
    fn the_end_is_told_as_it_is() {
        assert!(text(&outcome(true, 0, 0), None).contains("nothing is dirty"));
        assert!(text(&outcome(true, 5, 0), None).contains("dirty again"));
        let interrupted = Some(GivenUp::Interrupted);
        assert!(text(&outcome(false, 5, 0), interrupted).contains("stopped: "));
        let late = text(&outcome(false, 256, 0), Some(GivenUp::TimedOut("2min".parse().unwrap())));
        assert!(late.contains("not drained within 2m") && late.contains("1.00 MiB still dirty"), "{late}");
        let refused = Outcome { origin_error: Some("Io".to_owned()), ..outcome(false, 5, 0) };
        assert!(text(&refused, interrupted).contains("refused writes: Io"));
        assert!(text(&outcome(false, 2, 2), None).contains("2 lost blocks"));
        assert!(text(&outcome(false, 5, 0), None).contains("another operator"));
    }

    #[test]
    fn an_empty_moment_counts_however_short() {
        let before = StatusReport::new(&Status { blocks_dirty: 9, ..Status::default() }, &Facts::default());
        let mut after = before.clone();
        assert!(!Outcome::new(&before, &after, Duration::ZERO).drained);
        (after.counters.drains, after.counters.destaged_blocks) = (1, 12);
        let outcome = Outcome::new(&before, &after, Duration::ZERO);
        assert!(outcome.drained);
        assert_eq!((outcome.blocks_written, outcome.blocks_left), (12, 9));
    }

    #[test]
    fn an_origin_that_refuses_is_named_with_its_reason() {
        let origin = OriginStatus {
            id: OriginId(0),
            mode: Mode::Writeback,
            size_bytes: 1 << 20,
            blocks_dirty: 9,
            ..OriginStatus::default()
        };
        let status = Status { origins: vec![origin], ..Status::default() };
        let volume = VolumeFacts { name: "data".to_owned(), ..VolumeFacts::default() };
        let facts = Facts { volumes: vec![volume.clone()], ..Facts::default() };
        assert_eq!(refusals(&StatusReport::new(&status, &facts)), [""; 0]);
        let refused = VolumeFacts { origin_error: Some("Io".to_owned()), ..volume };
        let facts = Facts { volumes: vec![refused], ..Facts::default() };
        let said = refusals(&StatusReport::new(&status, &facts)).concat();
        assert!(said.contains("volume data") && said.contains("(Io)"), "{said}");
    }
}
