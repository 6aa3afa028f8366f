// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront sim replay`: traces against policies, without data.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use clap::builder::PossibleValuesParser;
use flashfront_engine::policy::Spec;
use flashfront_sim::policy::{self, Build};
use flashfront_sim::replay::{BLOCKS_MAX, GridChoice, Progress, Replayed, Row, Size, Source, replay};
use flashfront_sim::trace::{Format, Options};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::report::{self, ReportArgs};
use crate::human;

/// Between two looks at how far it is.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Replay block traces against cache policies: what each would have kept, and what that costs.
///
/// Only the policies run, the daemon's own among them; no data, no devices. The traces' format is found by content, packed or not.
#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// Traces, or a pipe as /dev/stdin if they need not be read twice; each is replayed from an empty cache.
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,
    /// Policies, separated by commas, or `all`.
    #[arg(long, value_name = "P", default_value = "flashfront", value_delimiter = ',', value_parser = policy_names())]
    policy: Vec<String>,
    /// Sizes of the cache in blocks of 4 KiB, separated by commas.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=BLOCKS_MAX))]
    cache_blocks: Vec<u64>,
    /// Sizes of the cache as shares of the blocks that the trace touches: 0.01,0.1 for 1 % and 10 %. The trace is read twice.
    #[arg(long, value_name = "X", value_delimiter = ',', value_parser = fraction, conflicts_with = "cache_blocks")]
    cache_fraction: Vec<f64>,
    /// A page cache of so many blocks in front, which answers reads of what was read or written a short time ago.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1 << 32))]
    page_cache_blocks: u64,
    /// The traces' format, if it can't be told from what is in them.
    #[arg(long, value_name = "F", value_parser = PossibleValuesParser::new(Format::all().map(|it| it.name)))]
    format: Option<String>,
    /// Stop at the first bad line instead of counting them.
    #[arg(long)]
    strict: bool,
    /// Let blocks begin where most requests do, instead of at multiples of 4 KiB.
    #[arg(long)]
    shift_grid: bool,
    /// Drop requests that repeat an equal one within so many milliseconds, for traces with each request of several layers.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    drop_echoes: Option<u64>,
    /// Print one JSON object for each trace, size and policy, a line each.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print the same as CSV.
    #[arg(long)]
    csv: bool,
    #[command(flatten)]
    report: ReportArgs,
}

/// Those of these names, of which one may be `all`.
pub(super) fn policies(names: &[String]) -> Vec<&'static Spec<Build>> {
    if names.iter().any(|name| name == "all") {
        return policy::ALL.iter().collect();
    }
    names.iter().filter_map(|name| policy::by_name(name)).collect()
}

/// What [`policies`] knows.
pub(super) fn policy_names() -> PossibleValuesParser {
    PossibleValuesParser::new(policy::ALL.iter().map(|spec| spec.name).chain(["all"]))
}

fn fraction(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("a share is more than 0 and at most 1".to_owned()),
    }
}

/// One policy at one size on one trace, as scripts read it.
#[derive(Debug, Serialize)]
struct Line<'a> {
    trace: &'a str,
    format: &'a str,
    policy: &'a str,
    requests: u64,
    accesses: u64,
    unique_blocks: u64,
    cache_blocks: u64,
    hit_ratio: f64,
    read_hit_ratio: f64,
    flash_blocks_written: u64,
    fill_blocks: u64,
    absorbed_blocks: u64,
    reinserted_blocks: u64,
    origin_read_blocks: u64,
    origin_write_blocks: u64,
    bad_lines: u64,
}

impl Replay {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let sizes: Vec<Size> = match (&*self.cache_blocks, &*self.cache_fraction) {
            ([], []) => vec![Size::Fraction(0.01), Size::Fraction(0.05), Size::Fraction(0.10), Size::Fraction(0.25)],
            (blocks, []) => blocks.iter().map(|&it| Size::Blocks(it)).collect(),
            (_, fractions) => fractions.iter().map(|&it| Size::Fraction(it)).collect(),
        };
        let policies = policies(&self.policy);
        let report = self.report.open()?;
        let mut done = Vec::new();
        let ended = self.traces.iter().try_for_each(|trace| {
            done.push((trace.display().to_string(), self.trace(trace, &policies, &sizes, done.is_empty())?));
            anyhow::Ok(())
        });
        if let Some(report) = report.filter(|_| !done.is_empty()) {
            // Also if a later trace can't be read: what is done took its time.
            report.write("Cache policies on block traces", &report::replayed(&done)?)?;
        }
        ended?;
        Ok(ExitCode::SUCCESS)
    }

    /// Replays one, and prints what came of it.
    fn trace(
        &self,
        trace: &Path,
        policies: &[&'static Spec<Build>],
        sizes: &[Size],
        first: bool,
    ) -> anyhow::Result<Replayed> {
        let replayed = watched(&self.source(trace), policies, sizes)?;
        if self.csv && first {
            human::print(CSV_HEAD)?;
        }
        let name = trace.display().to_string();
        for line in replayed.rows.iter().map(|row| line(&name, &replayed, row)) {
            if self.json {
                human::print_json(&line)?;
            } else if self.csv {
                human::print(&csv(&line))?;
            }
        }
        if !self.json && !self.csv {
            human::print(&table(&name, &replayed)?)?;
        }
        remarks(&name, &replayed, self.shift_grid);
        Ok(replayed)
    }

    fn source(&self, trace: &Path) -> Source {
        Source {
            path: trace.to_owned(),
            options: Options {
                format: self.format.as_deref().and_then(Format::named),
                strict: self.strict,
                ..Options::default()
            },
            grid: if self.shift_grid { GridChoice::Detected } else { GridChoice::Aligned },
            echoes_ns: self.drop_echoes.map(|ms| ms * 1_000_000),
            page_cache_blocks: self.page_cache_blocks,
        }
    }
}

/// Replays a trace while a bar shows how much of it was read.
fn watched(source: &Source, policies: &[&'static Spec<Build>], sizes: &[Size]) -> anyhow::Result<Replayed> {
    let style = "reading {msg} [{bar:30}] {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta} left";
    let endless = "reading {msg} {binary_bytes}  {binary_bytes_per_sec}";
    let file_bytes = std::fs::metadata(&source.path).map_or(0, |file| file.len());
    let style = ProgressStyle::with_template(if file_bytes > 0 { style } else { endless })?.progress_chars("#>.");
    let bar = ProgressBar::new(file_bytes).with_style(style);
    let (progress, (done, ended)) = (Progress::default(), channel::<()>());
    let replayed = thread::scope(|scope| {
        let progress_here = &progress;
        scope.spawn(move || {
            let mut seen = 0;
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(LOOK_EVERY) {
                // The first of two readings only counts, so it tells nothing of how long the second takes.
                let (readings, bytes) =
                    (progress_here.readings.load(Ordering::Relaxed), progress_here.bytes.load(Ordering::Relaxed));
                let nth = bytes.checked_div(file_bytes).unwrap_or(0).min(readings.saturating_sub(1));
                if nth > seen {
                    seen = nth;
                    bar.reset();
                }
                bar.set_message(format!("{} of {readings}", nth + 1));
                bar.set_position(bytes - nth * file_bytes);
            }
            bar.finish_and_clear();
        });
        let replayed = replay(source, policies, sizes, &progress);
        drop(done);
        replayed
    })?;
    if replayed.rows.is_empty() {
        bail!("no policy and size to replay");
    }
    Ok(replayed)
}

fn line<'a>(trace: &'a str, replayed: &'a Replayed, row: &'a Row) -> Line<'a> {
    let totals = &row.totals;
    Line {
        trace,
        format: replayed.format,
        policy: row.policy,
        requests: replayed.requests,
        accesses: totals.accesses,
        unique_blocks: replayed.unique_blocks,
        cache_blocks: row.cache_blocks,
        hit_ratio: totals.hit_ratio(),
        read_hit_ratio: totals.read_hit_ratio(),
        flash_blocks_written: totals.flash_blocks_written(),
        fill_blocks: totals.fill_blocks,
        absorbed_blocks: totals.absorbed_blocks,
        reinserted_blocks: totals.reinserted_blocks,
        origin_read_blocks: totals.origin_read_blocks,
        origin_write_blocks: totals.origin_write_blocks,
        bad_lines: replayed.report.bad,
    }
}

const CSV_HEAD: &str = "trace,format,policy,requests,accesses,unique_blocks,cache_blocks,hit_ratio,read_hit_ratio,flash_blocks_written,fill_blocks,absorbed_blocks,reinserted_blocks,origin_read_blocks,origin_write_blocks,bad_lines\n";

fn csv(it: &Line<'_>) -> String {
    format!(
        "\"{}\",{},{},{},{},{},{},{:.6},{:.6},{},{},{},{},{},{},{}\n",
        it.trace.replace('"', "\"\""),
        it.format,
        it.policy,
        it.requests,
        it.accesses,
        it.unique_blocks,
        it.cache_blocks,
        it.hit_ratio,
        it.read_hit_ratio,
        it.flash_blocks_written,
        it.fill_blocks,
        it.absorbed_blocks,
        it.reinserted_blocks,
        it.origin_read_blocks,
        it.origin_write_blocks,
        it.bad_lines
    )
}

fn table(name: &str, replayed: &Replayed) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    writeln!(
        out,
        "{name}: {}, {} requests, footprint {}",
        replayed.format,
        human::count(replayed.requests),
        human::blocks(replayed.unique_blocks)
    )?;
    writeln!(
        out,
        "{:>10}  {:<10} {:>7} {:>9}  {:>12} {:>11} {:>11} {:>11}  {:>11} {:>12}",
        "cache",
        "policy",
        "hits",
        "read hits",
        "flash writes",
        "fills",
        "absorbed",
        "reinserted",
        "origin read",
        "origin write"
    )?;
    for row in &replayed.rows {
        let totals = &row.totals;
        writeln!(
            out,
            "{:>10}  {:<10} {:>7} {:>9}  {:>12} {:>11} {:>11} {:>11}  {:>11} {:>12}",
            human::blocks(row.cache_blocks),
            row.policy,
            human::percent(Some(totals.hit_ratio())),
            human::percent((totals.reads > 0).then(|| totals.read_hit_ratio())),
            human::blocks(totals.flash_blocks_written()),
            human::blocks(totals.fill_blocks),
            human::blocks(totals.absorbed_blocks),
            human::blocks(totals.reinserted_blocks),
            human::blocks(totals.origin_read_blocks),
            human::blocks(totals.origin_write_blocks)
        )?;
    }
    Ok(out)
}

/// What a reader of the figures should know, to stderr.
fn remarks(name: &str, replayed: &Replayed, shifted: bool) {
    let report = &replayed.report;
    for (kind, count) in &report.skipped {
        tracing::info!("{name}: {} {kind}", human::count(*count));
    }
    if report.bad > 0 {
        let shown: Vec<String> = report.first_bad.iter().map(ToString::to_string).collect();
        tracing::warn!("{name}: {} bad lines were left out; the first: {}", human::count(report.bad), shown.join("; "));
    }
    if replayed.discards > 0 {
        tracing::warn!("{name}: {} discards were left out", human::count(replayed.discards));
    }
    if replayed.page_cache_hits > 0 {
        tracing::info!("{name}: the page cache answered {} reads of blocks", human::count(replayed.page_cache_hits));
    }
    let best = (0..8).max_by(|&a, &b| replayed.phases[a].total_cmp(&replayed.phases[b])).unwrap_or(0);
    if !shifted && best != 0 && replayed.phases[best] > 0.5 {
        tracing::warn!(
            "{name}: {} of the beginnings and ends of requests are at sector {best} modulo 8, as on a partition that is not aligned: such requests touch a block more than they must; --shift-grid shows the cache with blocks that begin there",
            human::percent(Some(replayed.phases[best]))
        );
    }
}
