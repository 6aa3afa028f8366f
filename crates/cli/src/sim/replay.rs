// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront sim replay`: traces against policies, without data.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;
use clap::builder::PossibleValuesParser;
use flashfront_engine::policy::Spec;
use flashfront_serve::config::FlashBudget;
use flashfront_sim::policy::{self, Build};
use flashfront_sim::replay::{BLOCKS_MAX, Replayed, Size, Source, SourceError};

use self::watched::Watched;
use super::report::{self, ReportArgs};
use crate::trace::{TraceArgs, told as reading};
use crate::usage::misused;
use crate::{human, interrupt};

pub(super) mod lines;
mod told;
pub(super) mod watched;

/// Replay block traces against cache policies: what each would have kept, and what that costs.
///
/// Only the policies run, the daemon's own among them; no data, no devices. The traces' format is
/// found by content, packed or not. A trace may be longer than RAM. The RAM that is needed grows
/// with the caches, and little with the trace: up to 24 bytes for each block that has no
/// neighbours. The exception is belady, which takes 8 bytes for each access and up to 60 for each
/// block. Ctrl-C ends the replay; the finished part is printed and in the report.
#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// Traces, or a pipe as /dev/stdin if they need not be read twice. Each trace is replayed from
    /// an empty cache. `made:workstation`, `made:database`, `made:mail`, `made:boot`, `made:log`
    /// and `made:ci` are made, and need no file; `made:mail?seed=3` is another machine of that
    /// kind.
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,
    /// Policies, separated by commas, or `all`.
    #[arg(long, value_name = "P", default_value = "flashfront", value_delimiter = ',', value_parser = policy_names())]
    policy: Vec<String>,
    /// Sizes of the cache in blocks of 4 KiB, separated by commas.
    #[arg(long, value_name = "N", value_delimiter = ',', allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..=BLOCKS_MAX))]
    cache_blocks: Vec<u64>,
    /// Sizes of the cache as shares of the blocks that the trace touches: 0.01,0.1 for 1 % and 10
    /// %, rounded down, and one block at least. The trace is read twice.
    #[arg(long, value_name = "X", value_delimiter = ',', allow_negative_numbers = true, value_parser = fraction, conflicts_with = "cache_blocks")]
    cache_fraction: Vec<f64>,
    /// A page cache of N blocks in front. It answers reads of blocks that were read or written a
    /// short time ago.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(..=1 << 32))]
    page_cache_blocks: u64,
    /// How much may be written to flash in a day of the trace, a size or "0.5 DWPD". Beyond it
    /// `flashfront` and `flashfront_disk` don't cache reads, as `serve` with the same option. The
    /// others know no such bound.
    #[arg(long, value_name = "BUDGET", default_value = "none", allow_negative_numbers = true)]
    flash_writes_per_day: FlashBudget,
    /// Tell also what the caches hold at the end. These are live blocks, dead places, live blocks
    /// that nobody has read since they came, and blocks that were moved to clean segments.
    #[arg(long)]
    occupancy: bool,
    #[command(flatten)]
    read: TraceArgs,
    /// Print one JSON object for each trace, size and policy, a line each.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print the same as CSV.
    #[arg(long)]
    csv: bool,
    #[command(flatten)]
    report: ReportArgs,
}

/// Finds the policies of these names. The name `all` means all policies.
pub(super) fn policies(names: &[String]) -> Vec<&'static Spec<Build>> {
    if names.iter().any(|name| name == "all") {
        return policy::ALL.iter().collect();
    }
    names.iter().filter_map(|name| policy::by_name(name)).collect()
}

/// The names that [`policies`] knows.
pub(super) fn policy_names() -> PossibleValuesParser {
    PossibleValuesParser::new(policy::ALL.iter().map(|spec| spec.name).chain(["all"]))
}

fn fraction(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("a share is more than 0 and at most 1".to_owned()),
    }
}

impl Replay {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let sizes: Vec<Size> = match (&*self.cache_blocks, &*self.cache_fraction) {
            ([], []) => vec![Size::Fraction(0.01), Size::Fraction(0.05), Size::Fraction(0.10), Size::Fraction(0.25)],
            (blocks, []) => blocks.iter().map(|&it| Size::Blocks(it)).collect(),
            (_, fractions) => fractions.iter().map(|&it| Size::Fraction(it)).collect(),
        };
        let policies = policies(&self.policy);
        if self.flash_writes_per_day != FlashBudget::None && !policies.iter().any(|spec| spec.build.keeps_budget()) {
            let those: Vec<_> =
                policy::ALL.iter().filter(|spec| spec.build.keeps_budget()).map(|spec| spec.name).collect();
            misused!(
                "--flash-writes-per-day is for {}, and none of the policies is; leave it out, or add one to --policy",
                those.join(" and ")
            );
        }
        let report = self.report.open()?;
        let stop = interrupt::stop_flag()?;
        let budget = |cache_bytes| self.flash_writes_per_day.bytes(cache_bytes);
        let mut watched = Watched::new(&self.traces, stop);
        let mut done = Vec::new();
        let ended = self.traces.iter().enumerate().try_for_each(|(nth, trace)| {
            let source = self.read.source(trace, self.page_cache_blocks);
            let replayed = watched.replay(nth, &source, &policies, &sizes, &budget, self.occupancy);
            let replayed = replayed.map_err(|error| match error {
                SourceError::Once { .. } => {
                    anyhow!("{error}; give --cache-blocks instead of --cache-fraction, and leave out belady")
                }
                error => error.into(),
            })?;
            let printed = self.print(&source, &replayed, nth == 0);
            done.push((trace.display().to_string(), replayed));
            printed
        });
        if let Some(report) = report.filter(|_| !done.is_empty()) {
            // The report is also written if a later trace can't be read, or nobody reads the output
            // any more. The finished replays took their time.
            report.write("Cache policies on block traces", &report::replayed(&done)?)?;
            if done.len() < self.traces.len() {
                tracing::warn!("the report has only the first {} of {} traces", done.len(), self.traces.len());
            }
        }
        ended.map(|()| ExitCode::SUCCESS)
    }

    /// Prints the results of a trace.
    fn print(&self, source: &Source, replayed: &Replayed, first: bool) -> anyhow::Result<()> {
        if replayed.rows.is_empty() {
            misused!("no policy and size to replay");
        }
        let name = source.path.display().to_string();
        let mut lines = replayed.rows.iter().map(|row| lines::line(source, &name, replayed, row));
        if self.json {
            lines.try_for_each(|line| human::print_json(&line))?;
        } else if self.csv {
            human::print(&lines::csv(lines, first, self.occupancy)?)?;
        } else {
            human::tell(&told::table(&name, replayed)?)?;
        }
        reading::remarks(&name, source, &replayed.reading);
        Ok(())
    }
}
