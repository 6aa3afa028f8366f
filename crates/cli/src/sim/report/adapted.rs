// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of `sim adapt`: hits over time, and how much more was read from the origin than had
//! to be.

use std::fmt::{self, Write};

use flashfront_sim::adapt::{Experiment, Findings, POINTS};

use super::axis::{Axis, Scale};
use super::chart::{Chart, Kind, Point, Series};
use super::look::{self, Look, Marker, OURS, Weight};
use super::table::Table;
use crate::human;
use crate::sim::adapt::text::{shown, turnover};

/// Draws all cases.
pub(in crate::sim) fn adapted(outcomes: &[Findings], experiment: &Experiment) -> Result<String, fmt::Error> {
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
        OURS | "lru" | "smq" => look::of_policy(policy),
        _ => look::background(policy),
    }
}

const UNLIMITED: Look = Look { colour: "ink", marker: Marker::Circle, dashes: "1.5 3", weight: Weight::Normal };

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

/// Draws `value` of each policy over time, and of a cache without limits.
fn over_time(
    outcome: &Findings,
    experiment: &Experiment,
    title: &str,
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
    let moment = outcome.reads.turnover().map(|at| (at as f64 / POINTS as f64, "turnover".to_owned()));
    let chart = Chart::new(title, Kind::Curves, (rounds_axis(experiment), axis(least, most)), series);
    Chart { moment, ..chart }
}

/// Makes a logarithmic axis of `label` around two values, labelled at those of `ticks` that are
/// within.
fn log_axis(label: &str, low: f64, high: f64, ticks: &[f64], text: impl Fn(f64) -> String) -> Axis {
    let within = |at: &&f64| (low.min(high)..=low.max(high)).contains(*at);
    let ticks = ticks.iter().filter(within).map(|at| (*at, text(*at))).collect();
    Axis { label: label.to_owned(), scale: Scale::Log, low, high, ticks }
}

/// The fewest misses in percent that the picture shows.
const MISSES_MIN: f64 = 0.2;

/// Draws hits by the misses that are left.
///
/// From 98 to 99 % is as far as from 80 to 90 %, as the disk has half as much to do.
fn hits_over_time(outcome: &Findings, experiment: &Experiment) -> Chart {
    let misses = |hits: f64| ((1.0 - hits) * 100.0).max(MISSES_MIN);
    // If all fits, it misses nothing: no place on this axis.
    let optimum = if outcome.reads.static_optimum > 0.9999 { 1.0 } else { outcome.reads.static_optimum };
    let ticks = [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 50.0, 70.0, 100.0];
    let mut chart = over_time(
        outcome,
        experiment,
        "Hits over time, in each eighth of a round",
        |point| misses(outcome.unlimited_hit_ratio(point - 1, point)),
        |nth, point| misses(outcome.hit_ratio(&outcome.rows[nth], point - 1, point)),
        |least, most| {
            let least = if optimum < 1.0 { least.min(misses(optimum)) } else { least };
            log_axis("hits", most * 1.05, least / 1.1, &ticks, |misses| format!("{} %", 100.0 - misses))
        },
    );
    if optimum < 1.0 {
        chart.level = Some((misses(optimum), format!("static optimum, {:.1} %", optimum * 100.0)));
    }
    chart
}

fn reads_over_time(outcome: &Findings, experiment: &Experiment) -> Chart {
    over_time(
        outcome,
        experiment,
        "Blocks read from the origin for each that had to be, since the beginning",
        |_| 1.0,
        |nth, point| outcome.origin_reads_per_compulsory(&outcome.rows[nth], point),
        |least, most| {
            let ticks = [0.5, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0];
            log_axis("origin read / compulsory", least / 1.03, most.max(1.5) * 1.03, &ticks, |it| it.to_string())
        },
    )
}

fn table(out: &mut String, outcome: &Findings, experiment: &Experiment) -> fmt::Result {
    let rounds = shown(experiment.rounds);
    let (optimum, last) = (outcome.reads.static_optimum * 100.0, outcome.points());
    let after = outcome.after_turnover();
    let mut columns = vec!["junk at first".to_owned()];
    columns.extend(rounds.iter().map(|round| format!("read / compulsory, {round}")));
    columns.extend(rounds.iter().map(|round| format!("hits in round {round}")));
    if after.is_some() {
        columns.extend(["hits after a turnover", "points below the optimum"].map(str::to_owned));
    }
    columns.extend(["below LRU, worst turnover", "below LRU, worst round", "flash writes"].map(str::to_owned));
    let mut table = Table::new(["policy"], columns);
    for row in &outcome.rows {
        let mut cells = vec![row.policy.to_owned()];
        cells.push(human::percent(Some(row.junk_blocks as f64 / row.cache_blocks as f64)));
        for round in &rounds {
            let read = outcome.origin_reads_per_compulsory(row, outcome.end_of_round(*round));
            cells.push(format!("{read:.2}"));
        }
        for round in &rounds {
            let (from, to) = (outcome.end_of_round(round - 1), outcome.end_of_round(*round));
            cells.push(format!("{:.2} %", outcome.hit_ratio(row, from, to) * 100.0));
        }
        if let Some((from, to)) = after {
            let hits = outcome.hit_ratio(row, from, to) * 100.0;
            cells.extend([format!("{hits:.2} %"), format!("{:.2}", optimum - hits)]);
        }
        let over = outcome.worst_turnover(row).map(|below| format!("{:.2}", below * 100.0));
        let worst = outcome.worst_round(row).map(|(round, below)| format!("{:.2} in {round}", below * 100.0));
        cells.extend([over, worst].map(|it| it.unwrap_or("-".to_owned())));
        cells.push(human::blocks(row.points[last].flash_blocks_written()));
        table.row(row.policy == OURS, cells.into_iter().map(|it| it.into()));
    }
    out.push_str(&table.html());
    writeln!(
        out,
        "<p class=\"small\"><b>read / compulsory, N</b>: blocks read from the origin for each that had to be, after N rounds. \
         <b>below LRU</b>: points of hits. Static optimum {optimum:.2} %, {}.</p>",
        turnover(outcome)
    )
}
