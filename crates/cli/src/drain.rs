// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront drain`: writes everything dirty to the origin, and shows how it goes.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use flashfront_engine::BLOCK_BYTES;
use flashfront_serve::control::{Client, Command};
use flashfront_serve::report::StatusReport;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::human;
use crate::interrupt::Interrupt;
use crate::status::Socket;

/// Between two looks: often enough for a smooth bar, rarely enough to cost nothing.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Write everything dirty to the origin, and wait until it is there.
///
/// Ctrl-C stops it; what has been written stays written, and the next drain goes on. While it lasts
/// new writes go through to the origin. Afterwards the mode is what it was.
#[derive(Debug, Args)]
pub(crate) struct Drain {
    #[command(flatten)]
    socket: Socket,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// How it ended.
#[derive(Debug, Serialize)]
struct Outcome {
    drained: bool,
    blocks_written: u64,
    blocks_left: u64,
    lost_blocks: u64,
    seconds: f64,
}

impl Drain {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut client = Client::connect(&self.socket.path())?;
        let interrupt = Interrupt::new()?;
        let started = Instant::now();
        let before = client.status()?.blocks_dirty;
        client.call(&Command::Drain { start: true })?;
        let bar = bar(before)?;
        let (report, interrupted) = loop {
            let report = client.status()?;
            // New dirty data may come from partial blocks; the bar never runs past its end.
            bar.set_position(before.saturating_sub(report.blocks_dirty) * BLOCK_BYTES);
            if !report.draining {
                break (report, false);
            }
            if interrupt.wait(LOOK_EVERY) {
                client.call(&Command::Drain { start: false })?;
                break (client.status()?, true);
            }
        };
        bar.finish_and_clear();
        let outcome = Outcome {
            drained: is_drained(&report),
            blocks_written: before.saturating_sub(report.blocks_dirty),
            blocks_left: report.blocks_dirty,
            lost_blocks: report.lost_blocks,
            seconds: started.elapsed().as_secs_f64(),
        };
        if self.json {
            human::print_json(&outcome)?;
        } else {
            human::print(&text(&outcome, interrupted))?;
        }
        Ok(if outcome.drained { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Lost blocks count as dirty and can't be written; nothing else may be left.
fn is_drained(report: &StatusReport) -> bool {
    report.blocks_dirty == 0
}

fn bar(blocks: u64) -> anyhow::Result<ProgressBar> {
    let style = "draining [{bar:30}] {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta} left";
    Ok(ProgressBar::new(blocks * BLOCK_BYTES).with_style(ProgressStyle::with_template(style)?.progress_chars("#>.")))
}

fn text(outcome: &Outcome, interrupted: bool) -> String {
    let (written, left) = (human::blocks(outcome.blocks_written), human::blocks(outcome.blocks_left));
    if outcome.drained {
        format!("drained: {written} written in {:.1} s; nothing is dirty\n", outcome.seconds)
    } else if interrupted {
        format!("stopped: {written} written, {left} still dirty; run `flashfront drain` again to go on\n")
    } else if outcome.blocks_left == outcome.lost_blocks {
        format!(
            "drained but for {} lost blocks ({left}): they are corrupt on the cache device; see `flashfront status`\n",
            outcome.lost_blocks
        )
    } else {
        // A busy volume is dirty again at once, and the status doesn't tell that from a drain that
        // another operator stopped. Either way the origin is not complete now, so this is no success.
        format!(
            "the drain is over, but {left} are dirty (again): clients go on writing, or another operator stopped it. \
             Stop the clients, or run `flashfront set --mode writethrough`, and drain again\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(left: u64, lost: u64) -> Outcome {
        Outcome { drained: left == 0, blocks_written: 256, blocks_left: left, lost_blocks: lost, seconds: 1.0 }
    }

    #[test]
    fn the_end_is_told_as_it_is() {
        assert!(text(&outcome(0, 0), false).contains("nothing is dirty"));
        assert!(text(&outcome(5, 0), true).contains("again"));
        assert!(text(&outcome(2, 2), false).contains("2 lost blocks"));
        assert!(text(&outcome(5, 2), false).contains("--mode writethrough"));
    }

    #[test]
    fn the_bar_has_a_template() {
        bar(0).unwrap();
    }
}
