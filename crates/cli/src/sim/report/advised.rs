// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of `advise`: the time of a request over the size of the cache, hits, writes to flash,
//! and all figures.

use std::fmt::{self, Write};

use flashfront_engine::Mode;
use flashfront_sim::advise::{Advice, POINTS, Played, Question, Trial};

use super::axis::{Axis, Scale, plain};
use super::chart::{Chart, Kind, Point, Series};
use super::look::{self, OURS};
use super::page::{escaped, path};
use super::table::Table;
use crate::advise::devices::Devices;
use crate::advise::told;
use crate::human;

pub(crate) fn advised(
    name: &str,
    question: &Question,
    devices: &Devices,
    advice: &Advice,
) -> Result<String, fmt::Error> {
    let mut out = String::new();
    writeln!(
        out,
        "<p>{}: {}. Played in virtual time to a model of {} alone, and to the production engine with caches on {}; the first half fills the cache, the second is measured. The processor costs nothing.</p>",
        path(name),
        escaped(&told::trace(advice)),
        question.origin.name,
        question.cache.name
    )?;
    for probe in devices.probe.iter().chain(&devices.cache_probe) {
        writeln!(out, "<p>{}</p>", escaped(&probe.told()))?;
    }
    for line in told::conclusions(question, advice) {
        writeln!(out, "<p><b>{}</b></p>", escaped(&line))?;
    }
    let chosen = advice.choice.map(|choice| (choice.cache_bytes as f64, "advised".to_owned()));
    let chart = |title: &str, y: Axis, of: &dyn Fn(&Played) -> f64, told_as: &dyn Fn(&Played) -> String| {
        let chart = Chart::new(title, Kind::Lines, (sizes_axis(advice), y), vec![series(advice, of, told_as)]);
        Chart { moment: chosen.clone(), ..chart }
    };
    let alone_ms = ms(&advice.alone.played);
    let means: Vec<f64> = advice.sizes.iter().map(|trial| ms(&trial.played)).chain([alone_ms]).collect();
    let times = Axis::from_nothing("mean of a request, ms", &means, plain);
    let mut time = chart("What a request takes over the size of the cache", times, &ms, &|played| {
        human::latency(played.mean_ns())
    });
    time.level = Some((alone_ms, format!("disk alone, {}", human::latency(advice.alone.played.mean_ns()))));
    out.push_str(&time.svg()?);
    if advice.survey.reads > 0 {
        let hits = |played: &Played| played.read_hit_ratio().unwrap_or(0.0) * 100.0;
        let axis = Axis::around("hits, %", advice.sizes.iter().map(|trial| hits(&trial.played)), plain);
        let told = |played: &Played| human::percent(played.read_hit_ratio());
        out.push_str(&chart("Blocks read that were in the cache", axis, &hits, &told).svg()?);
    }
    let gib = |played: &Played| played.traffic.cache_write_bytes as f64 / (1_u64 << 30) as f64;
    let all: Vec<f64> = advice.sizes.iter().map(|trial| gib(&trial.played)).collect();
    let axis = Axis::from_nothing("written to flash, GiB", &all, plain);
    let told = |played: &Played| human::bytes(played.traffic.cache_write_bytes);
    out.push_str(&chart("What is written to the cache device", axis, &gib, &told).svg()?);
    out.push_str(&footprint(advice).svg()?);
    table(&mut out, advice)?;
    Ok(out)
}

/// Draws the bytes that the trace has touched by then: whether it still grows.
fn footprint(advice: &Advice) -> Chart {
    let growth = &advice.growth.touched_bytes;
    let at = |nth: usize| nth as f64 * 100.0 / POINTS as f64;
    let mib = |bytes: u64| bytes as f64 / (1_u64 << 20) as f64;
    let points = [0].into_iter().chain(growth.iter().copied()).enumerate().map(|(nth, bytes)| Point {
        x: at(nth),
        y: mib(bytes),
        about: format!("{} of the requests: {}", human::percent(Some(at(nth) / 100.0)), human::bytes(bytes)),
    });
    let points: Vec<Point> = points.collect();
    let x = Axis::around("requests, %", points.iter().map(|it| it.x), plain);
    let y = Axis::around("touched, MiB", points.iter().map(|it| it.y), plain);
    let series = Series { name: "touched".to_owned(), look: look::of_policy(OURS), points };
    let title = if advice.converged.is_converged() {
        "What the trace touches over its time"
    } else {
        "What the trace touches over its time: the recording is too short"
    };
    Chart::new(title, Kind::Curves, (x, y), vec![series])
}

fn ms(played: &Played) -> f64 {
    played.mean_ns() as f64 / 1e6
}

fn size_of(trial: &Trial) -> f64 {
    trial.cache.map_or(0, |it| it.0) as f64
}

fn sizes_axis(advice: &Advice) -> Axis {
    let ticks: Vec<_> = advice.sizes.iter().map(|trial| (size_of(trial), told::setup(trial).0)).collect();
    let (low, high) = ticks.iter().fold((f64::MAX, 1.0), |(low, high), it| (it.0.min(low), it.0.max(high)));
    // Some room, so that marks don't lie on the axis.
    Axis { label: "size of the cache".to_owned(), scale: Scale::Log, low: low / 1.15, high: high * 1.05, ticks }
}

fn series(advice: &Advice, of: &dyn Fn(&Played) -> f64, told_as: &dyn Fn(&Played) -> String) -> Series {
    let point = |trial: &Trial| Point {
        x: size_of(trial),
        y: of(&trial.played),
        about: format!("{}: {}", told::setup(trial).0, told_as(&trial.played)),
    };
    Series {
        name: Mode::Writeback.name().to_owned(),
        look: look::of_policy(OURS),
        points: advice.sizes.iter().map(point).collect(),
    }
}

fn table(out: &mut String, advice: &Advice) -> fmt::Result {
    let mut table = Table::new(["cache", "mode"], told::COLUMNS);
    for trial in told::rows(advice) {
        let (size, mode) = told::setup(trial);
        let cells = told::cells(advice, trial);
        let cells = [size, mode.to_owned()].into_iter().chain(cells).map(|it| it.into());
        table.row(told::is_chosen(advice, trial), cells);
    }
    for (name, trial) in told::compared(advice) {
        let cells = [told::setup(trial).0, name.to_owned()].into_iter().chain(told::cells(advice, trial));
        table.row(false, cells.map(|it| it.into()));
    }
    out.push_str(&table.html());
    if let Some(words) = told::about_compared(advice) {
        writeln!(out, "<p class=\"small\">{}</p>", escaped(&words))?;
    }
    writeln!(
        out,
        "<p class=\"small\"><b>request</b>, <b>read</b>, <b>write</b>: from when it came to its answer, in the mean, and what all but one in a hundred take at most. <b>to flash</b>: written to the cache device. <b>late</b>: by how much the last request came later than in the trace, as at most 128 are in flight.</p>"
    )
}
