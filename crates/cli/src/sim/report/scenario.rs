// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of `sim run`: what must come of the scenario and what did, and each phase over time, ours beside the others.

use std::fmt::{self, Write};

use flashfront_sim::load::PhaseResult;
use flashfront_sim::rival;
use flashfront_sim::scenario::{Outcome, Scenario};

use super::chart::{Axis, Chart, Kind, Point, Scale, Series};
use super::look::{self, Look, Marker, OURS, Weight};
use super::page::escaped;
use crate::human;
use crate::sim::run::steps::{Step, steps};
use crate::sim::run::text::{bound, latency, per_s};

/// A scenario and its outcome.
pub(in crate::sim) fn ran(scenario: &Scenario, outcome: &Outcome) -> Result<String, fmt::Error> {
    let mut out = format!("<p>{}.</p>\n", escaped(scenario.summary.trim_end_matches('.')));
    out.push_str(ABOUT);
    targets(&mut out, outcome)?;
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
        jobs(&mut out, &ran)?;
        traffic(&mut out, &ran)?;
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

/// Shape and dashes say what colours say.
fn look(system: &str) -> Look {
    let line = |colour, dashes| Look { colour, marker: Marker::Circle, dashes, weight: Weight::Normal };
    match system {
        OURS => look::of(OURS),
        "origin" | "hdd" => line("#000000", "7 3"),
        "cache" | "ssd" => line("#0072b2", "2 3"),
        "bound" => line("#009e73", "8 2 2 2"),
        _ => {
            const LOOKS: [(&str, &str); 10] = [
                ("#0072b2", ""),
                ("#009e73", "8 2 2 2"),
                ("#cc79a7", "10 3"),
                ("#e69f00", "1 2.5"),
                ("#56b4e9", "3 2"),
                ("#0072b2", "4 2"),
                ("#009e73", ""),
                ("#cc79a7", "3 2"),
                ("#e69f00", "10 3"),
                ("#56b4e9", ""),
            ];
            let nth = rival::ALL.iter().position(|spec| spec.name == system).unwrap_or(0);
            let (colour, dashes) = LOOKS[nth % LOOKS.len()];
            line(colour, dashes)
        }
    }
}

fn targets(out: &mut String, outcome: &Outcome) -> fmt::Result {
    if outcome.verdicts.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "<div class=\"wide\"><table>\n<thead><tr><th class=\"name\">target</th><th>measured</th><th>target</th><th class=\"name\"></th></tr></thead>\n<tbody>"
    )?;
    for verdict in &outcome.verdicts {
        let measured = verdict.measured.map_or_else(|| "not measured".to_owned(), |it| format!("{it:.3}"));
        let holds = if verdict.holds { "holds" } else { "<b>MISSED</b>" };
        let (name, target) = (escaped(&verdict.name), escaped(&bound(verdict.target)));
        writeln!(
            out,
            "<tr><td class=\"name\">{name}</td><td>{measured}</td><td>{target}</td><td class=\"name\">{holds}</td></tr>"
        )?;
    }
    writeln!(out, "</tbody></table></div>")
}

/// A unit of time that suits so many seconds, and how many of them it has.
pub(super) fn unit_of(end_s: f64) -> (&'static str, f64) {
    match end_s {
        7200.0.. => ("h", 3600.0),
        180.0.. => ("min", 60.0),
        1.0.. => ("s", 1.0),
        _ => ("ms", 1e-3),
    }
}

/// From the beginning of a phase to its end, in the unit that suits it.
pub(super) fn time_axis(end_s: f64) -> Axis {
    let (unit, second) = unit_of(end_s);
    let round = |value: f64| ((value * 1000.0).round() / 1000.0).to_string();
    let axis = Axis::around(&format!("time, {unit}"), [0.0, end_s / second].into_iter(), round);
    // To the end and not beyond, where nothing is.
    let end = (end_s / second).max(1e-9);
    let ticks = axis.ticks.into_iter().filter(|it| it.0 <= end).collect();
    Axis { high: end, ticks, ..axis }
}

/// The steps, a short last one together with the one before it: what it moved by its time is noise.
fn even(phase: &PhaseResult) -> Vec<Step> {
    let mut all = steps(phase);
    if let [.., before, last] = &mut all[..]
        && last.end_s - last.begin_s < (before.end_s - before.begin_s) / 2.0
    {
        last.begin_s = before.begin_s;
        last.read_bytes += before.read_bytes;
        last.write_bytes += before.write_bytes;
        let merged = *last;
        all.truncate(all.len() - 2);
        all.push(merged);
    }
    all
}

fn mb_per_s(step: &Step) -> f64 {
    (step.read_bytes + step.write_bytes) as f64 / 1e6 / (step.end_s - step.begin_s)
}

/// MB/s: from nothing on, but by its logarithm if some are 20 times others, which would be flat at the bottom.
fn rate_axis(rates: &[f64]) -> Axis {
    const LABEL: &str = "MB/s";
    let (least, most) = rates.iter().fold((f64::MAX, 0.0_f64), |(least, most), it| (least.min(*it), most.max(*it)));
    if !(least > 0.0 && most / least > 20.0) {
        return Axis::around(LABEL, [0.0, most].into_iter(), |it| ((it * 1000.0).round() / 1000.0).to_string());
    }
    let powers = (-6..7).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)));
    let (low, high) = (least / 1.2, most * 1.2);
    let ticks = powers.filter(|it| (low..=high).contains(it)).map(|it| (it, format!("{it:.6}")));
    let short = |text: String| text.trim_end_matches('0').trim_end_matches('.').to_owned();
    Axis { label: LABEL.to_owned(), scale: Scale::Log, low, high, ticks: ticks.map(|it| (it.0, short(it.1))).collect() }
}

fn answered(ran: &[(&str, &PhaseResult)]) -> Chart {
    let end_s = ran.iter().map(|it| it.1.time_ns as f64 / 1e9).fold(0.0, f64::max);
    let second = unit_of(end_s).1;
    let series = |&(system, phase): &(&str, &PhaseResult)| {
        let flat = |step: Step| [step.begin_s, step.end_s].map(|at| (at / second, mb_per_s(&step)));
        let points = even(phase).into_iter().flat_map(flat);
        Series {
            name: system.to_owned(),
            look: look(system),
            points: points.map(|(x, y)| Point { x, y, about: String::new() }).collect(),
        }
    };
    let series: Vec<Series> = ran.iter().map(series).collect();
    let rates: Vec<f64> = series.iter().flat_map(|it| &it.points).map(|it| it.y).collect();
    Chart {
        title: "Answered to clients".to_owned(),
        kind: Kind::Curves,
        x: time_axis(end_s),
        y: rate_axis(&rates),
        series,
        levels: Vec::new(),
        moments: Vec::new(),
        front: Vec::new(),
    }
}

/// From nothing to so many bytes.
pub(super) fn size_axis(label: &str, top: f64) -> Axis {
    let size = 1024_f64.powf(top.log(1024.0).floor());
    let mut axis = Axis::around(label, [0.0, top / size].into_iter(), |it| human::bytes((it * size) as u64));
    (axis.low, axis.high) = (axis.low * size, axis.high * size);
    axis.ticks.iter_mut().for_each(|it| it.0 *= size);
    axis
}

/// What is dirty over time, if anything ever is.
fn dirty(phase: &PhaseResult) -> Option<Chart> {
    let steps = steps(phase);
    let limit = phase.after.dirty_limit_bytes as f64;
    let (end_s, before) = (phase.time_ns as f64 / 1e9, phase.before.dirty_bytes as f64);
    let most = steps.iter().map(|it| it.dirty_bytes as f64).fold(before, f64::max);
    if most == 0.0 {
        return None;
    }
    let second = unit_of(end_s).1;
    let ends = steps.iter().map(|it| (it.end_s / second, it.dirty_bytes as f64));
    let points = [(0.0, before)].into_iter().chain(ends).map(|(x, y)| Point { x, y, about: String::new() });
    let y = size_axis("dirty", most.max(limit));
    let level = (limit, format!("limit, {}", human::bytes(phase.after.dirty_limit_bytes)));
    Some(Chart {
        title: "Dirty data".to_owned(),
        kind: Kind::Curves,
        x: time_axis(end_s),
        y,
        series: vec![Series { name: OURS.to_owned(), look: look(OURS), points: points.collect() }],
        levels: if limit > 0.0 { vec![level] } else { Vec::new() },
        moments: Vec::new(),
        front: Vec::new(),
    })
}

fn row(out: &mut String, system: &str, names: &[&str], cells: &[String]) -> fmt::Result {
    let class = if system == OURS { " class=\"ours\"" } else { "" };
    write!(out, "<tr{class}>")?;
    names.iter().try_for_each(|name| write!(out, "<td class=\"name\">{}</td>", escaped(name)))?;
    cells.iter().try_for_each(|cell| write!(out, "<td>{cell}</td>"))?;
    writeln!(out, "</tr>")
}

fn head(out: &mut String, names: &[&str], columns: &[&str]) -> fmt::Result {
    write!(out, "<div class=\"wide\"><table>\n<thead><tr>")?;
    names.iter().try_for_each(|name| write!(out, "<th class=\"name\">{name}</th>"))?;
    columns.iter().try_for_each(|column| write!(out, "<th>{column}</th>"))?;
    writeln!(out, "</tr></thead>\n<tbody>")
}

fn jobs(out: &mut String, ran: &[(&str, &PhaseResult)]) -> fmt::Result {
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
    head(out, &["system", "job"], &COLUMNS)?;
    for (system, phase) in ran {
        for job in &phase.jobs {
            let counts = [job.reads, job.writes, job.flushes].map(|count| format!("{:.0}", per_s(job, count)));
            let mut cells = counts.to_vec();
            cells.push(format!("{:.1}", per_s(job, job.read_bytes + job.write_bytes) / 1e6));
            for histogram in [&job.read_ns, &job.write_ns] {
                cells.extend([0.5, 0.99, 1.0].map(|quantile| latency(histogram, quantile)));
            }
            cells.push(latency(&job.flush_ns, 0.99));
            row(out, system, &[system, &job.name], &cells)?;
        }
    }
    writeln!(out, "</tbody></table></div>")
}

/// What went to and from each device. A device alone is counted as an origin.
fn traffic(out: &mut String, ran: &[(&str, &PhaseResult)]) -> fmt::Result {
    head(out, &["system", "device"], &["read", "written", "I/Os", "flushes", "hits of reads", "dirty at the end"])?;
    for (system, phase) in ran {
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
            row(
                out,
                system,
                &[system, if matches!(*system, "cache" | "ssd") { "cache device" } else { "origin" }],
                &origin,
            )?;
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
        row(out, system, &[system, "cache device"], &cache)?;
        row(out, system, &[system, "origin"], &origin)?;
    }
    writeln!(out, "</tbody></table></div>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_that_differ_much_are_drawn_by_their_logarithm() {
        assert_eq!(rate_axis(&[1.0, 19.0]).scale, Scale::Linear);
        assert_eq!(rate_axis(&[0.0, 190.0]).scale, Scale::Linear, "zero has no logarithm");
        let axis = rate_axis(&[0.7, 350.0]);
        assert_eq!(axis.scale, Scale::Log);
        assert_eq!(axis.ticks.first().map(|it| &*it.1), Some("1"));
        assert_eq!(axis.ticks.last().map(|it| &*it.1), Some("200"));
    }

    #[test]
    fn time_ends_with_the_phase() {
        for (end_s, label, high) in [(0.25, "time, ms", 250.0), (7.0, "time, s", 7.0), (14_400.0, "time, h", 4.0)] {
            let axis = time_axis(end_s);
            assert_eq!((&*axis.label, axis.high), (label, high));
            assert!(axis.ticks.iter().all(|it| it.0 <= high), "{axis:?}");
        }
    }
}
