// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront sim compare`: the published comparisons of caches, run again, with Flashfront in the
//! same table.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use flashfront_bench::Scale;
use flashfront_sim::compare::{ALL, Cell, Compared, Comparison, Suite};
use serde::Serialize;

use self::text::{markdown, table};
use super::report::{self, Report, ReportArgs};
use super::run::NO_RESULTS;
use crate::assert::AssertArgs;
use crate::csv::{self, Column, optional};
use crate::usage::misused;
use crate::{human, interrupt, progress};

mod figures;
pub(super) mod text;

/// Run a published comparison of caches again: its jobs on models of the caches, and on Flashfront.
///
/// The rivals are models built from what is known of them. They run on device models that were
/// calibrated against the bare devices of the same comparisons. Each figure stands beside the
/// published one. docs/laboratory/comparing.md has the results, and what to make of them.
#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// The comparison.
    #[arg(long, value_name = "SUITE", value_parser = suites())]
    suite: String,
    /// Systems, separated by commas; all of the suite's if none are named.
    #[arg(long, value_name = "SYSTEM", value_delimiter = ',')]
    systems: Vec<String>,
    /// End with this task. In a suite of several lines, only the lines that have the task are run.
    #[arg(long, value_name = "TASK")]
    until: Option<String>,
    /// Divide all sizes and times: 1/16 takes a sixteenth of the time. Caches learn as before,
    /// except for what they do by their own clocks. Published figures are left out.
    #[arg(long, value_name = "1/N", default_value = "1")]
    scale: Scale,
    #[command(flatten)]
    assert: AssertArgs,
    /// Print one JSON object.
    #[arg(long, conflicts_with_all = ["csv", "markdown"])]
    json: bool,
    /// Print all figures as CSV.
    #[arg(long, conflicts_with = "markdown")]
    csv: bool,
    /// Print all figures as tables in Markdown, a row for each task.
    #[arg(long)]
    markdown: bool,
    #[command(flatten)]
    report: ReportArgs,
}

/// The suites in [`ALL`].
fn suites() -> PossibleValuesParser {
    PossibleValuesParser::new(ALL.iter().map(|suite| PossibleValue::new(suite.name).help(suite.summary)))
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    suite: &'a str,
    source: &'a str,
    cells: Vec<CellLine<'a>>,
}

#[derive(Debug, Serialize)]
struct CellLine<'a> {
    suite: &'a str,
    task: &'a str,
    system: &'a str,
    metric: &'a str,
    published: Option<f64>,
    simulated: f64,
}

impl Compare {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        self.assert.code(self.compare())
    }

    fn compare(&self) -> anyhow::Result<ExitCode> {
        let report = self.report.open()?;
        let stop = Arc::new(AtomicBool::new(false));
        let heard = Arc::clone(&stop);
        interrupt::on_signal(move || heard.store(true, Ordering::Relaxed))?;
        let suite = ALL.iter().find(|suite| suite.name == self.suite).expect("clap has checked it");
        let comparison = self.comparison(suite)?;
        let verdict = self.assert.read(&figures::names(&comparison))?;
        let compared = watched(&comparison, &stop)?;
        self.tell(&comparison, &compared, report.as_ref())?;
        Ok(verdict.of(|figure| figures::value(&comparison, &compared, figure)))
    }

    /// Prints the figures, and writes the report.
    fn tell(&self, comparison: &Comparison, compared: &[Compared], report: Option<&Report>) -> anyhow::Result<()> {
        let suite = comparison.suite;
        let mut cells = comparison.cells(compared);
        if self.scale != Scale::FULL {
            cells.iter_mut().for_each(|cell| cell.published = None);
        }
        let systems = &comparison.systems;
        let printed = if self.json {
            human::print_json(&line(suite, &cells))
        } else if self.csv {
            human::print(&csv(suite, &cells)?)
        } else if self.markdown {
            human::print(&markdown(suite, systems, &cells)?)
        } else {
            human::tell(&table(suite, systems, &cells)?)
        };
        if let Some(report) = report {
            report.write(&format!("Comparison {}", suite.name), &report::compared(comparison, compared, &cells)?)?;
        }
        printed
    }

    /// Makes the comparison that was asked for.
    fn comparison(&self, suite: &'static Suite) -> anyhow::Result<Comparison> {
        let mut comparison = Comparison::of(suite);
        for name in &self.systems {
            if !comparison.systems.contains(&name.as_str()) {
                misused!("--systems: `{name}`; the suite {} has {}", suite.name, comparison.systems.join(", "));
            }
        }
        if !self.systems.is_empty() {
            comparison.systems.retain(|name| self.systems.iter().any(|asked| asked == name));
        }
        if let Some(task) = &self.until {
            let names = comparison.sessions.iter().flat_map(|session| &session.tasks).map(|it| it.name.clone());
            let names: Vec<String> = names.collect();
            if !comparison.end_with(task) {
                misused!("--until: `{task}`; the suite {} has {}", suite.name, names.join(", "));
            }
        }
        Ok(comparison.scaled(self.scale.divisor()))
    }
}

/// Runs a comparison while a bar shows how far it is.
fn watched(comparison: &Comparison, stop: &AtomicBool) -> anyhow::Result<Vec<Compared>> {
    let bar = progress::of_share("simulating", comparison.work_bytes());
    let compared = comparison.run(&|work| {
        bar.inc(work);
        !stop.load(Ordering::Relaxed)
    });
    bar.finish_and_clear();
    Ok(compared.ok_or(NO_RESULTS)?)
}

fn line<'a>(suite: &'a Suite, cells: &'a [Cell]) -> Line<'a> {
    let cell = |cell: &'a Cell| CellLine {
        suite: suite.name,
        task: &cell.task,
        system: cell.system,
        metric: cell.metric,
        published: cell.published,
        simulated: cell.simulated,
    };
    Line { suite: suite.name, source: suite.source, cells: cells.iter().map(cell).collect() }
}

fn csv(suite: &Suite, cells: &[Cell]) -> anyhow::Result<String> {
    let columns: [Column<(&Suite, &Cell)>; 6] = [
        ("suite", |it| it.0.name.to_owned()),
        ("task", |it| it.1.task.clone()),
        ("system", |it| it.1.system.to_owned()),
        ("metric", |it| it.1.metric.to_owned()),
        ("published", |it| optional(it.1.published)),
        ("simulated", |it| format!("{:.4}", it.1.simulated)),
    ];
    csv::text(&columns, cells.iter().map(|cell| (suite, cell)))
}
