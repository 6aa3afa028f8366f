// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront destage`: writes everything dirty of a stopped cache to its origin.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use flashfront_engine::BLOCK_BYTES;
use flashfront_serve::config::{Config, Size, Volume};
use flashfront_serve::daemon::{self, DestageReport, Hooks};
use serde::Serialize;

use crate::{human, progress, stopping};

/// Write everything dirty of a stopped cache to its origin, without serving anybody.
///
/// Checks what `serve` checks, replays the log, writes, stops cleanly. Ctrl-C stops it: what has
/// been written stays written, the rest stays dirty in the cache, and the next destage (or `serve`)
/// goes on.
///
/// Exit code 0: the origin is complete. 1: something is still dirty, or it could not be begun.
#[derive(Debug, Args)]
#[command(after_help = "\
Afterwards:
  flashfront detach --cache C --origin O     takes the cache off for good
  flashfront repair C                        if blocks are lost: they are listed by origin and sector")]
pub(crate) struct Destage {
    /// The cache device.
    #[arg(long, value_name = "PATH")]
    cache: PathBuf,
    /// The second cache device of a mirrored cache.
    #[arg(long, value_name = "PATH")]
    mirror: Option<PathBuf>,
    /// Your word that the other cache device will not come back; see `serve`.
    #[arg(long, conflicts_with = "mirror")]
    without_mirror: bool,
    /// Its origin.
    #[arg(long, value_name = "PATH")]
    origin: PathBuf,
    /// Write over an origin that was changed behind the cache's back, or replay a cache whose
    /// device failed.
    #[arg(long)]
    accept_changed_origin: bool,
    /// Folder that remembers failed caches and changed origins: that of `serve` [default: as for
    /// `serve`].
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// RAM for payload [default: 160 MiB, or as much as lanes need].
    #[arg(long, value_name = "SIZE")]
    buffer_bytes: Option<Size>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Outcome<'a> {
    #[serde(flatten)]
    report: &'a DestageReport,
    seconds: f64,
}

impl Destage {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut config = Config::new(self.cache);
        config.volumes.push(Volume::new("data", self.origin));
        (config.mirror, config.without_mirror) = (self.mirror, self.without_mirror);
        config.accept_changed_origin = self.accept_changed_origin;
        config.state = self.state.or(config.state);
        config.buffer_bytes = self.buffer_bytes.or(config.buffer_bytes);
        let hooks = Hooks::default();
        stopping::on_signals(&hooks.stop)?;
        let bar = progress::of_bytes("destaging");
        let started = Instant::now();
        let report = daemon::destage(&config, &hooks, &mut |done, all| {
            progress::show(&bar, done * BLOCK_BYTES, all * BLOCK_BYTES);
        });
        bar.finish_and_clear();
        let (report, seconds) = (report?, started.elapsed().as_secs_f64());
        if self.json {
            human::read_or_not(human::print_json(&Outcome { report: &report, seconds }))?;
        } else {
            human::read_or_not(human::tell(&text(&report, seconds)))?;
        }
        Ok(if report.complete && !report.cache_failed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn text(report: &DestageReport, seconds: f64) -> String {
    let (written, left) = (human::blocks(report.blocks_written), human::blocks(report.blocks_left));
    let mut out = human::lost("LOST", &report.lost);
    out += &if report.complete {
        format!("destaged: {written} written in {seconds:.1} s; nothing is dirty, the origin is complete\n")
    } else if report.interrupted {
        format!("stopped: {written} written; the rest is still dirty; run `flashfront destage` again to go on\n")
    } else if let Some(error) = &report.origin_error {
        format!(
            "the origin refused writes ({error}): {written} written, {left} still dirty; mend it and run `flashfront destage` again\n"
        )
    } else {
        format!(
            "destaged but for {}: {written} written, {left} still dirty; the only copy is corrupt or unreadable. `flashfront repair` gives up what is lost\n",
            human::counted(report.lost_blocks, "lost block")
        )
    };
    if report.cache_failed {
        out += "the cache device FAILED meanwhile: do not use this cache again\n";
    }
    out
}

#[cfg(test)]
mod tests {
    use flashfront_serve::report::LostRange;

    use super::*;

    #[test]
    fn the_end_is_told_as_it_is() {
        let report = DestageReport { blocks_written: 256, ..DestageReport::default() };
        let told = |change: &dyn Fn(&mut DestageReport)| {
            let mut report = report.clone();
            change(&mut report);
            text(&report, 1.0)
        };
        assert!(told(&|it| it.complete = true).contains("origin is complete"));
        assert!(told(&|it| it.interrupted = true).contains("again to go on"));
        assert!(told(&|it| it.origin_error = Some("Io".to_owned())).contains("refused writes (Io)"));
        let lost = LostRange { origin: "data".to_owned(), lba: 80, blocks: 2 };
        let lost = told(&|it| (it.lost_blocks, it.lost) = (2, vec![lost.clone()]));
        assert!(lost.contains("volume data, 16 sectors from 80") && lost.contains("2 lost blocks"), "{lost}");
        assert!(told(&|it| it.cache_failed = true).contains("FAILED"));
    }
}
