// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of `advise`: what a request takes over the size of the cache, what is hit and what is written to flash, and all figures.

use std::fmt::{self, Write};

use flashfront_engine::Mode;
use flashfront_sim::advise::{Advice, Played, Question, Trial};

use super::chart::{Axis, Chart, Kind, Point, Scale, Series};
use super::look::{self, OURS};
use super::page::escaped;
use crate::advise::told;
use crate::human;

pub(crate) fn advised(name: &str, question: &Question, advice: &Advice) -> Result<String, fmt::Error> {
    let mut out = String::new();
    writeln!(
        out,
        "<p>{}: {}. Played in virtual time to a model of {} alone, and to the production engine with caches on {}; the first half fills the cache, the second is measured. The processor costs nothing.</p>",
        escaped(name),
        escaped(&told::trace(advice)),
        question.origin.name,
        question.cache.name
    )?;
    for line in told::conclusions(question, advice) {
        writeln!(out, "<p><b>{}</b></p>", escaped(&line))?;
    }
    let chosen = advice.choice.map(|choice| (choice.cache_bytes as f64, "advised".to_owned()));
    let chart = |title: &str, y: Axis, of: &dyn Fn(&Played) -> f64, told_as: &dyn Fn(&Played) -> String| Chart {
        title: title.to_owned(),
        kind: Kind::Lines,
        x: sizes_axis(advice),
        y,
        series: vec![series(advice, of, told_as)],
        levels: Vec::new(),
        moments: chosen.clone().into_iter().collect(),
        front: Vec::new(),
    };
    let alone_ms = ms(&advice.alone.played);
    let means = advice.sizes.iter().map(|trial| ms(&trial.played)).chain([0.0, alone_ms]);
    let times = Axis::around("mean of a request, ms", means, plain);
    let mut time = chart("What a request takes over the size of the cache", times, &ms, &|played| {
        human::latency(played.mean_ns())
    });
    time.levels.push((alone_ms, "disk alone".to_owned()));
    out.push_str(&time.svg()?);
    if advice.survey.reads > 0 {
        let hits = |played: &Played| played.read_hit_ratio().unwrap_or(0.0) * 100.0;
        let axis = Axis::around("hits, %", advice.sizes.iter().map(|trial| hits(&trial.played)), plain);
        let told = |played: &Played| human::percent(played.read_hit_ratio());
        out.push_str(&chart("Blocks read that were in the cache", axis, &hits, &told).svg()?);
    }
    let gib = |played: &Played| played.traffic.cache_write_bytes as f64 / (1_u64 << 30) as f64;
    let all = advice.sizes.iter().map(|trial| gib(&trial.played)).chain([0.0]);
    let axis = Axis::around("written to flash, GiB", all, plain);
    let told = |played: &Played| human::bytes(played.traffic.cache_write_bytes);
    out.push_str(&chart("What is written to the cache device", axis, &gib, &told).svg()?);
    table(&mut out, advice)?;
    Ok(out)
}

fn plain(value: f64) -> String {
    format!("{}", (value * 1000.0).round() / 1000.0)
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
        look: look::of(OURS),
        points: advice.sizes.iter().map(point).collect(),
    }
}

fn table(out: &mut String, advice: &Advice) -> fmt::Result {
    write!(out, "<div class=\"wide\"><table>\n<thead><tr><th class=\"name\">cache</th><th class=\"name\">mode</th>")?;
    told::COLUMNS.iter().try_for_each(|column| write!(out, "<th>{column}</th>"))?;
    writeln!(out, "</tr></thead>\n<tbody>")?;
    for trial in told::rows(advice) {
        let (size, mode) = told::setup(trial);
        let class = if told::is_chosen(advice, trial) { " class=\"ours\"" } else { "" };
        write!(out, "<tr{class}><td class=\"name\">{size}</td><td class=\"name\">{mode}</td>")?;
        told::cells(advice, trial).iter().try_for_each(|cell| write!(out, "<td>{cell}</td>"))?;
        writeln!(out, "</tr>")?;
    }
    writeln!(
        out,
        "</tbody></table></div>\n<p class=\"small\"><b>request</b>, <b>read</b>, <b>write</b>: from when it came to its answer, in the mean, and what all but one in a hundred take at most. <b>to flash</b>: written to the cache device. <b>late</b>: by how much the last request came later than in the trace, as at most 128 are in flight.</p>"
    )
}
