// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront dump`: what is on a stopped cache device.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use flashfront_serve::offline::{self, DumpReport};

use crate::{human, progress};

/// Show superblock, checkpoints and log of a stopped cache. Changes nothing.
#[derive(Debug, Args)]
pub(crate) struct Dump {
    /// The cache device.
    #[arg(value_name = "CACHE")]
    cache: PathBuf,
    /// Print the result as JSON, with every commit that would be replayed.
    #[arg(long)]
    json: bool,
}

impl Dump {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let bar = progress::of_share("reading", 0);
        let report = offline::dump(&self.cache, &mut |done, all| progress::show(&bar, done, all));
        bar.finish_and_clear();
        let report = report?;
        if self.json {
            human::print_json(&report)?;
        } else {
            human::tell(&text(&report)?)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn text(report: &DumpReport) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    writeln!(
        out,
        "cache       {} ({}), format version {}",
        report.cache.display(),
        human::bytes(report.cache_bytes),
        report.version
    )?;
    writeln!(out, "uuid        {}", report.uuid)?;
    let stop = match (report.cache_failed, report.clean_stop) {
        (true, _) => "the device FAILED in the last run",
        (false, true) => "clean stop",
        (false, false) => "no clean stop",
    };
    writeln!(out, "superblock  update {}, epoch {}, {stop}", report.update, report.epoch)?;
    if report.mirror != "none" {
        let (member, lead, lost) =
            (report.member, report.lead, if report.clean_lost { ", clean data lost" } else { "" });
        let state = report.mirror;
        writeln!(
            out,
            "mirror      {state}; this is member {member}, the lead is {lead}; paired by update {}{lost}",
            report.paired
        )?;
    }
    writeln!(
        out,
        "layout      {} from byte {}; each 2 checkpoints of {} and {} segments of {}; stripes of {}",
        human::counted(report.lanes.len() as u64, "lane"),
        report.first_byte,
        human::bytes(report.checkpoint_bytes),
        human::count(u64::from(report.segments_per_lane)),
        human::bytes(report.segment_bytes),
        human::bytes(report.stripe_bytes)
    )?;
    for origin in &report.origins {
        let identity = if origin.identity.is_empty() { "none" } else { &origin.identity };
        writeln!(
            out,
            "origin {:<4} {} ({}), {}",
            origin.id,
            origin.name,
            human::bytes(origin.size_bytes),
            origin.mode
        )?;
        writeln!(out, "            identity {identity}, fingerprint {}", origin.fingerprint)?;
        writeln!(
            out,
            "            {} cached, {} of them dirty",
            human::counted(origin.blocks_cached, "block"),
            human::count(origin.blocks_dirty)
        )?;
    }
    for lane in &report.lanes {
        write!(out, "lane {:<6} ", lane.lane)?;
        match &lane.checkpoint {
            Some(it) => writeln!(
                out,
                "checkpoint {} at byte {}: {} entries, replay from commit {} (epoch {})",
                it.generation, it.offset, it.entries, it.seq, it.epoch
            )?,
            None => writeln!(out, "NO CHECKPOINT")?,
        }
        let torn = lane.torn_commit.map_or_else(String::new, |seq| format!(", then commit {seq} unfinished"));
        writeln!(out, "            {} after it{torn}", human::counted(lane.commits.len() as u64, "commit"))?;
        writeln!(
            out,
            "            {} cached, {} of them dirty, in {}",
            human::counted(lane.blocks_cached, "block"),
            human::count(lane.blocks_dirty),
            human::counted(lane.segments_used, "segment")
        )?;
    }
    if !report.damage.is_empty() {
        writeln!(
            out,
            "DAMAGED     in {}; see `flashfront check`",
            human::counted(report.damage.len() as u64, "place")
        )?;
    }
    Ok(out)
}
