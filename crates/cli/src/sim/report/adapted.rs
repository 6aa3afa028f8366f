// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of `sim adapt`: hits over time, and how much more was read from the origin than had to be.

use std::fmt::{self, Write};

use flashfront_sim::adapt::{Experiment, Outcome, POINTS};

use super::chart::{Axis, Chart, Kind, Point, Scale, Series};
use super::look::{self, Look, Marker, OURS, Weight};
use crate::human;
use crate::sim::adapt::text::{shown, turnover};

/// All cases.
pub(in crate::sim) fn adapted(outcomes: &[Outcome], experiment: &Experiment) -> Result<String, fmt::Error> {
    let mut out = String::new();
    writeln!(
        out,
        "<p>A cache of {} is full of junk: blocks that were read twice or more, and are never asked for again. Then come reads of \
         4 KiB of other blocks, random after Zipf's law with exponent 1.2 unless it says otherwise. How soon are they in the cache?</p>",
        human::blocks(experiment.cache_blocks)
    )?;
    writeln!(
        out,
        "<p class=\"small\">A <b>round</b> is as many reads as the cache has blocks, {}. The <b>static optimum</b> is the hit ratio \
         of holding the most popular blocks from the beginning. The <b>unlimited cache</b> misses what is asked for the first time and \
         nothing else; nobody hits more who caches just what is asked for (<code>smq</code> copies 64 KiB at a time). A <b>turnover</b> is over when as many different blocks \
         were asked for as the cache has. <b>Compulsory</b> reads are those of the different blocks, once each.</p>",
        human::count(experiment.cache_blocks)
    )?;
    for outcome in outcomes {
        let data = human::blocks(outcome.reads.data_blocks);
        writeln!(out, "<h2>{}, {data}: {}</h2>", outcome.case.name, outcome.case.about)?;
        out.push_str(&hits_over_time(outcome, experiment).svg()?);
        out.push_str(&reads_over_time(outcome, experiment).svg()?);
        table(&mut out, outcome, experiment)?;
    }
    Ok(out)
}

/// Ours, LRU and SMQ are what it is about.
fn look(policy: &str) -> Look {
    match policy {
        OURS | "lru" | "smq" => look::of(policy),
        _ => look::background(policy),
    }
}

const UNLIMITED: Look = Look { colour: "#000000", marker: Marker::Circle, dashes: "1.5 3", weight: Weight::Normal };

fn rounds_axis(experiment: &Experiment) -> Axis {
    let eighth = 1.0 / POINTS as f64;
    let text = |round: f64| match (1.0 / round).round() as u64 {
        parts @ 2.. => format!("1/{parts}"),
        _ => format!("{round}"),
    };
    let powers = (-3..7).map(|power| 2_f64.powi(power)).filter(|it| *it <= experiment.rounds as f64);
    let mut ticks: Vec<(f64, String)> = powers.map(|round| (round, text(round))).collect();
    let end = experiment.rounds as f64;
    ticks.retain(|it| it.0 <= end / 1.2);
    ticks.push((end, text(end)));
    Axis { label: "rounds".to_owned(), scale: Scale::Log, low: eighth, high: end, ticks }
}

/// A chart over time of what `value` says of each policy at each point, and of a cache without limits.
fn over_time(
    outcome: &Outcome,
    experiment: &Experiment,
    title: String,
    unlimited: impl Fn(usize) -> f64,
    value: impl Fn(usize, usize) -> f64,
    axis: impl Fn(f64, f64) -> Axis,
) -> Chart {
    let line = |name: &str, look, at: &dyn Fn(usize) -> f64| Series {
        name: name.to_owned(),
        look,
        points: (1..=outcome.points())
            .map(|point| Point { x: point as f64 / POINTS as f64, y: at(point), about: String::new() })
            .collect(),
    };
    let mut series = vec![line("unlimited", UNLIMITED, &unlimited)];
    for (nth, row) in outcome.rows.iter().enumerate() {
        series.push(line(row.policy, look(row.policy), &|point| value(nth, point)));
    }
    let values = series.iter().flat_map(|it| &it.points).map(|it| it.y);
    let (least, most) = values.fold((f64::MAX, f64::MIN), |(least, most), it| (least.min(it), most.max(it)));
    let moments = outcome.reads.turnover().map(|at| (at as f64 / POINTS as f64, "turnover".to_owned()));
    Chart {
        title,
        kind: Kind::Curves,
        x: rounds_axis(experiment),
        y: axis(least, most),
        series,
        levels: Vec::new(),
        moments: moments.into_iter().collect(),
        front: Vec::new(),
    }
}

/// A logarithmic axis of `label` around two values, labelled at those of `ticks` that are within.
fn log_axis(label: &str, low: f64, high: f64, ticks: &[f64], text: impl Fn(f64) -> String) -> Axis {
    let within = |at: &&f64| (low.min(high)..=low.max(high)).contains(*at);
    let ticks = ticks.iter().filter(within).map(|at| (*at, text(*at))).collect();
    Axis { label: label.to_owned(), scale: Scale::Log, low, high, ticks }
}

/// The fewest misses in percent that the picture shows.
const MISSES_MIN: f64 = 0.2;

/// Hits, but by the misses that are left: from 98 to 99 % is as far as from 80 to 90 %, as the disk has half as much to do.
fn hits_over_time(outcome: &Outcome, experiment: &Experiment) -> Chart {
    let misses = |hits: f64| ((1.0 - hits) * 100.0).max(MISSES_MIN);
    // If all fits, it misses nothing: no place on this axis.
    let optimum = if outcome.reads.static_optimum > 0.9999 { 1.0 } else { outcome.reads.static_optimum };
    let ticks = [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 50.0, 70.0, 100.0];
    let mut chart = over_time(
        outcome,
        experiment,
        "Hits over time, in each eighth of a round".to_owned(),
        |point| misses(outcome.unlimited_hit_ratio(point - 1, point)),
        |nth, point| misses(outcome.hit_ratio(&outcome.rows[nth], point - 1, point)),
        |least, most| {
            let least = if optimum < 1.0 { least.min(misses(optimum)) } else { least };
            log_axis("hits", most * 1.05, least / 1.1, &ticks, |misses| format!("{} %", 100.0 - misses))
        },
    );
    if optimum < 1.0 {
        chart.levels.push((misses(optimum), format!("static optimum, {:.1} %", optimum * 100.0)));
    }
    chart
}

fn reads_over_time(outcome: &Outcome, experiment: &Experiment) -> Chart {
    over_time(
        outcome,
        experiment,
        "Blocks read from the origin for each that had to be, since the beginning".to_owned(),
        |_| 1.0,
        |nth, point| outcome.origin_reads_per_compulsory(&outcome.rows[nth], point),
        |least, most| {
            let ticks = [0.5, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0];
            log_axis("origin read / compulsory", least / 1.03, most.max(1.5) * 1.03, &ticks, |it| it.to_string())
        },
    )
}

fn table(out: &mut String, outcome: &Outcome, experiment: &Experiment) -> fmt::Result {
    let rounds = shown(experiment.rounds);
    let (optimum, last) = (outcome.reads.static_optimum * 100.0, outcome.points());
    write!(out, "<div class=\"wide\"><table>\n<thead><tr><th class=\"name\">policy</th><th>junk at first</th>")?;
    rounds.iter().try_for_each(|round| write!(out, "<th>origin read / compulsory after {round}</th>"))?;
    rounds.iter().try_for_each(|round| write!(out, "<th>hits in round {round}</th>"))?;
    let after = outcome.after_turnover();
    if after.is_some() {
        write!(out, "<th>hits after a turnover</th><th>points below the optimum</th>")?;
    }
    writeln!(
        out,
        "<th>points below LRU in the worst turnover</th><th>in the worst round</th><th>flash writes</th></tr></thead>\n<tbody>"
    )?;
    for row in &outcome.rows {
        let class = if row.policy == OURS { " class=\"ours\"" } else { "" };
        let junk = human::percent(Some(row.junk_blocks as f64 / row.cache_blocks as f64));
        write!(out, "<tr{class}><td class=\"name\">{}</td><td>{junk}</td>", row.policy)?;
        for round in &rounds {
            let read = outcome.origin_reads_per_compulsory(row, outcome.end_of_round(*round));
            write!(out, "<td>{read:.2}</td>")?;
        }
        for round in &rounds {
            let (from, to) = (outcome.end_of_round(round - 1), outcome.end_of_round(*round));
            write!(out, "<td>{:.2} %</td>", outcome.hit_ratio(row, from, to) * 100.0)?;
        }
        if let Some((from, to)) = after {
            let hits = outcome.hit_ratio(row, from, to) * 100.0;
            write!(out, "<td>{hits:.2} %</td><td>{:.2}</td>", optimum - hits)?;
        }
        let over = outcome.worst_turnover(row).map(|below| format!("{:.2}", below * 100.0));
        write!(out, "<td>{}</td>", over.unwrap_or("-".to_owned()))?;
        let worst = outcome.worst_round(row).map(|(round, below)| format!("{:.2} in {round}", below * 100.0));
        write!(out, "<td>{}</td>", worst.unwrap_or("-".to_owned()))?;
        writeln!(out, "<td>{}</td></tr>", human::blocks(row.points[last].flash_blocks_written()))?;
    }
    writeln!(
        out,
        "</tbody></table></div>\n<p class=\"small\">Static optimum {optimum:.2} %, {}.</p>",
        turnover(outcome)
    )
}
