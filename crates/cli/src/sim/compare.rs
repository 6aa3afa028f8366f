// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront sim compare`: the published comparisons of caches, run again, with Flashfront in the same table.

use std::fmt::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use flashfront_sim::compare::{ALL, Cell, Compared, Comparison, Kind, Suite};
use serde::Serialize;

use super::report::{self, ReportArgs};
use super::run::Interrupted;
use crate::usage::misused;
use crate::{human, interrupt, progress};

/// Run a published comparison of caches again: its jobs on models of the caches, and on Flashfront.
///
/// The rivals are models built from what is known of them, on device models that were calibrated against the bare devices of the same
/// comparisons; each figure stands beside the published one. docs/comparing.md has the results, and what to make of them.
#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// The comparison.
    #[arg(long, value_name = "SUITE", value_parser = suites())]
    suite: String,
    /// Systems, separated by commas; all of the suite's if none are named.
    #[arg(long, value_name = "SYSTEM", value_delimiter = ',')]
    systems: Vec<String>,
    /// End with this task. In a suite of several lines, only those that have it are run.
    #[arg(long, value_name = "TASK")]
    until: Option<String>,
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

/// What [`ALL`] knows.
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
        let report = self.report.open()?;
        let stop = Arc::new(AtomicBool::new(false));
        let heard = Arc::clone(&stop);
        interrupt::on_signal(move || heard.store(true, Ordering::Relaxed))?;
        let suite = ALL.iter().find(|suite| suite.name == self.suite).expect("clap has checked it");
        let comparison = self.comparison(suite)?;
        let compared = watched(&comparison, &stop)?;
        let cells = comparison.cells(&compared);
        let systems = &comparison.systems;
        let printed = if self.json {
            human::print_json(&line(suite, &cells))
        } else if self.csv {
            human::print(&csv(suite, &cells)?)
        } else if self.markdown {
            human::print(&markdown(suite, systems, &cells)?)
        } else {
            human::print(&table(suite, systems, &cells)?)
        };
        if let Some(report) = report {
            report.write(&format!("Comparison {}", suite.name), &report::compared(&comparison, &compared, &cells)?)?;
        }
        printed.map(|()| ExitCode::SUCCESS)
    }

    /// What was asked for.
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
            let names = comparison.lines.iter().flat_map(|line| &line.tasks).map(|it| it.name.clone());
            let names: Vec<String> = names.collect();
            if !comparison.end_with(task) {
                misused!("--until: `{task}`; the suite {} has {}", suite.name, names.join(", "));
            }
        }
        Ok(comparison)
    }
}

/// Runs it while a bar shows how far it is.
fn watched(comparison: &Comparison, stop: &AtomicBool) -> anyhow::Result<Vec<Compared>> {
    let bar = progress::of_share("simulating", comparison.work_bytes());
    let compared = comparison.run(&|work| {
        bar.inc(work);
        !stop.load(Ordering::Relaxed)
    });
    bar.finish_and_clear();
    Ok(compared.ok_or(Interrupted)?)
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

fn csv(suite: &Suite, cells: &[Cell]) -> Result<String, fmt::Error> {
    let mut out = "suite,task,system,metric,published,simulated\n".to_owned();
    for Cell { task, system, metric, published, simulated } in cells {
        let published = published.map_or_else(String::new, |it| it.to_string());
        writeln!(out, "{},{task},{system},{metric},{published},{simulated:.4}", suite.name)?;
    }
    Ok(out)
}

/// A figure as short as it can be read.
pub(super) fn figure(metric: &str, value: f64) -> String {
    match metric {
        "hit_ratio" => format!("{:.2} %", value * 100.0),
        "cache_read_kb" | "cache_write_kb" | "data_read_kb" | "data_write_kb" => format!("{:.0}", value / 1024.0),
        _ => format!("{value:.0}"),
    }
}

pub(super) fn title(metric: &str) -> &str {
    match metric {
        "kbps" => "KiB/s",
        "kbps_write" => "KiB/s written beside",
        "cache_read_kb" => "read from the cache device, MiB",
        "cache_write_kb" => "written to the cache device, MiB",
        "data_read_kb" => "read from the origin, MiB",
        "data_write_kb" => "written to the origin, MiB",
        "dirty_mb" => "dirty at the end, MiB",
        "hit_ratio" => "hits",
        _ => "requests a second",
    }
}

/// In the order of their first cells.
pub(super) fn distinct<'a, T: PartialEq>(all: impl Iterator<Item = T> + 'a) -> Vec<T> {
    let mut distinct = Vec::new();
    for it in all {
        if !distinct.contains(&it) {
            distinct.push(it);
        }
    }
    distinct
}

/// What is told of a task and metric: for each system the simulated figure, and the published one behind it.
fn row(systems: &[&'static str], cells: &[Cell], task: &str, metric: &str) -> Option<Vec<(String, String)>> {
    let of = |system: &&'static str| {
        let cell = cells.iter().find(|cell| cell.task == task && cell.metric == metric && cell.system == *system);
        let simulated = cell.map_or_else(String::new, |cell| figure(metric, cell.simulated));
        (simulated, cell.and_then(|cell| cell.published).map_or_else(String::new, |it| figure(metric, it)))
    };
    let row: Vec<_> = systems.iter().map(of).collect();
    row.iter().any(|(simulated, _)| !simulated.is_empty()).then_some(row)
}

fn table(suite: &Suite, systems: &[&'static str], cells: &[Cell]) -> Result<String, fmt::Error> {
    let mut out = format!("{}: {} ({})\nsimulated (published)\n", suite.name, suite.summary, suite.source);
    for metric in distinct(cells.iter().map(|cell| cell.metric)) {
        writeln!(out, "\n{}", title(metric))?;
        write!(out, "{:<16}", "task")?;
        systems.iter().try_for_each(|system| write!(out, " {system:>18}"))?;
        out.push('\n');
        for task in distinct(cells.iter().map(|cell| cell.task.as_str())) {
            let Some(row) = row(systems, cells, task, metric) else { continue };
            write!(out, "{task:<16}")?;
            for (simulated, published) in row {
                let both = if published.is_empty() { simulated } else { format!("{simulated} ({published})") };
                write!(out, " {both:>18}")?;
            }
            out.push('\n');
        }
    }
    out.push('\n');
    errors(&mut out, suite, systems, cells)?;
    Ok(out)
}

/// How far the models are from what was published.
fn errors(out: &mut String, suite: &Suite, systems: &[&'static str], cells: &[Cell]) -> fmt::Result {
    for (kind, what) in [(Kind::Bytes, "bytes moved"), (Kind::Speed, "speed"), (Kind::Hits, "hits")] {
        let all = suite.errors(cells, kind, None).map(|errors| ("all rivals", errors));
        let each = systems.iter().filter_map(|name| Some((*name, suite.errors(cells, kind, Some(name))?)));
        for (name, errors) in all.into_iter().chain(each) {
            writeln!(
                out,
                "off by, {what:<12} {name:<14} {:>6.1} % in the median, {:>6.1} % in nine of ten, of {} figures",
                errors.median * 100.0,
                errors.nine_of_ten * 100.0,
                errors.cells
            )?;
        }
    }
    Ok(())
}

fn markdown(suite: &Suite, systems: &[&'static str], cells: &[Cell]) -> Result<String, fmt::Error> {
    let mut out = format!(
        "Suite `{}`: {}. Source: {}. Each figure: simulated, published, ratio.\n",
        suite.name, suite.summary, suite.source
    );
    for metric in distinct(cells.iter().map(|cell| cell.metric)) {
        writeln!(out, "\n**{}**\n\n| task | {} |", title(metric), systems.join(" | "))?;
        writeln!(out, "|---|{}", "--:|".repeat(systems.len()))?;
        for task in distinct(cells.iter().map(|cell| cell.task.as_str())) {
            let Some(row) = row(systems, cells, task, metric) else { continue };
            write!(out, "| {task} |")?;
            for (system, (simulated, published)) in systems.iter().zip(row) {
                let found = cells.iter().find(|it| it.task == task && it.metric == metric && it.system == *system);
                let ratio = found.and_then(|cell| Some(cell.simulated / cell.published.filter(|it| *it > 0.0)?));
                let ratio = ratio.map_or_else(String::new, |ratio| format!(", {ratio:.2}"));
                let published = if published.is_empty() { published } else { format!(" / {published}") };
                write!(out, " {simulated}{published}{ratio} |")?;
            }
            out.push('\n');
        }
    }
    out.push_str("\n```\n");
    errors(&mut out, suite, systems, cells)?;
    out.push_str("```\n");
    Ok(out)
}
