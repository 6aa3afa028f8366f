// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront sim run`: a scenario, or a job file of fio, on device models.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use flashfront_sim::rival;
use flashfront_sim::scenario::{Beside, Judged, Scenario};

use self::job::JobArgs;
use super::report::{self, ReportArgs};
use crate::interrupt::Interrupted;
use crate::usage::misused;
use crate::{human, interrupt, progress};

mod job;
mod json;
mod scenario;
pub(super) mod steps;
pub(super) mod text;

/// Run a scenario, or a job file of fio, on the production engine and on bare devices, in virtual
/// time. Judge what must come of it.
///
/// The devices are models that were calibrated against published measurements (`flashfront sim
/// calibrate`); the processor costs nothing. Scenarios are in bench/scenarios;
/// docs/laboratory/scenarios.md says how to write a scenario. The command fails if a target is
/// missed.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The scenario, a TOML file.
    #[arg(value_name = "SCENARIO", required_unless_present = "job")]
    scenario: Option<PathBuf>,
    #[command(flatten)]
    job: JobArgs,
    /// Systems that run the same beside Flashfront, separated by commas: hdd, ssd, models of other
    /// caches. hdd and ssd are the devices alone, in a scenario only in the phases that say so.
    #[arg(long, value_name = "SYSTEM", value_delimiter = ',')]
    systems: Vec<String>,
    /// Print one JSON object.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print what happened over time as CSV: a line for each system, phase and interval.
    #[arg(long)]
    csv: bool,
    #[command(flatten)]
    report: ReportArgs,
}

/// A run that a signal ended has no results.
pub(super) const NO_RESULTS: Interrupted = Interrupted("there are no results, and no report was written");

impl Run {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let report = self.report.open()?;
        // Signals are heard before the scenario is read: its file may be a pipe.
        let stop = Arc::new(AtomicBool::new(false));
        let heard = Arc::clone(&stop);
        interrupt::on_signal(move || heard.store(true, Ordering::Relaxed))?;
        let beside = beside(&self.systems)?;
        let (kind, mut scenario) = match (&self.job.job, &self.scenario) {
            (Some(job), _) => ("Job", self.job.read(job)?),
            (None, Some(path)) => ("Scenario", scenario::read(path)?),
            (None, None) => misused!("a scenario, or --job"),
        };
        scenario.beside.extend(beside);
        let outcome = watched(&scenario, &stop)?;
        let printed = if self.json {
            human::print_json(&json::line(&scenario, &outcome))
        } else if self.csv {
            human::print(&text::csv(&scenario, &outcome)?)
        } else {
            human::tell(&text::table(&scenario, &outcome)?)
        };
        if let Some(report) = report {
            report.write(&format!("{kind} {}", scenario.name), &report::ran(&scenario, &outcome)?)?;
        }
        human::read_or_not(printed)?;
        let all = outcome.verdicts.iter().all(|verdict| verdict.holds);
        Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Finds the systems, in the order in which they are named. Flashfront runs anyway.
fn beside(names: &[String]) -> anyhow::Result<Vec<Beside>> {
    let mut beside = Vec::new();
    for (nth, name) in names.iter().enumerate() {
        if names[..nth].contains(name) {
            continue;
        }
        beside.push(match name.as_str() {
            "flashfront" => continue,
            "hdd" => Beside::Origin("hdd"),
            "ssd" => Beside::Cache("ssd"),
            name => match rival::ALL.iter().find(|spec| spec.name == name) {
                Some(spec) => Beside::Rival(spec),
                None => {
                    let rivals = rival::ALL.iter().map(|it| it.name);
                    let all: Vec<&str> = ["flashfront", "hdd", "ssd"].into_iter().chain(rivals).collect();
                    misused!("--systems: `{name}`; there are {}", all.join(", "))
                }
            },
        });
    }
    Ok(beside)
}

/// Runs a scenario while a bar shows how far it is.
fn watched(scenario: &Scenario, stop: &AtomicBool) -> anyhow::Result<Judged> {
    let bar = progress::of_share("simulating", scenario.work_bytes());
    let outcome = scenario.run(&mut |work| {
        bar.inc(work);
        !stop.load(Ordering::Relaxed)
    });
    bar.finish_and_clear();
    Ok(outcome.ok_or(NO_RESULTS)?)
}
