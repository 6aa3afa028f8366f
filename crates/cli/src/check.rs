// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront check`: is a stopped cache what it should be?

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use flashfront_serve::offline::{self, CheckReport, DamageKind};

use crate::{human, progress};

/// Verify every live structure and every cached block of a stopped cache. Changes nothing.
///
/// Exit code 0: sound. 1: damaged, or it could not be checked.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The cache device.
    #[arg(value_name = "CACHE")]
    cache: PathBuf,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let bar = progress::of_share("checking", 0);
        let report = offline::check(&self.cache, &mut |done, all| progress::show(&bar, done, all));
        bar.finish_and_clear();
        let report = match report {
            Err(error) if self.json => {
                if let Some(report) = error.report(&self.cache) {
                    human::read_or_not(human::print_json(&report))?;
                }
                return Err(error.into());
            }
            report => report?,
        };
        if self.json {
            human::read_or_not(human::print_json(&report))?;
        } else {
            human::read_or_not(human::tell(&text(&report)?))?;
        }
        Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn text(report: &CheckReport) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    let stop = match (report.cache_failed, report.clean_stop) {
        (true, _) => "its device FAILED in the last run",
        (false, true) => "cleanly stopped",
        (false, false) => "not cleanly stopped, will be replayed",
    };
    if let Some(uuid) = &report.uuid {
        writeln!(out, "cache       {} ({uuid}), {stop}", human::one_line(&report.cache.display().to_string()))?;
        writeln!(
            out,
            "holds       {} in {}, {} of them dirty",
            human::blocks(report.blocks_cached),
            human::counted(report.blocks_cached, "block"),
            human::count(report.blocks_dirty)
        )?;
        writeln!(out, "log         {} to replay", human::counted(report.commits_to_replay, "commit"))?;
    }
    if !report.torn_lanes.is_empty() {
        writeln!(out, "note        the log ends in an unfinished commit, as a crash leaves it; replay drops it")?;
    }
    for damage in &report.damage {
        let place = match (&damage.origin, damage.lba) {
            (Some(origin), Some(lba)) => format!(" (volume {origin}, sector {lba})"),
            _ => String::new(),
        };
        let (name, then) = match damage.kind {
            // No copy could be read.
            DamageKind::Superblock if report.uuid.is_none() => {
                ("superblock", "the cache can't be opened; what only it holds is lost")
            }
            kind => explain(kind),
        };
        let (offset, expected, found) = (damage.offset, &damage.expected, &damage.found);
        writeln!(out, "DAMAGED     {name} at byte {offset}{place}: expected {expected}, found {found}; {then}")?;
    }
    match report.damage.len() {
        0 => writeln!(out, "sound       {} verified", human::blocks(report.blocks_verified))?,
        // Without a superblock nothing can be placed.
        places if report.uuid.is_none() => writeln!(out, "damaged     in {}", human::counted(places as u64, "place"))?,
        places => writeln!(
            out,
            "damaged     in {}; `flashfront repair --dry-run` says what can be kept and what is lost",
            human::counted(places as u64, "place")
        )?,
    }
    Ok(out)
}

fn explain(kind: DamageKind) -> (&'static str, &'static str) {
    match kind {
        DamageKind::Superblock => ("superblock", "the next start uses the other copy and mends this one"),
        DamageKind::Checkpoint => ("checkpoint", "the next start may refuse, or find an older state"),
        DamageKind::Log => ("log", "what came after it may be out of reach"),
        DamageKind::CleanData => ("clean block", "it will be read from the origin"),
        DamageKind::DirtyData => ("DIRTY BLOCK", "its content is lost; reads will fail until it is written anew"),
        _ => ("structure", "see the log of the next start"),
    }
}
