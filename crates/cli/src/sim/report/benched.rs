// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of `bench`: whether the machine was quiet, and each job as bars with its spread.
//!
//! Below are ratios, latencies, the course over time, and the machine.

use std::fmt::{self, Write};

use flashfront_bench::results::{Environment, Results, Row, Run, Target};
use flashfront_bench::{Direction, Figures, Headline, Scale};

use super::axis::{Axis, Scale as AxisScale, log_ticks};
use super::bars::{Bar, Bars, Group};
use super::chart::{Chart, Kind, Point, Series};
use super::look::{self, Look};
use super::page::escaped;
use super::table::{Cell, Table};
use crate::human;

/// Results as a page.
pub(crate) fn benched(results: &Results) -> Result<String, fmt::Error> {
    let mut out = String::new();
    quiet(&mut out, results)?;
    about(&mut out, results)?;
    for headline in [Headline::Iops, Headline::Bandwidth, Headline::Seconds] {
        if let Some(bars) = bars(results, headline) {
            out.push_str(&bars.svg()?);
        }
    }
    ratios(&mut out, results);
    figures(&mut out, results);
    for job in jobs(results) {
        course(&mut out, results, job)?;
        latencies(&mut out, results, job)?;
    }
    machine(&mut out, results)?;
    commands(&mut out, results)?;
    Ok(out)
}

/// Tells a reader what to know before any figure.
fn quiet(out: &mut String, results: &Results) -> fmt::Result {
    if !results.complete {
        writeln!(out, "<p><b>Not complete: some runs are missing.</b></p>")?;
    }
    if results.quiet {
        return writeln!(out, "<p>The machine was quiet during all runs.</p>");
    }
    writeln!(out, "<p><b>The machine was not quiet. These runs were disturbed:</b></p>\n<ul>")?;
    for it in &results.disturbed {
        let (target, job, by) = (escaped(&it.target), escaped(&it.job), escaped(&it.by.join(" ")));
        writeln!(out, "<li>{job} on {target}, turn {}: {by}</li>", it.repeat)?;
    }
    writeln!(out, "</ul>")
}

fn about(out: &mut String, results: &Results) -> fmt::Result {
    let source = results.source.as_ref().map_or_else(String::new, |it| format!(" Published: {}.", escaped(it)));
    let suite = escaped(&results.suite);
    writeln!(out, "<p>Suite <b>{suite}</b>, begun {} (UTC).{source}</p>", escaped(&results.started))?;
    out.push_str(ABOUT);
    if results.scale != Scale::FULL {
        let changes = escaped(&results.scaling.join(" "));
        writeln!(out, "<p>Scaled to {}. {changes}</p>", results.scale)?;
    }
    for target in &results.targets {
        for note in &target.notes {
            writeln!(out, "<p>{}: {}</p>", escaped(&target.name), escaped(note))?;
        }
    }
    Ok(())
}

const ABOUT: &str = "<p class=\"small\">Targets ran in turns. A figure is the median of its runs; whiskers go from the least run to \
the largest. Grey bars are what others published, on other machines.</p>\n";

/// The jobs, in the order of their first rows.
fn jobs(results: &Results) -> Vec<&str> {
    let mut jobs: Vec<&str> = Vec::new();
    for row in &results.results {
        if !jobs.contains(&row.job.as_str()) {
            jobs.push(&row.job);
        }
    }
    jobs
}

fn rows<'a>(results: &'a Results, job: &str) -> impl Iterator<Item = (usize, &'a Row)> {
    let of = move |(nth, target): (usize, &'a Target)| Some((nth, results.row(&target.name, job)?));
    let rows: Vec<_> = results.targets.iter().enumerate().filter_map(of).collect();
    rows.into_iter()
}

/// How a target looks: ours as in all reports, the others in their order.
fn look_of(results: &Results, nth: usize) -> Look {
    let is_ours = |target: &Target| target.name.contains(look::OURS) || target.what.starts_with("fresh");
    if is_ours(&results.targets[nth]) {
        return look::of_system(look::OURS);
    }
    let others = results.targets[..nth].iter().filter(|it| !is_ours(it)).count();
    look::of_target(others)
}

/// The axis' name, and the metric's name where figures were published.
fn unit(headline: Headline) -> (&'static str, &'static str) {
    match headline {
        Headline::Iops => ("requests a second", "iops"),
        Headline::Bandwidth => ("KiB a second", "kbps"),
        Headline::Seconds => ("seconds: less is faster", "seconds"),
    }
}

fn told(headline: Headline, value: f64) -> String {
    if headline == Headline::Seconds { format!("{} s", digits(value)) } else { digits(value) }
}

/// A number with three digits at least.
fn digits(value: f64) -> String {
    match value {
        100.0.. => human::count(value.round() as u64),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn bars(results: &Results, headline: Headline) -> Option<Bars> {
    let (label, metric) = unit(headline);
    let group = |job: &&str| {
        let of = |(nth, row): (usize, &Row)| {
            let values: Vec<f64> = row.runs.iter().map(|run| headline.of(&run.measured)).collect();
            let least = values.iter().copied().fold(f64::MAX, f64::min);
            let largest = values.iter().copied().fold(0.0, f64::max);
            let value = middle(&values);
            let look = look_of(results, nth);
            Bar {
                name: row.target.clone(),
                colour: look.colour,
                is_ours: look.weight == look::Weight::Ours,
                value,
                spread: (values.len() > 1).then_some((least, largest)),
                told: told(headline, value),
            }
        };
        let asked: Vec<(usize, &Row)> = rows(results, job).filter(|(_, row)| row.headline == headline).collect();
        let published = asked.first().map_or(&[][..], |(_, row)| &row.published);
        let published = published.iter().filter(|it| it.metric == metric && results.scale == Scale::FULL);
        let others = published.map(|it| Bar {
            name: format!("{}, published", it.system),
            colour: "grey",
            is_ours: false,
            value: it.value,
            spread: None,
            told: told(headline, it.value),
        });
        let bars: Vec<Bar> = asked.iter().map(|it| of(*it)).chain(others).collect();
        (!asked.is_empty()).then(|| Group { name: (*job).to_owned(), bars })
    };
    let groups: Vec<Group> = jobs(results).iter().filter_map(group).collect();
    let all = groups.iter().flat_map(|group| &group.bars);
    let values: Vec<f64> = all.map(|bar| bar.spread.map_or(bar.value, |it| it.1.max(bar.value))).collect();
    let axis =
        Axis::from_nothing(
            label,
            &values,
            |it| if it < 10.0 { super::axis::plain(it) } else { human::count(it as u64) },
        );
    let mut title = label.split(':').next().unwrap_or_default().to_owned();
    title[..1].make_ascii_uppercase();
    (!groups.is_empty()).then_some(Bars { title, axis, groups })
}

/// The middle of some values, or the mean of the two in the middle.
fn middle(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        len if len % 2 == 1 => sorted[len / 2],
        len => f64::midpoint(sorted[len / 2 - 1], sorted[len / 2]),
    }
}

/// How many times as fast as the first target each other one is.
fn ratios(out: &mut String, results: &Results) {
    let Some((first, others)) = results.targets.split_first() else { return };
    if others.is_empty() {
        return;
    }
    let _ = writeln!(out, "<h2>How many times as fast as {}</h2>", escaped(&first.name));
    let mut table = Table::new(["job"], others.iter().map(|target| target.name.as_str()));
    for job in jobs(results) {
        let ratio = |target: &Target| {
            let Some(ratio) = results.row(&target.name, job).and_then(|row| row.ratio.as_ref()) else {
                return "-".into();
            };
            let [median, least, largest] = [ratio.median, ratio.least, ratio.largest].map(times);
            if least == largest { median.into() } else { format!("{median} ({least} to {largest})").into() }
        };
        table.row(false, [job.into()].into_iter().chain(others.iter().map(ratio)));
    }
    out.push_str(&table.html());
    out.push_str(
        "<p class=\"small\">The median over the turns, with the least and the largest in brackets. Each ratio is of runs of \
         the same turn.</p>\n",
    );
}

/// A ratio with three digits.
fn times(ratio: f64) -> String {
    match ratio {
        100.0.. => human::count(ratio as u64),
        10.0.. => format!("{ratio:.1}"),
        0.1.. => format!("{ratio:.2}"),
        _ => format!("{ratio:.4}"),
    }
}

/// Writes all figures.
fn figures(out: &mut String, results: &Results) {
    out.push_str("<h2>All figures</h2>\n");
    const COLUMNS: [&str; 10] =
        ["requests/s", "KiB/s", "mean", "50 %", "90 %", "99 %", "99.9 %", "longest", "runs", "spread"];
    let mut table = Table::new(["job", "target", ""], COLUMNS);
    for job in jobs(results) {
        table.group();
        for (nth, row) in rows(results, job) {
            let ours = look_of(results, nth).weight == look::Weight::Ours;
            let ends = [row.repeats.to_string(), format!("{:.1} %", row.spread * 100.0)];
            let names = |direction: &str| [row.job.as_str().into(), row.target.as_str().into(), direction.into()];
            for (direction, it) in &row.directions {
                let times = [it.mean_us, it.p50_us, it.p90_us, it.p99_us, it.p99_9_us, it.max_us].map(time);
                let cells = [digits(it.iops), digits(it.bandwidth_kib_s)].into_iter().chain(times).chain(ends.clone());
                table.row(ours, names(word(*direction)).into_iter().chain(cells.map(Cell::from)));
            }
            if row.directions.is_empty() {
                let seconds = middle(&row.runs.iter().map(|run| run.measured.seconds).collect::<Vec<_>>());
                let blank = std::iter::repeat_n("-".to_owned(), 4);
                let cells = [
                    digits(row.iops),
                    "-".to_owned(),
                    "-".to_owned(),
                    time(row.p50_us),
                    "-".to_owned(),
                    time(row.p99_us),
                ];
                let cells: Vec<String> = if row.headline == Headline::Seconds {
                    std::iter::repeat_n("-".to_owned(), 8).chain(ends.clone()).collect()
                } else {
                    cells.into_iter().chain(blank.take(2)).chain(ends.clone()).collect()
                };
                let what = if row.headline == Headline::Seconds {
                    format!("{} s", digits(seconds))
                } else {
                    "transactions".to_owned()
                };
                table.row(ours, names(&what).into_iter().chain(cells.into_iter().map(Cell::from)));
            }
        }
    }
    out.push_str(&table.html());
}

fn time(us: f64) -> String {
    human::latency((us * 1e3) as u64)
}

fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "reads",
        Direction::Write => "writes",
        Direction::Trim => "discards",
        Direction::Sync => "FLUSHes",
    }
}

/// The run whose figure is told: the one in the middle.
fn middle_run(row: &Row) -> Option<&Run> {
    let mut runs: Vec<&Run> = row.runs.iter().collect();
    runs.sort_by(|a, b| row.headline.of(&a.measured).total_cmp(&row.headline.of(&b.measured)));
    runs.get(runs.len() / 2).copied()
}

/// Draws the answered requests over time, all jobs of fio together.
fn course(out: &mut String, results: &Results, job: &str) -> fmt::Result {
    let series = rows(results, job).filter_map(|(nth, row)| {
        let run = middle_run(row)?;
        let point =
            |it: &flashfront_bench::Point| Point { x: it.at_s, y: it.read_iops + it.write_iops, about: String::new() };
        let points: Vec<Point> = run.measured.series.iter().map(point).collect();
        (points.len() > 1).then(|| Series { name: row.target.clone(), look: look_of(results, nth), points })
    });
    let series: Vec<Series> = series.collect();
    if series.is_empty() {
        return Ok(());
    }
    let points = || series.iter().flat_map(|it| &it.points);
    let rates: Vec<f64> = points().map(|it| it.y).collect();
    let axes = (
        Axis::around("seconds", points().map(|it| it.x).chain([0.0]), super::axis::plain),
        Axis::from_nothing("requests a second", &rates, |it| human::count(it as u64)),
    );
    out.push_str(&Chart::new(&format!("Answered over time: {job}"), Kind::Curves, axes, series).svg()?);
    Ok(())
}

/// Draws the times that each part of a job's requests keep, in each direction.
fn latencies(out: &mut String, results: &Results, job: &str) -> fmt::Result {
    for direction in [Direction::Read, Direction::Write] {
        let series = rows(results, job).filter_map(|(nth, row)| {
            let runs = row.runs.iter().filter_map(|run| run.measured.directions.get(&direction));
            let all = Figures::merged(runs, 1.0);
            let points = percentiles(&all);
            (points.len() > 1).then(|| Series { name: row.target.clone(), look: look_of(results, nth), points })
        });
        let series: Vec<Series> = series.collect();
        if series.is_empty() {
            continue;
        }
        let points = || series.iter().flat_map(|it| &it.points);
        let last = points().map(|it| it.x).fold(2.0, f64::max);
        let (least, most) = points().fold((f64::MAX, 0.0), |(low, high), it| (it.y.min(low), it.y.max(high)));
        let x = Axis {
            label: "of all requests, this many took no longer".to_owned(),
            scale: AxisScale::Log,
            low: 2.0,
            high: last,
            ticks: SHARES.iter().filter(|it| it.0 <= last).map(|it| (it.0, it.1.to_owned())).collect(),
        };
        let (low, high) = (least.max(0.1) / 1.3, most.max(0.2) * 1.3);
        let y = Axis {
            label: "time of a request".to_owned(),
            scale: AxisScale::Log,
            low,
            high,
            ticks: log_ticks(low, high).map(|at| (at, short_time(at))).collect(),
        };
        let title = format!("Times of {}: {job}", word(direction));
        out.push_str(&Chart::new(&title, Kind::Curves, (x, y), series).svg()?);
    }
    Ok(())
}

/// Shares of requests; in front, one in how many takes longer.
const SHARES: [(f64, &str); 6] =
    [(2.0, "50 %"), (10.0, "90 %"), (100.0, "99 %"), (1e3, "99.9 %"), (1e4, "99.99 %"), (1e5, "99.999 %")];

/// A time as short as an axis wants it.
fn short_time(us: f64) -> String {
    match us {
        1e6.. => format!("{} s", super::axis::plain(us / 1e6)),
        1e3.. => format!("{} ms", super::axis::plain(us / 1e3)),
        _ => format!("{} us", super::axis::plain(us)),
    }
}

/// Returns the times of the slowest requests, as far as there are requests enough.
fn percentiles(figures: &Figures) -> Vec<Point> {
    let steps = (1..=40).map(|step| 2.0 * 10_f64.powf(f64::from(step - 1) / 8.0));
    let known = steps.take_while(|one_in| *one_in <= figures.requests as f64);
    let point = |one_in: f64| Point { x: one_in, y: figures.percentile_us(1.0 - 1.0 / one_in), about: String::new() };
    known.map(point).filter(|it| it.y > 0.0).collect()
}

/// Tells the machine of the measurement.
fn machine(out: &mut String, results: &Results) -> fmt::Result {
    writeln!(out, "<h2>Measured on</h2>")?;
    let Environment { flashfront, fio, kernel, architecture, cpu, cpus, memory_bytes, virtual_machine } =
        &results.environment;
    let mut table = Table::new(["what", "value"], [""; 0]);
    let machine = if *virtual_machine { "a virtual machine" } else { "a machine of its own" };
    for (what, value) in [
        ("flashfront", flashfront.clone()),
        ("fio", fio.clone().unwrap_or_else(|| "not needed".to_owned())),
        ("kernel", kernel.clone()),
        ("processors", format!("{cpus} x {cpu} ({architecture}), {machine}")),
        ("memory", human::bytes(*memory_bytes)),
    ] {
        table.row(false, [what.into(), value.into()]);
    }
    out.push_str(&table.html());
    let columns =
        ["target", "device", "model", "size", "rotates", "scheduler", "write cache", "before, after each turn"];
    let mut table = Table::new(columns, [""; 0]);
    for target in &results.targets {
        table.group();
        let turn = [&target.before, &target.after].map(|it| it.clone().unwrap_or_else(|| "-".to_owned())).join(", ");
        let turn = if turn == "-, -" { "-".to_owned() } else { turn };
        if target.devices.is_empty() {
            let cells = [&target.name, &target.what, "-", "-", "-", "-", "-", &turn];
            table.row(false, cells.map(Cell::from));
        }
        for device in &target.devices {
            let or = |it: &Option<String>| it.clone().unwrap_or_else(|| "-".to_owned());
            let rotates = device.rotational.map_or("-", |it| if it { "yes" } else { "no" });
            let size = human::bytes(device.size_bytes);
            let (model, scheduler, cache) = (or(&device.model), or(&device.scheduler), or(&device.write_cache));
            let cells = [&target.name, &device.path, &model, &size, rotates, &scheduler, &cache, &turn];
            table.row(false, cells.map(Cell::from));
        }
    }
    out.push_str(&table.html());
    Ok(())
}

/// Tells the commands of each job's first run, so that a reader can repeat it.
fn commands(out: &mut String, results: &Results) -> fmt::Result {
    writeln!(out, "<h2>Commands</h2>")?;
    for job in jobs(results) {
        for (_, row) in rows(results, job) {
            let Some(run) = row.runs.first() else { continue };
            for command in &run.commands {
                let (target, command) = (escaped(&row.target), escaped(&command.join(" ")));
                writeln!(out, "<p class=\"small\">{}, {target}: <code>{command}</code></p>", escaped(job))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
