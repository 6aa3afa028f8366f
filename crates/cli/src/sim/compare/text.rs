// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results of `sim compare`, as tables for a terminal and in Markdown.

use std::fmt::{self, Write};

use flashfront_sim::compare::{Cell, Kind, Suite};

use crate::columns::Columns;

/// A figure as short as it can be read.
pub(in crate::sim) fn figure(metric: &str, value: f64) -> String {
    match metric {
        "hit_ratio" => format!("{:.2} %", value * 100.0),
        "cache_read_kb" | "cache_write_kb" | "data_read_kb" | "data_write_kb" => format!("{:.0}", value / 1024.0),
        _ => format!("{value:.0}"),
    }
}

pub(in crate::sim) fn title(metric: &str) -> &str {
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

/// Returns each value once, in the order of their first cells.
pub(in crate::sim) fn distinct<'a, T: PartialEq>(all: impl Iterator<Item = T> + 'a) -> Vec<T> {
    let mut distinct = Vec::new();
    for it in all {
        if !distinct.contains(&it) {
            distinct.push(it);
        }
    }
    distinct
}

/// Returns the row of a task and metric: for each system the simulated figure, and the published
/// one behind it.
fn row(systems: &[&'static str], cells: &[Cell], task: &str, metric: &str) -> Option<Vec<(String, String)>> {
    let of = |system: &&'static str| {
        let cell = cells.iter().find(|cell| cell.task == task && cell.metric == metric && cell.system == *system);
        let simulated = cell.map_or_else(String::new, |cell| figure(metric, cell.simulated));
        (simulated, cell.and_then(|cell| cell.published).map_or_else(String::new, |it| figure(metric, it)))
    };
    let row: Vec<_> = systems.iter().map(of).collect();
    row.iter().any(|(simulated, _)| !simulated.is_empty()).then_some(row)
}

pub(super) fn table(suite: &Suite, systems: &[&'static str], cells: &[Cell]) -> Result<String, fmt::Error> {
    let mut out = format!("{}: {} ({})\nsimulated (published)\n", suite.name, suite.summary, suite.source);
    for metric in distinct(cells.iter().map(|cell| cell.metric)) {
        writeln!(out, "\n{}", title(metric))?;
        let mut table = Columns::new(["task"], systems);
        for task in distinct(cells.iter().map(|cell| cell.task.as_str())) {
            let Some(row) = row(systems, cells, task, metric) else { continue };
            let both = |(simulated, published): (String, String)| {
                if published.is_empty() { simulated } else { format!("{simulated} ({published})") }
            };
            table.row([task.to_owned()].into_iter().chain(row.into_iter().map(both)));
        }
        out.push_str(&table.text());
    }
    out.push('\n');
    errors(&mut out, suite, systems, cells)?;
    Ok(out)
}

/// Tells how far the models are from the published figures.
fn errors(out: &mut String, suite: &Suite, systems: &[&'static str], cells: &[Cell]) -> fmt::Result {
    for (kind, what) in [(Kind::Bytes, "bytes moved"), (Kind::Speed, "speed"), (Kind::Hits, "hits")] {
        let all = suite.errors(cells, kind, None).map(|errors| ("all rivals", errors));
        let each = systems.iter().filter_map(|name| Some((*name, suite.errors(cells, kind, Some(name))?)));
        for (name, errors) in all.into_iter().chain(each) {
            writeln!(
                out,
                "off by, {what:<11} {name:<10} {:>6.1} % median, {:>6.1} % nine of ten, {} figures",
                errors.median * 100.0,
                errors.nine_of_ten * 100.0,
                errors.cells
            )?;
        }
    }
    Ok(())
}

pub(super) fn markdown(suite: &Suite, systems: &[&'static str], cells: &[Cell]) -> Result<String, fmt::Error> {
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
