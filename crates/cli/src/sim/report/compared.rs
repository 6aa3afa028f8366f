// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of `sim compare`: each task as bars, simulated and published; what happened over
//! time, all jobs merged; latencies; what was dirty.

use std::fmt::{self, Write};

use flashfront_sim::compare::{Cell, Compared, Comparison, Session, Suite, Task};
use flashfront_sim::load::{Pattern, PhaseResult};
use hdrhistogram::Histogram;

use super::axis::Axis;
use super::chart::{Chart, Kind, Series};
use super::look::{self, OURS};
use super::page::escaped;
use super::table::{self, Table};
use super::time::{Course, Time, size_axis};
use crate::human;
use crate::sim::compare::text::{distinct, figure, title};

/// A suite, and what came of it.
pub(in crate::sim) fn compared(
    comparison: &Comparison,
    compared: &[Compared],
    cells: &[Cell],
) -> Result<String, fmt::Error> {
    let suite = comparison.suite;
    let mut out = format!("<p>{}. Published: {}.</p>\n", escaped(suite.summary), escaped(suite.source));
    out.push_str(ABOUT);
    for (nth, session) in comparison.sessions.iter().enumerate() {
        let ran: Vec<Course<'_>> = compared.iter().map(|it| course(it, nth)).collect();
        writeln!(out, "<h2>{}</h2>", escaped(&heading(session)))?;
        out.push_str(&over_time(suite, &ran).svg()?);
        if let Some(chart) = dirty(&ran) {
            out.push_str(&chart.svg()?);
        }
        for task in session.tasks.iter().filter(|task| task.measured_since.is_some()) {
            bars(&mut out, cells, task)?;
        }
        latencies(&mut out, session, &ran);
    }
    Ok(out)
}

const ABOUT: &str = "<p class=\"small\">In virtual time, on models of devices and of the other caches; <b>flashfront</b> is the engine that the daemon has. \
<b>ssd</b>, <b>hdd</b>: the devices alone. Bars are simulated figures; published ones, where there are any, stand in brackets or in a column of their own. A KiB/s is of \
reads where a task has any, else of writes.</p>\n";

/// A system in one session.
fn course(compared: &Compared, session: usize) -> Course<'_> {
    let phases = compared.ran.iter().filter(|ran| ran.session == session).map(|ran| &ran.result);
    Course { system: compared.system, phases: phases.collect() }
}

/// The tasks of a session: all, or the first and the last if there are many.
fn heading(session: &Session) -> String {
    let names: Vec<&str> = session.tasks.iter().map(|task| task.name.as_str()).collect();
    match names[..] {
        [first, _, _, .., last] => format!("Tasks {first} to {last}"),
        _ => names.join(", "),
    }
}

/// Describes a task in words.
fn described(task: &Task) -> String {
    let job = |job: &flashfront_sim::load::Job| {
        let pattern = if matches!(job.pattern, Pattern::Sequential) { "sequential" } else { "random" };
        let what = match job.read_percent {
            0 => "writes".to_owned(),
            100 => "reads".to_owned(),
            share => format!("requests, {share} % reads,"),
        };
        format!("{pattern} {what} of {}, {} in flight", human::bytes(job.block_bytes), job.depth)
    };
    let jobs: Vec<String> = distinct(task.jobs.iter().map(job));
    jobs.join("; ")
}

fn over_time(suite: &Suite, ran: &[Course<'_>]) -> Chart {
    let time = Time::of(ran);
    // Requests are of jobs that all have blocks of 4 KiB: the suites that are told by requests have
    // no others.
    let unit_bytes = if suite.by_iops { 4096.0 } else { 1e6 };
    let series: Vec<Series> = ran.iter().map(|it| it.answered(&time, |per_s| per_s / unit_bytes)).collect();
    let rates: Vec<f64> = series.iter().flat_map(|it| &it.points).map(|it| it.y).collect();
    let label = if suite.by_iops { "requests a second" } else { "MB/s" };
    let rate =
        Axis::from_nothing(label, &rates, |it| if it < 1.0 { super::axis::plain(it) } else { human::count(it as u64) });
    Chart::new("Answered, all jobs together", Kind::Curves, (time.axis, rate), series)
}

/// Draws dirty data over time, if there ever is any. Systems that never have any are not named.
fn dirty(ran: &[Course<'_>]) -> Option<Chart> {
    let time = Time::of(ran);
    let series = ran.iter().map(|it| it.dirty(&time));
    let series: Vec<Series> = series.filter(|it| it.points.iter().any(|point| point.y > 0.0)).collect();
    let most = series.iter().flat_map(|it| &it.points).map(|it| it.y).fold(0.0, f64::max);
    let axes = (time.axis, size_axis("dirty", most));
    (most > 0.0).then(|| Chart::new("Dirty data", Kind::Curves, axes, series))
}

/// A task: a bar for each system and metric of speed, and the other figures behind it.
fn bars(out: &mut String, cells: &[Cell], task: &Task) -> fmt::Result {
    let of_task: Vec<&Cell> = cells.iter().filter(|cell| cell.task == task.name).collect();
    let Some(speed) = of_task.iter().find(|cell| matches!(cell.metric, "kbps" | "iops")).map(|cell| cell.metric) else {
        return Ok(());
    };
    let metrics: Vec<&str> =
        distinct(of_task.iter().map(|cell| cell.metric)).into_iter().filter(|it| *it != speed).collect();
    let most = of_task.iter().filter(|cell| cell.metric == speed).map(|cell| cell.simulated).fold(1.0, f64::max);
    writeln!(out, "<h3>{}: {}</h3>", escaped(&task.name), described(task))?;
    let columns = [title(speed), "published"].into_iter().chain(metrics.iter().copied().map(title));
    let mut table = Table::new(["system", ""], columns);
    for system in distinct(of_task.iter().map(|cell| cell.system)) {
        let cell = |metric| of_task.iter().find(|cell| cell.system == system && cell.metric == metric);
        let Some(main) = cell(speed) else { continue };
        let (wide, colour) = ((main.simulated / most * 120.0).max(1.0), look::of_system(system).colour);
        let bar = table::Cell::drawn(format!("<span class=\"bar f-{colour}\" style=\"width: {wide:.0}px\"></span>"));
        let published = main.published.map_or_else(|| "-".to_owned(), |it| figure(speed, it));
        let mut row = vec![system.into(), bar, figure(speed, main.simulated).into(), published.into()];
        row.extend(metrics.iter().map(|metric| {
            let Some(cell) = cell(metric) else { return "-".into() };
            let simulated = figure(metric, cell.simulated);
            let published = cell.published.map(|it| format!("{simulated} ({})", figure(metric, it)));
            published.unwrap_or(simulated).into()
        }));
        table.row(system == OURS, row);
    }
    out.push_str(&table.html());
    Ok(())
}

/// Times from request to answer, all jobs of a task together.
fn latencies(out: &mut String, session: &Session, ran: &[Course<'_>]) {
    const QUANTILES: [(f64, &str); 6] =
        [(0.5, "50 %"), (0.8, "80 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (1.0, "longest")];
    out.push_str("<h3>Times from request to answer that so many keep</h3>\n");
    let mut table = Table::new(["task", "system"], QUANTILES.map(|it| it.1));
    for (nth, task) in session.tasks.iter().enumerate().filter(|(_, task)| task.measured_since.is_some()) {
        for ran in ran {
            let Some(phase) = ran.phases.get(nth) else { continue };
            let Some(all) = merged(phase) else { continue };
            let times = QUANTILES.map(|(quantile, _)| human::latency(all.value_at_quantile(quantile)).into());
            table.row(ran.system == OURS, [(&task.name).into(), ran.system.into()].into_iter().chain(times));
        }
    }
    out.push_str(&table.html());
}

fn merged(phase: &PhaseResult) -> Option<Histogram<u64>> {
    let mut all = phase.jobs.first()?.read_ns.clone();
    all.reset();
    for job in &phase.jobs {
        all.add(&job.read_ns).and_then(|()| all.add(&job.write_ns)).ok()?;
    }
    (!all.is_empty()).then_some(all)
}
