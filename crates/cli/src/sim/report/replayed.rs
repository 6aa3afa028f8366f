// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of `sim replay`: for each trace what each policy hit, at what cost, in pictures and
//! in figures.

use std::fmt::{self, Write};

use flashfront_engine::BLOCK_BYTES;
use flashfront_sim::replay::{Replayed, Row, Size, Totals};

use super::axis::{Axis, Scale, round_step};
use super::chart::{Chart, Kind, Point, Series};
use super::look::{self, OURS};
use super::page::{escaped, path};
use super::table::{Cell, Table};
use crate::human;
use crate::trace::told::how;

/// The most sizes with a picture of their own of hits against writes.
const PANELS_MAX: usize = 4;

/// Draws all replayed traces, by their names.
pub(in crate::sim) fn replayed(traces: &[(String, Replayed)]) -> Result<String, fmt::Error> {
    let mut out = String::new();
    writeln!(
        out,
        "<p>Which blocks each cache policy would have kept, and what that costs, by replaying block traces. No data and no devices were involved.</p>"
    )?;
    out.push_str(COUNTED);
    if traces.len() > 1 {
        writeln!(out, "<p>")?;
        for (nth, (name, _)) in traces.iter().enumerate() {
            writeln!(out, "<a href=\"#trace-{nth}\">{}</a><br>", path(name))?;
        }
        writeln!(out, "</p>")?;
        means(&mut out, traces)?;
    }
    for (nth, (name, replayed)) in traces.iter().enumerate() {
        writeln!(out, "<h2 id=\"trace-{nth}\">{}</h2>", path(name))?;
        about(&mut out, replayed)?;
        let sizes = sizes(replayed);
        out.push_str(&hits_over_sizes(&sizes).svg()?);
        writeln!(out, "{AGAINST}<div class=\"panels\">")?;
        for size in spread(&sizes) {
            let spots = size
                .rows
                .iter()
                .map(|row| Spot::of(row, row.totals.flash_blocks_written() as f64 * BLOCK_BYTES as f64));
            let title = format!("Cache of {}", size.name.replace('\n', ", "));
            out.push_str(&hits_against_writes(title, spots.collect(), bytes_axis).svg()?);
        }
        writeln!(out, "</div>")?;
        if sizes.len() > PANELS_MAX {
            writeln!(out, "<p class=\"small\">{PANELS_MAX} of the {} sizes; all are in the table.</p>", sizes.len())?;
        }
        table(&mut out, &sizes);
    }
    Ok(out)
}

const COUNTED: &str = "<p class=\"small\">Counted in blocks of 4 KiB, in writeback mode, for all policies alike, each \
from an empty cache. <b>Hits</b>: accesses, reads or writes, that found their block. <b>Flash writes</b>: <b>fills</b> (because \
a block was read) + <b>absorbed</b> (because it was written) + <b>reinserted</b> (once more, so that segments of the log become \
free). <b>Origin read</b>, <b>origin write</b>: what the disk behind must do; a write counts when its block leaves the cache or \
the trace ends, so it is the least. <code>belady</code> knows the future and is the bound for all that admit every miss. Point at a \
mark for its figures.</p>\n";

const AGAINST: &str = "<h3>Hits against what is written to flash</h3>\n<p class=\"small\">Further up is better, and further left. \
The grey line joins those that no other policy beats in both.</p>\n";

/// A size of the cache, and what the policies made of it.
struct AtSize<'a> {
    /// The size for people; as a share of the trace's blocks in a second line, if it was given so.
    name: String,
    blocks: u64,
    rows: Vec<&'a Row>,
}

fn sizes(replayed: &Replayed) -> Vec<AtSize<'_>> {
    let mut sizes: Vec<(Size, AtSize<'_>)> = Vec::new();
    for row in &replayed.rows {
        // Sizes given twice are shown once.
        match sizes.iter_mut().find(|it| it.0 == row.size) {
            Some((_, size)) if size.rows.iter().any(|it| it.policy == row.policy) => {}
            Some((_, size)) => size.rows.push(row),
            // As asked for: policies with larger units have a little less, of few blocks more.
            None => {
                let blocks = row.size.blocks(replayed.reading.unique_blocks);
                sizes.push((row.size, AtSize { name: String::new(), blocks, rows: vec![row] }));
            }
        }
    }
    for (asked, size) in &mut sizes {
        size.name = human::blocks(size.blocks);
        if let Size::Fraction(share) = *asked {
            size.name += &format!("\n{} %", (share * 1e4).round() / 100.0);
        }
    }
    let mut sizes: Vec<AtSize<'_>> = sizes.into_iter().map(|it| it.1).collect();
    sizes.sort_by_key(|size| size.blocks);
    sizes
}

fn about(out: &mut String, replayed: &Replayed) -> fmt::Result {
    writeln!(
        out,
        "<p>{}, {} requests, {} accesses to blocks, footprint {}{}.</p>",
        escaped(replayed.reading.format.name),
        human::count(replayed.reading.requests),
        human::count(replayed.rows.first().map_or(0, |row| row.totals.accesses)),
        human::blocks(replayed.reading.unique_blocks),
        escaped(&how(&replayed.reading))
    )?;
    if let Some(damage) = &replayed.reading.report.damage {
        writeln!(out, "<p><b>{}; what came before may be wrong as well.</b></p>", escaped(&damage.to_string()))?;
    }
    if replayed.reading.report.is_mostly_bad() {
        writeln!(out, "<p><b>More lines are bad than could be read: these figures tell nothing of the trace.</b></p>")?;
    }
    Ok(())
}

fn percents(value: f64) -> String {
    format!("{} %", (value * 10.0).round() / 10.0)
}

fn figures(name: &str, totals: &Totals) -> String {
    format!(
        "{name}: {} hits, {} written to flash, {} read from the origin, {} written to it",
        human::percent(Some(totals.hit_ratio())),
        human::blocks(totals.flash_blocks_written()),
        human::blocks(totals.origin_read_blocks),
        human::blocks(totals.origin_write_blocks)
    )
}

fn hits_over_sizes(sizes: &[AtSize<'_>]) -> Chart {
    let mut series: Vec<Series> = Vec::new();
    for size in sizes {
        for row in &size.rows {
            let about = format!("{}, cache {}", figures(row.policy, &row.totals), human::blocks(row.cache_blocks));
            let point = Point { x: size.blocks as f64, y: row.totals.hit_ratio() * 100.0, about };
            match series.iter_mut().find(|it| it.name == row.policy) {
                Some(it) => it.points.push(point),
                None => series.push(Series {
                    name: row.policy.to_owned(),
                    look: look::of_policy(row.policy),
                    points: vec![point],
                }),
            }
        }
    }
    let ends = sizes.iter().map(|it| it.blocks as f64);
    let (low, high) = ends.fold((f64::MAX, f64::MIN), |(low, high), it| (low.min(it), high.max(it)));
    let hits = sizes.iter().flat_map(|it| &it.rows).map(|row| row.totals.hit_ratio() * 100.0);
    let x = Axis {
        label: "size of the cache".to_owned(),
        scale: Scale::Log,
        // Some room, so that marks don't lie on the axis.
        low: low / 1.15,
        high: high * 1.05,
        ticks: sizes.iter().map(|it| (it.blocks as f64, it.name.clone())).collect(),
    };
    Chart::new("Hits over the size of the cache", Kind::Lines, (x, Axis::around("hits", hits, percents)), series)
}

/// The hits of a policy, and their cost.
struct Spot<'a> {
    policy: &'a str,
    hits: f64,
    writes: f64,
    about: String,
}

impl<'a> Spot<'a> {
    fn of(row: &'a Row, writes: f64) -> Self {
        let about = figures(row.policy, &row.totals);
        Self { policy: row.policy, hits: row.totals.hit_ratio() * 100.0, writes, about }
    }
}

fn hits_against_writes(title: String, spots: Vec<Spot<'_>>, writes: fn(f64) -> Axis) -> Chart {
    // Policies that foresee are out of competition.
    let front = front(spots.iter().filter(|it| it.policy != "belady").map(|it| (it.writes, it.hits)).collect());
    let most = spots.iter().map(|it| it.writes).fold(0.0, f64::max);
    let y = Axis::around("hits", spots.iter().map(|it| it.hits), percents);
    let series = spots.into_iter().map(|it| Series {
        name: it.policy.to_owned(),
        look: look::of_policy(it.policy),
        points: vec![Point { x: it.writes, y: it.hits, about: it.about }],
    });
    Chart { front, ..Chart::new(&title, Kind::Points, (writes(most), y), series.collect()) }
}

/// Returns the points (cost, gain) that no other point beats in both, by cost.
fn front(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let mut best: Vec<(f64, f64)> = Vec::new();
    for point in points {
        if best.last().is_none_or(|last| point.1 > last.1) {
            best.push(point);
        }
    }
    best
}

/// Makes an axis from 0 to some bytes, labelled at round numbers of a unit.
fn bytes_axis(most: f64) -> Axis {
    let unit = 1024_f64.powf(most.max(1.0).log(1024.0).floor());
    let step = round_step(most.max(1.0) / unit / 4.0) * unit;
    let ticks = (0..=(most / step).ceil().max(1.0) as u64).map(|nth| nth as f64 * step);
    let ticks: Vec<_> = ticks.map(|at| (at, human::bytes(at as u64))).collect();
    // A policy that writes nothing is seen too, and the rightmost has room.
    let (low, high) = (-0.03 * most.max(1.0), ticks.last().map_or(most, |it| it.0).max(1.0));
    Axis { label: "written to flash".to_owned(), scale: Scale::Linear, low, high, ticks }
}

fn ratio_axis(most: f64) -> Axis {
    let axis = Axis::around("blocks written to flash per access", [0.0, most].into_iter(), |it| format!("{it:.1}"));
    Axis { low: -0.03 * axis.high, ..axis }
}

/// Picks items, spread from the first to the last.
fn spread<T>(all: &[T]) -> impl Iterator<Item = &T> {
    let shown = all.len().min(PANELS_MAX);
    (0..shown).map(move |nth| &all[if shown < 2 { 0 } else { nth * (all.len() - 1) / (shown - 1) }])
}

const COLUMNS: [&str; 8] =
    ["hits", "read hits", "flash writes", "fills", "absorbed", "reinserted", "origin read", "origin write"];

fn table(out: &mut String, sizes: &[AtSize<'_>]) {
    let mut table = Table::new(["cache", "policy"], COLUMNS);
    for size in sizes {
        let competing = size.rows.iter().filter(|row| row.policy != "belady");
        let most = competing.map(|row| row.totals.hits).max().unwrap_or(0);
        table.group();
        for (nth, row) in size.rows.iter().enumerate() {
            let totals = &row.totals;
            let name = if nth == 0 { size.name.replace('\n', ", ") } else { String::new() };
            let hits = Cell::from(human::percent(Some(totals.hit_ratio())));
            let hits = if totals.hits == most && row.policy != "belady" { hits.marked() } else { hits };
            let read_hits = human::percent((totals.reads > 0).then(|| totals.read_hit_ratio()));
            let blocks = [
                totals.flash_blocks_written(),
                totals.fill_blocks,
                totals.absorbed_blocks,
                totals.reinserted_blocks,
                totals.origin_read_blocks,
                totals.origin_write_blocks,
            ];
            let blocks = blocks.map(|count| Cell::from(human::blocks(count)).titled(&human::counted(count, "block")));
            let cells = [name.into(), row.policy.into(), hits, read_hits.into()];
            table.row(row.policy == OURS, cells.into_iter().chain(blocks));
        }
    }
    out.push_str(&table.html());
    out.push_str("<p class=\"small\">Underlined: the most hits at that size.</p>\n");
}

/// Writes the means of the policies over the traces, each counting alike: the rows of all are in
/// the same order.
fn means(out: &mut String, traces: &[(String, Replayed)]) -> fmt::Result {
    let rows = &traces[0].1.rows;
    let mut sizes: Vec<Size> = Vec::new();
    rows.iter().for_each(|row| {
        if !sizes.contains(&row.size) {
            sizes.push(row.size)
        }
    });
    let mean = |nth: usize, of: &dyn Fn(&Totals) -> f64| {
        traces.iter().map(|(_, replayed)| of(&replayed.rows[nth].totals)).sum::<f64>() / traces.len() as f64
    };
    let name = |size: &Size| match size {
        Size::Blocks(blocks) => human::blocks(*blocks),
        Size::Fraction(share) => format!("{} % of the footprint", (share * 1e4).round() / 100.0),
    };
    writeln!(out, "<h2>Mean of {} traces</h2>\n{AGAINST}<div class=\"panels\">", traces.len())?;
    let mut cells: Vec<(&str, Vec<String>)> = Vec::new();
    let mut charts = Vec::new();
    for size in &sizes {
        let mut spots: Vec<Spot<'_>> = Vec::new();
        for (nth, row) in rows.iter().enumerate().filter(|it| it.1.size == *size) {
            if spots.iter().any(|it| it.policy == row.policy) {
                continue;
            }
            let hits = mean(nth, &Totals::hit_ratio) * 100.0;
            let writes = mean(nth, &|it| it.flash_blocks_written() as f64 / it.accesses.max(1) as f64);
            let figures = format!("{hits:.1} % / {writes:.2}");
            spots.push(Spot { policy: row.policy, hits, writes, about: format!("{}: {figures}", row.policy) });
            match cells.iter_mut().find(|it| it.0 == row.policy) {
                Some((_, cells)) => cells.push(figures),
                None => cells.push((row.policy, vec![figures])),
            }
        }
        charts.push(hits_against_writes(format!("Cache of {}", name(size)), spots, ratio_axis));
    }
    for chart in spread(&charts) {
        out.push_str(&chart.svg()?);
    }
    writeln!(out, "</div>")?;
    let mut table = Table::new(["policy"], sizes.iter().map(name));
    for (policy, figures) in cells {
        table.row(policy == OURS, [policy.to_owned()].into_iter().chain(figures).map(Cell::from));
    }
    out.push_str(&table.html());
    writeln!(out, "<p class=\"small\">Hits / blocks written to flash per access.</p>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_is_what_nobody_beats_in_both() {
        let points = vec![(3.0, 30.0), (1.0, 10.0), (2.0, 10.0), (2.0, 35.0), (4.0, 36.0), (1.0, 9.0)];
        assert_eq!(front(points), [(1.0, 10.0), (2.0, 35.0), (4.0, 36.0)]);
    }

    #[test]
    fn bytes_are_labelled_at_round_numbers() {
        let axis = bytes_axis(3.3 * 1024.0 * 1024.0);
        let texts: Vec<_> = axis.ticks.iter().map(|it| &*it.1).collect();
        assert_eq!(texts, ["0 B", "1.00 MiB", "2.00 MiB", "3.00 MiB", "4.00 MiB"]);
        assert!(bytes_axis(0.0).low < bytes_axis(0.0).high);
    }

    #[test]
    fn the_first_and_the_last_size_are_shown() {
        for len in 0..12 {
            let all: Vec<_> = (0..len).collect();
            let shown: Vec<_> = spread(&all).collect();
            assert_eq!(shown.len(), len.min(PANELS_MAX));
            assert_eq!((shown.first(), shown.last()), (all.first().as_ref(), all.last().as_ref()));
        }
    }
}
