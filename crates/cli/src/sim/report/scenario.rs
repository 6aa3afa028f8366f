// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of `sim run`: what must come of the scenario and what did, and each phase over time,
//! ours beside the others.

use std::fmt::{self, Write};

use flashfront_sim::load::PhaseResult;
use flashfront_sim::scenario::{Judged, Scenario};

use super::axis::{Axis, plain};
use super::chart::{Chart, Kind};
use super::look::OURS;
use super::page::escaped;
use super::table::{Cell, Table};
use super::time::{Course, Time, size_axis};
use crate::human;
use crate::sim::run::text::{bound, latency, per_s};

/// A scenario and its outcome.
pub(in crate::sim) fn ran(scenario: &Scenario, outcome: &Judged) -> Result<String, fmt::Error> {
    let mut out = format!("<p>{}.</p>\n", escaped(scenario.summary.trim_end_matches('.')));
    out.push_str(ABOUT);
    targets(&mut out, outcome);
    for (nth, phase) in scenario.phases.iter().enumerate() {
        let ran = outcome.systems.iter().filter_map(|ran| Some((ran.system, ran.phases[nth].as_ref()?)));
        let ran: Vec<(&str, &PhaseResult)> = ran.collect();
        writeln!(out, "<h2>{}</h2>", escaped(&phase.name))?;
        if phase.idle_ns > 0 {
            let idle = human::span(phase.idle_ns / 1_000_000_000);
            writeln!(out, "<p class=\"small\">After {idle} in which nobody asked for anything.</p>")?;
        }
        out.push_str(&answered(&ran).svg()?);
        if let Some(chart) = ran.iter().find(|it| it.0 == OURS).and_then(|it| dirty(it.1)) {
            out.push_str(&chart.svg()?);
        }
        jobs(&mut out, &ran);
        traffic(&mut out, &ran);
    }
    Ok(out)
}

const ABOUT: &str = "<p class=\"small\">In virtual time, on models of devices. <b>flashfront</b>: the engine that the daemon has, with a \
cache. <b>origin</b> or <b>hdd</b>, <b>cache</b> or <b>ssd</b>: the disk and the cache device alone, asked for the same; other names: models of other caches. <b>bound</b>: the disk alone, asked for the best that can \
be made of it. A MB is 10<sup>6</sup> bytes. Latencies are from a request, or from when it should have come, to its answer.</p>\n";

/// A device without a cache.
fn is_bare(system: &str) -> bool {
    matches!(system, "origin" | "cache" | "bound" | "hdd" | "ssd")
}

fn targets(out: &mut String, outcome: &Judged) {
    if outcome.verdicts.is_empty() {
        return;
    }
    let mut table = Table::new(["target"], ["measured", "wanted", "verdict"]);
    for verdict in &outcome.verdicts {
        let measured = verdict.measured.map_or_else(|| "not measured".to_owned(), |it| format!("{it:.3}"));
        let holds = if verdict.holds { Cell::text("holds") } else { Cell::text("MISSED").marked() };
        table.row(false, [(&verdict.name).into(), measured.into(), bound(verdict.target).into(), holds]);
    }
    out.push_str(&table.html());
}

fn answered(ran: &[(&str, &PhaseResult)]) -> Chart {
    let courses = courses(ran);
    let time = Time::of(&courses);
    let series: Vec<_> = courses.iter().map(|it| it.answered(&time, |per_s| per_s / 1e6)).collect();
    let rates: Vec<f64> = series.iter().flat_map(|it| &it.points).map(|it| it.y).collect();
    let rate = Axis::from_nothing("MB/s", &rates, plain);
    Chart::new("Answered to clients", Kind::Curves, (time.axis, rate), series)
}

fn courses<'a>(ran: &[(&'a str, &'a PhaseResult)]) -> Vec<Course<'a>> {
    ran.iter().map(|(system, phase)| Course { system, phases: vec![*phase] }).collect()
}

/// Draws dirty data over time, if there ever is any.
fn dirty(phase: &PhaseResult) -> Option<Chart> {
    let course = [Course { system: OURS, phases: vec![phase] }];
    let time = Time::of(&course);
    let series = course[0].dirty(&time);
    let most = series.points.iter().map(|it| it.y).fold(0.0, f64::max);
    if most == 0.0 {
        return None;
    }
    let (limit, told) = (phase.after.dirty_limit_bytes as f64, human::bytes(phase.after.dirty_limit_bytes));
    // Beside a limit that is far away, what is dirty would be flat.
    let is_near = limit > 0.0 && limit / most <= 5.0;
    let title =
        if limit == 0.0 || is_near { "Dirty data".to_owned() } else { format!("Dirty data, of {told} allowed") };
    let axes = (time.axis, size_axis("dirty", if is_near { most.max(limit) } else { most }));
    let chart = Chart::new(&title, Kind::Curves, axes, vec![series]);
    Some(Chart { level: is_near.then(|| (limit, format!("limit, {told}"))), ..chart })
}

fn jobs(out: &mut String, ran: &[(&str, &PhaseResult)]) {
    const COLUMNS: [&str; 11] = [
        "reads/s",
        "writes/s",
        "FLUSHes/s",
        "MB/s",
        "read p50",
        "read p99",
        "longest read",
        "write p50",
        "write p99",
        "longest write",
        "FLUSH p99",
    ];
    let mut table = Table::new(["system", "job"], COLUMNS);
    for (system, phase) in ran {
        for job in &phase.jobs {
            let counts =
                [job.reads, job.writes, job.flushes].map(|count| human::count(per_s(job, count).round() as u64));
            let mut cells = vec![(*system).to_owned(), job.name.clone()];
            cells.extend(counts);
            cells.push(format!("{:.1}", per_s(job, job.read_bytes + job.write_bytes) / 1e6));
            for histogram in [&job.read_ns, &job.write_ns] {
                cells.extend([0.5, 0.99, 1.0].map(|quantile| latency(histogram, quantile)));
            }
            cells.push(latency(&job.flush_ns, 0.99));
            table.row(*system == OURS, cells.into_iter().map(Cell::from));
        }
    }
    out.push_str(&table.html());
}

/// Writes the traffic of each device. A device alone is counted as an origin.
fn traffic(out: &mut String, ran: &[(&str, &PhaseResult)]) {
    let mut table =
        Table::new(["system", "device"], ["read", "written", "I/Os", "flushes", "hits of reads", "dirty at the end"]);
    for (system, phase) in ran {
        let mut row = |device: &str, figures: [String; 6]| {
            let cells = [(*system).into(), device.into()].into_iter().chain(figures.map(Cell::from));
            table.row(*system == OURS, cells);
        };
        let (before, after) = (&phase.before, &phase.after);
        let dash = || "-".to_owned();
        let origin = [
            human::bytes(after.origin_read_bytes - before.origin_read_bytes),
            human::bytes(after.origin_write_bytes - before.origin_write_bytes),
            human::count(after.origin_ios - before.origin_ios),
            human::count(after.origin_flushes - before.origin_flushes),
            dash(),
            dash(),
        ];
        if is_bare(system) {
            row(if matches!(*system, "cache" | "ssd") { "cache device" } else { "origin" }, origin);
            continue;
        }
        let reads = after.read_blocks - before.read_blocks;
        let hits = (reads > 0).then(|| (after.read_hit_blocks - before.read_hit_blocks) as f64 / reads as f64);
        let cache = [
            human::bytes(after.cache_read_bytes - before.cache_read_bytes),
            human::bytes(after.cache_write_bytes - before.cache_write_bytes),
            dash(),
            human::count(after.cache_flushes - before.cache_flushes),
            human::percent(hits),
            human::bytes(after.dirty_bytes),
        ];
        row("cache device", cache);
        row("origin", origin);
    }
    out.push_str(&table.html());
}
