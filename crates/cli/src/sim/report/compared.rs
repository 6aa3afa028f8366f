// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of `sim compare`: each task as bars, simulated and published; what happened over time, all jobs merged; latencies; what was dirty.

use std::fmt::{self, Write};

use flashfront_sim::compare::{Cell, Compared, Comparison, Line, Suite};
use flashfront_sim::load::PhaseResult;
use hdrhistogram::Histogram;

use super::chart::{Axis, Chart, Kind, Point, Series};
use super::look::{self, Look, Marker, OURS, Weight};
use super::page::escaped;
use super::scenario::{size_axis, time_axis, unit_of};
use crate::human;
use crate::sim::compare::text::{distinct, figure, title};
use crate::sim::run::steps::steps;

/// A suite, and what came of it.
pub(in crate::sim) fn compared(
    comparison: &Comparison,
    compared: &[Compared],
    cells: &[Cell],
) -> Result<String, fmt::Error> {
    let suite = comparison.suite;
    let mut out = format!("<p>{}. Published: {}.</p>\n", escaped(suite.summary), escaped(suite.source));
    out.push_str(ABOUT);
    for (nth, line) in comparison.lines.iter().enumerate() {
        let ran: Vec<Ran<'_>> = compared.iter().map(|it| Ran::of(it, nth)).collect();
        let names: Vec<&str> = line.tasks.iter().map(|task| task.name.as_str()).collect();
        writeln!(out, "<h2>{}</h2>", escaped(&names.join(", ")))?;
        out.push_str(&over_time(suite, &ran).svg()?);
        if let Some(chart) = dirty(&ran) {
            out.push_str(&chart.svg()?);
        }
        for task in line.tasks.iter().filter(|task| task.measured_since.is_some()) {
            bars(&mut out, cells, &task.name)?;
        }
        latencies(&mut out, line, &ran)?;
    }
    Ok(out)
}

const ABOUT: &str = "<p class=\"small\">In virtual time, on models of devices and of the other caches; <b>flashfront</b> is the engine that the daemon has. \
<b>ssd</b>, <b>hdd</b>: the devices alone. Bars are simulated figures; published ones, where there are any, stand behind them. A KiB/s of reads where a task has any, \
else of writes.</p>\n";

/// A system in one line.
struct Ran<'a> {
    system: &'static str,
    phases: Vec<&'a PhaseResult>,
}

impl<'a> Ran<'a> {
    fn of(compared: &'a Compared, line: usize) -> Self {
        let phases = compared.ran.iter().filter(|ran| ran.line == line).map(|ran| &ran.result);
        Self { system: compared.system, phases: phases.collect() }
    }

    fn end_s(&self) -> f64 {
        self.phases.iter().map(|phase| phase.time_ns as f64 / 1e9).sum()
    }
}

/// Shape and dashes say what colours say.
fn look(system: &str) -> Look {
    let line = |colour, dashes| Look { colour, marker: Marker::Circle, dashes, weight: Weight::Normal };
    match system {
        OURS => look::of(OURS),
        "hdd" => line("#000000", "7 3"),
        "ssd" => line("#8a8a8a", "2 3"),
        "bcache" => line("#0072b2", ""),
        "bcache 4 MiB" => line("#0072b2", "4 2"),
        "dm-cache" | "lvmcache 4.12" => line("#009e73", "8 2 2 2"),
        "lvmcache 4.11" => line("#cc79a7", "8 2 2 2"),
        "flashcache" => line("#e69f00", "1 2.5"),
        "gflash" => line("#cc79a7", "10 3"),
        _ => line("#56b4e9", "3 2"),
    }
}

/// All phases one after the other: (end of a step, seconds; requests or MB a second).
fn curve(suite: &Suite, ran: &Ran<'_>) -> Vec<(f64, f64, f64)> {
    let (mut begin_s, mut points) = (0.0, Vec::new());
    for phase in &ran.phases {
        // Of jobs that all have the same block: what the suites by requests have.
        let block = 4096.0;
        for step in steps(phase) {
            let per_s = (step.read_bytes + step.write_bytes) as f64 / (step.end_s - step.begin_s).max(1e-9);
            let rate = if suite.by_iops { per_s / block } else { per_s / 1e6 };
            points.push((begin_s + step.begin_s, begin_s + step.end_s, rate));
        }
        begin_s += phase.time_ns as f64 / 1e9;
    }
    thinned(points)
}

/// Neighbours together, so that a picture has some hundreds of them.
fn thinned(points: Vec<(f64, f64, f64)>) -> Vec<(f64, f64, f64)> {
    let several = points.len().div_ceil(400).max(1);
    let mean = |some: &[(f64, f64, f64)]| {
        let (begin, end) = (some[0].0, some[some.len() - 1].1);
        let sum: f64 = some.iter().map(|it| it.2 * (it.1 - it.0)).sum();
        (begin, end, sum / (end - begin).max(1e-9))
    };
    points.chunks(several).map(mean).collect()
}

fn over_time(suite: &Suite, ran: &[Ran<'_>]) -> Chart {
    let end_s = ran.iter().map(Ran::end_s).fold(0.0, f64::max);
    let second = unit_of(end_s).1;
    let point = |x, y| Point { x, y, about: String::new() };
    let series = |ran: &Ran<'_>| Series {
        name: ran.system.to_owned(),
        look: look(ran.system),
        points: curve(suite, ran)
            .into_iter()
            .flat_map(|(begin, end, rate)| [point(begin / second, rate), point(end / second, rate)])
            .collect(),
    };
    let series: Vec<Series> = ran.iter().map(series).collect();
    let most = series.iter().flat_map(|it| &it.points).map(|it| it.y).fold(0.0, f64::max);
    let label = if suite.by_iops { "requests a second" } else { "MB/s" };
    Chart {
        title: "Answered, all jobs together".to_owned(),
        kind: Kind::Curves,
        x: time_axis(end_s),
        y: Axis::around(label, [0.0, most].into_iter(), |it| human::count(it as u64)),
        series,
        levels: Vec::new(),
        moments: Vec::new(),
        front: Vec::new(),
    }
}

/// What is dirty over time, if anything ever is.
fn dirty(ran: &[Ran<'_>]) -> Option<Chart> {
    let end_s = ran.iter().map(Ran::end_s).fold(0.0, f64::max);
    let second = unit_of(end_s).1;
    let series = |ran: &Ran<'_>| {
        let (mut begin_s, mut points) = (0.0, Vec::new());
        for phase in &ran.phases {
            points.extend(
                steps(phase).iter().map(|it| (begin_s + it.begin_s, begin_s + it.end_s, it.dirty_bytes as f64)),
            );
            begin_s += phase.time_ns as f64 / 1e9;
        }
        let points = thinned(points).into_iter();
        Series {
            name: ran.system.to_owned(),
            look: look(ran.system),
            points: points.map(|(_, end, y)| Point { x: end / second, y, about: String::new() }).collect(),
        }
    };
    let series: Vec<Series> = ran.iter().map(series).filter(|it| it.points.iter().any(|point| point.y > 0.0)).collect();
    let most = series.iter().flat_map(|it| &it.points).map(|it| it.y).fold(0.0, f64::max);
    (most > 0.0).then(|| Chart {
        title: "Dirty data".to_owned(),
        kind: Kind::Curves,
        x: time_axis(end_s),
        y: size_axis("dirty", most),
        series,
        levels: Vec::new(),
        moments: Vec::new(),
        front: Vec::new(),
    })
}

/// A task: a bar for each system and metric of speed, and the other figures behind it.
fn bars(out: &mut String, cells: &[Cell], task: &str) -> fmt::Result {
    let of_task: Vec<&Cell> = cells.iter().filter(|cell| cell.task == task).collect();
    let Some(speed) = of_task.iter().find(|cell| matches!(cell.metric, "kbps" | "iops")).map(|cell| cell.metric) else {
        return Ok(());
    };
    let metrics: Vec<&str> =
        distinct(of_task.iter().map(|cell| cell.metric)).into_iter().filter(|it| *it != speed).collect();
    let most = of_task.iter().filter(|cell| cell.metric == speed).map(|cell| cell.simulated).fold(1.0, f64::max);
    write!(out, "<h3>{}</h3>\n<div class=\"wide\"><table>\n<thead><tr><th class=\"name\">system</th>", escaped(task))?;
    write!(out, "<th class=\"name\">{}</th><th></th><th>published</th>", title(speed))?;
    metrics.iter().try_for_each(|metric| write!(out, "<th>{}</th>", title(metric)))?;
    writeln!(out, "</tr></thead>\n<tbody>")?;
    for system in distinct(of_task.iter().map(|cell| cell.system)) {
        let cell = |metric| of_task.iter().find(|cell| cell.system == system && cell.metric == metric);
        let Some(main) = cell(speed) else { continue };
        let class = if system == OURS { " class=\"ours\"" } else { "" };
        let wide = (main.simulated / most * 180.0).max(1.0);
        let published = main.published.map_or_else(|| "-".to_owned(), |it| figure(speed, it));
        write!(out, "<tr{class}><td class=\"name\">{}</td>", escaped(system))?;
        write!(
            out,
            "<td class=\"name\"><svg width=\"182\" height=\"11\" role=\"img\"><rect width=\"{wide:.0}\" height=\"11\" fill=\"{}\"/></svg></td>",
            look(system).colour
        )?;
        write!(out, "<td>{}</td><td>{published}</td>", figure(speed, main.simulated))?;
        for metric in &metrics {
            let text = cell(metric).map_or_else(
                || "-".to_owned(),
                |cell| {
                    let simulated = figure(metric, cell.simulated);
                    cell.published
                        .map_or_else(|| simulated.clone(), |it| format!("{simulated} ({})", figure(metric, it)))
                },
            );
            write!(out, "<td>{text}</td>")?;
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</tbody></table></div>")
}

/// Times from request to answer, all jobs of a task together.
fn latencies(out: &mut String, line: &Line, ran: &[Ran<'_>]) -> fmt::Result {
    const QUANTILES: [(f64, &str); 6] =
        [(0.5, "50 %"), (0.8, "80 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (1.0, "longest")];
    writeln!(out, "<h3>Times from request to answer that so many keep</h3>\n<div class=\"wide\"><table>\n<thead><tr>")?;
    write!(out, "<th class=\"name\">task</th><th class=\"name\">system</th>")?;
    QUANTILES.iter().try_for_each(|(_, name)| write!(out, "<th>{name}</th>"))?;
    writeln!(out, "</tr></thead>\n<tbody>")?;
    for (nth, task) in line.tasks.iter().enumerate().filter(|(_, task)| task.measured_since.is_some()) {
        for ran in ran {
            let Some(phase) = ran.phases.get(nth) else { continue };
            let Some(all) = merged(phase) else { continue };
            let class = if ran.system == OURS { " class=\"ours\"" } else { "" };
            write!(
                out,
                "<tr{class}><td class=\"name\">{}</td><td class=\"name\">{}</td>",
                escaped(&task.name),
                ran.system
            )?;
            for (quantile, _) in QUANTILES {
                write!(out, "<td>{}</td>", human::latency(all.value_at_quantile(quantile)))?;
            }
            writeln!(out, "</tr>")?;
        }
    }
    writeln!(out, "</tbody></table></div>")
}

fn merged(phase: &PhaseResult) -> Option<Histogram<u64>> {
    let mut all = phase.jobs.first()?.read_ns.clone();
    all.reset();
    for job in &phase.jobs {
        all.add(&job.read_ns).and_then(|()| all.add(&job.write_ns)).ok()?;
    }
    (!all.is_empty()).then_some(all)
}
