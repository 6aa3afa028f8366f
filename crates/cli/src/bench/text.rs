// SPDX-License-Identifier: MIT OR Apache-2.0
//! The texts of a bench for people: the plan before, the tables after.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use flashfront_bench::results::Ratio;
use flashfront_bench::{Bench, Headline, Plan, Results, Row};

use crate::columns::Columns;
use crate::human;

/// Tells what is about to happen.
pub(super) fn begins(bench: &Bench, plan: &Plan, folder: &Path) -> String {
    let mut out = String::new();
    let targets: Vec<&str> = bench.targets.iter().map(|target| target.name.as_str()).collect();
    // A string takes every line.
    let _ = writeln!(out, "suite       {}: {}", bench.suite.name, bench.suite.summary);
    let _ = writeln!(out, "targets     {}", targets.join(", "));
    let runs = human::counted(plan.steps.len() as u64, "run");
    let _ = writeln!(out, "time        about {}, for {runs}", human::span(plan.expected(bench).as_secs()));
    for lost in &plan.destroyed {
        let _ = writeln!(out, "destroys    {lost}");
    }
    for note in &bench.suite.scaling {
        let _ = writeln!(out, "scale {:<5} {note}", bench.scale.to_string());
    }
    let _ = writeln!(out, "results     {}", folder.display());
    out
}

/// Tells what [`begins`] does, with all commands, for `--dry-run`.
pub(super) fn plan(bench: &Bench, plan: &Plan, folder: &Path) -> String {
    let mut out = begins(bench, plan, folder);
    let mut last = None;
    for step in &plan.steps {
        let turn = (step.repeat, step.group, step.target);
        if last != Some(turn) {
            let _ = writeln!(out, "\n# turn {} on {}", step.repeat, step.target_name);
            if let Some(command) = bench.before.get(&step.target_name) {
                let _ = writeln!(out, "{command}");
            }
            last = Some(turn);
        }
        for command in bench.commands(step, folder) {
            let words: Vec<String> = command.iter().map(|word| human::quoted(Path::new(word))).collect();
            let _ = writeln!(out, "{}", words.join(" "));
        }
        let next = plan.steps.iter().skip_while(|it| *it != step).nth(1);
        let is_last = next.is_none_or(|next| (next.repeat, next.group, next.target) != turn);
        if let Some(command) = bench.after.get(&step.target_name).filter(|_| is_last) {
            let _ = writeln!(out, "{command}");
        }
    }
    out
}

/// How to go on after an end before the end.
pub(super) fn go_on(folder: &Path, destroy_data: &[String]) -> String {
    let words: String =
        destroy_data.iter().map(|it| format!(" --destroy-data {}", human::quoted(Path::new(it)))).collect();
    format!("next        flashfront bench --resume {}{words}\n", human::quoted(folder))
}

/// The tables.
pub(super) fn results(results: &Results) -> String {
    let mut out = String::new();
    let several = results.targets.len() > 1;
    let has_requests = results.results.iter().any(|row| row.iops > 0.0);
    let is_timed = results.results.iter().any(|row| row.headline == Headline::Seconds);
    let mut figures = if has_requests { vec!["IOPS", "MiB/s", "p50", "p99"] } else { Vec::new() };
    figures.extend(is_timed.then_some("time"));
    if several {
        figures.push("ratio");
    }
    let repeated = results.results.iter().any(|row| row.repeats > 1);
    if repeated {
        figures.extend(["least", "largest"].into_iter().filter(|_| several));
        figures.push("spread");
    }
    let mut table = Columns::new(["job", "target"], figures);
    for row in &results.results {
        let mut cells = vec![row.job.clone(), row.target.clone()];
        cells.extend(has_requests.then(|| cells_of(row)).into_iter().flatten());
        cells.extend(is_timed.then(|| time_of(row)));
        let ratio = |of: fn(&Ratio) -> f64| {
            row.ratio.as_ref().map_or_else(|| "-".to_owned(), |ratio| format!("{:.2}", of(ratio)))
        };
        if several {
            cells.push(ratio(|it| it.median));
        }
        if repeated {
            if several {
                cells.extend([ratio(|it| it.least), ratio(|it| it.largest)]);
            }
            cells.push(human::percent(Some(row.spread)));
        }
        table.row(cells);
    }
    out += &table.text();
    if several {
        let first = results.targets.first().map_or("", |target| &target.name);
        let _ = writeln!(
            out,
            "\nratio: how many times as fast as {first}, of runs in the same turn{}",
            if repeated { "; the median, the least, the largest" } else { "" }
        );
    }
    if let Some(published) = published(results) {
        let _ = writeln!(out, "\npublished: {}", results.source.as_deref().unwrap_or_default());
        out += &published;
    }
    for target in &results.targets {
        for note in &target.notes {
            let _ = writeln!(out, "{}: {note}", target.name);
        }
    }
    for note in &results.scaling {
        let _ = writeln!(out, "scale {}: {note}", results.scale);
    }
    if !results.complete {
        let _ = writeln!(out, "NOT COMPLETE: the bench was ended before all runs were made");
    }
    if !results.quiet {
        let _ = writeln!(
            out,
            "NOT QUIET: the machine did something else during {}:",
            human::counted(results.disturbed.len() as u64, "run")
        );
        for run in &results.disturbed {
            let _ = writeln!(out, "  turn {}, {}, {}: {}", run.repeat, run.target, run.job, run.by.join("; "));
        }
    }
    out
}

/// How long the runs of a job took, if that is its figure.
fn time_of(row: &Row) -> String {
    let mut all: Vec<f64> = row.runs.iter().map(|run| run.measured.seconds).collect();
    all.sort_by(f64::total_cmp);
    let median = all.get(all.len() / 2).filter(|_| row.headline == Headline::Seconds);
    median.map_or_else(|| "-".to_owned(), |it| seconds(*it))
}

/// A time with three digits or so.
pub(super) fn seconds(seconds: f64) -> String {
    human::latency((seconds * 1e9) as u64)
}

fn cells_of(row: &Row) -> [String; 4] {
    if row.iops == 0.0 {
        return std::array::from_fn(|_| "-".to_owned());
    }
    [
        human::count(row.iops.round() as u64),
        format!("{:.1}", row.bandwidth_kib_s / 1024.0),
        human::latency((row.p50_us * 1e3) as u64),
        human::latency((row.p99_us * 1e3) as u64),
    ]
}

/// The source's rates for the jobs that ran; none if there are none.
fn published(results: &Results) -> Option<String> {
    let is_rate = |metric: &str| matches!(metric, "iops" | "kbps");
    let rows: Vec<&Row> = results.results.iter().filter(|row| row.target == results.targets[0].name).collect();
    let systems: BTreeSet<&str> = rows
        .iter()
        .flat_map(|row| &row.published)
        .filter(|it| is_rate(&it.metric))
        .map(|it| it.system.as_str())
        .collect();
    if systems.is_empty() {
        return None;
    }
    let unit = if rows.iter().flat_map(|row| &row.published).any(|it| it.metric == "iops") {
        "I/Os a second"
    } else {
        "KiB/s"
    };
    let mut table = Columns::new(["job", "in"], &systems);
    for row in rows {
        let figure = |system: &&str| {
            let found = row.published.iter().find(|it| it.system == **system && is_rate(&it.metric));
            found.map_or_else(|| "-".to_owned(), |it| human::count(it.value.round() as u64))
        };
        let cells = [row.job.clone(), unit.to_owned()].into_iter().chain(systems.iter().map(figure));
        table.row(cells.collect::<Vec<_>>());
    }
    Some(table.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_on_says_again_what_may_be_destroyed() {
        let told = go_on(Path::new("/r/a b"), &["/dev/sdb".to_owned()]);
        assert_eq!(told, "next        flashfront bench --resume '/r/a b' --destroy-data /dev/sdb\n");
    }
}
