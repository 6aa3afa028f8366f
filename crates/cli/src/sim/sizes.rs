// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront sim sizes`: what a cache of each size would have made of a trace.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;
use flashfront_sim::replay::{Replayed, Row, Size, Source, SourceError};

use super::replay::lines;
use super::replay::watched::Watched;
use super::replay::{policies, policy_names};
use crate::columns::Columns;
use crate::trace::{TraceArgs, told as reading};
use crate::{human, interrupt};

/// The number of sizes, from one part of the trace's footprint to all of it.
const SIZES: u64 = 64;
/// The number of sizes that are replayed at once, which bounds the RAM. The largest eight take some
/// 250 bytes for each block of the footprint.
const AT_ONCE: usize = 8;

/// Replay a trace at 64 sizes of the cache, from 1/64 of the blocks that it touches to all of them:
/// hits and origin reads.
///
/// A size at which a larger cache has fewer hits than a smaller one had is marked.
#[derive(Debug, Args)]
pub(crate) struct Sizes {
    /// The trace, also a made one (`made:workstation`); it is read nine times.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// The policy.
    #[arg(long, value_name = "P", default_value = "flashfront", value_parser = policy_names())]
    policy: String,
    /// A page cache of N blocks in front. It answers reads of blocks that were read or written a
    /// short time ago.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(..=1 << 32))]
    page_cache_blocks: u64,
    #[command(flatten)]
    read: TraceArgs,
    /// Print one JSON object for each size, a line each, with the fields of `sim replay --json`.
    #[arg(long)]
    json: bool,
}

impl Sizes {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let source = self.read.source(&self.trace, self.page_cache_blocks);
        let mut watched = Watched::new(std::slice::from_ref(&self.trace), interrupt::stop_flag()?);
        let policies = policies(std::slice::from_ref(&self.policy));
        let mut all: Option<Replayed> = None;
        for turn in (1..=SIZES).collect::<Vec<_>>().chunks(AT_ONCE) {
            let part = |nth: u64| nth as f64 / SIZES as f64;
            let sizes: Vec<Size> = match &all {
                None => turn.iter().map(|&nth| Size::Fraction(part(nth))).collect(),
                Some(all) => {
                    let blocks = |nth: u64| Size::Fraction(part(nth)).blocks(all.reading.unique_blocks);
                    turn.iter().map(|&nth| Size::Blocks(blocks(nth))).collect()
                }
            };
            let replayed = watched.replay(0, &source, &policies, &sizes, &|_| None, false);
            let replayed = replayed.map_err(|error| match error {
                SourceError::Once { .. } => anyhow!("{error}; write it to a file first"),
                error => error.into(),
            })?;
            match &mut all {
                None => all = Some(replayed),
                Some(all) => all.rows.extend(replayed.rows),
            }
        }
        if let Some(all) = all {
            self.print(&source, &all)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn print(&self, source: &Source, replayed: &Replayed) -> anyhow::Result<()> {
        let name = source.path.display().to_string();
        if self.json {
            for row in &replayed.rows {
                human::print_json(&lines::line(source, &name, replayed, row))?;
            }
        } else {
            human::tell(&table(&name, replayed)?)?;
        }
        reading::remarks(&name, source, &replayed.reading);
        Ok(())
    }
}

/// The results, as people read them.
fn table(name: &str, replayed: &Replayed) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    writeln!(out, "{name}: footprint {}", human::blocks(replayed.reading.unique_blocks))?;
    let mut table = Columns::new(["cache"], ["hits", "read hits", "origin reads", "origin read", "flash writes", ""]);
    let mut best: Option<&Row> = None;
    for row in &replayed.rows {
        let totals = &row.totals;
        let remark = best.filter(|best| best.totals.hits > totals.hits);
        let remark = remark.map(|best| format!("fewer hits than with {}", human::blocks(best.cache_blocks)));
        table.row([
            human::blocks(row.cache_blocks),
            human::percent(Some(totals.hit_ratio())),
            human::percent((totals.reads > 0).then(|| totals.read_hit_ratio())),
            human::count(row.origin_reads),
            human::blocks(totals.origin_read_blocks),
            human::blocks(totals.flash_blocks_written()),
            remark.unwrap_or_default(),
        ]);
        if best.is_none_or(|best| best.totals.hits <= totals.hits) {
            best = Some(row);
        }
    }
    out.push_str(&table.text());
    Ok(out)
}
