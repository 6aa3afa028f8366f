// SPDX-License-Identifier: MIT OR Apache-2.0
//! The advice for people: the figures of all that was tried, then the conclusions.

use std::fmt::{Error, Write};

use flashfront_engine::Mode;
use flashfront_sim::advise::{Advice, Choice, ENOUGH, Played, Question, Trial};
use flashfront_sim::replay::Reading;

use super::because;
use super::devices::Devices;
use crate::columns::Columns;
use crate::human;
use crate::trace::told::how;

/// Requests that come later than that, for each second of a trace, are worth a word.
const LATE: f64 = 0.05;

pub(super) fn all(name: &str, question: &Question, devices: &Devices, advice: &Advice) -> Result<String, Error> {
    let mut out = format!("{name}: {}\n\n", trace(advice));
    for probe in devices.probe.iter().chain(&devices.cache_probe) {
        writeln!(out, "{}\n", probe.told())?;
    }
    table(&mut out, advice)?;
    writeln!(out)?;
    for line in conclusions(question, advice) {
        writeln!(out, "{line}")?;
    }
    Ok(out)
}

/// Tells the content of the trace.
pub(crate) fn trace(advice: &Advice) -> String {
    let (reading, survey) = (&advice.reading, &advice.survey);
    let span = survey.span_ns.map_or_else(
        || " without times, so each came when the one before it was answered".to_owned(),
        |ns| format!(" in {}", human::span(ns / 1_000_000_000)),
    );
    // Other verbs leave them out.
    let flushes = match reading.flushes {
        0 => String::new(),
        count => format!(", {} FLUSH{}", human::count(count), if count == 1 { "" } else { "es" }),
    };
    format!(
        "{}, {} requests{span}; {} read, {} written{flushes}, {} of {} touched{}",
        reading.format.name,
        human::count(reading.requests),
        human::bytes(survey.read_bytes),
        human::bytes(survey.write_bytes),
        human::bytes(survey.touched_bytes),
        human::bytes(survey.origin_bytes),
        how(&Reading { flushes: 0, ..reading.clone() })
    )
}

pub(crate) const COLUMNS: [&str; 10] =
    ["request", "faster", "read", "read 99 %", "write", "write 99 %", "read hits", "to flash", "disk I/Os", "late"];

/// A row's cells, under [`COLUMNS`].
pub(crate) fn cells(advice: &Advice, trial: &Trial) -> [String; 10] {
    let played = &trial.played;
    let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), latency);
    let mean_ns = played.mean_ns();
    let cached = trial.cache.is_some();
    let unless_alone = |cell: String| if cached { cell } else { "-".to_owned() };
    [
        latency(mean_ns),
        unless_alone(faster(advice.alone.played.mean_ns() as f64 / mean_ns.max(1) as f64)),
        time(played.reads.mean_ns()),
        time(played.reads.p99_ns()),
        time(played.writes.mean_ns()),
        time(played.writes.p99_ns()),
        unless_alone(human::percent(played.read_hit_ratio())),
        unless_alone(human::bytes(played.traffic.cache_write_bytes)),
        human::count(played.traffic.origin_ios),
        late(played.late_ns),
    ]
}

/// The processor costs nothing, so what RAM answers takes no time.
pub(super) fn latency(ns: u64) -> String {
    if ns < 1_000 { "< 1 us".to_owned() } else { human::latency(ns) }
}

fn faster(times: f64) -> String {
    let digits = usize::from(times < 9.95);
    format!("{times:.digits$} x")
}

fn late(ns: u64) -> String {
    match ns {
        0 => "-".to_owned(),
        1..1_000_000_000 => human::latency(ns),
        _ => human::span(ns / 1_000_000_000),
    }
}

/// A row's name: size and mode of the cache.
pub(crate) fn setup(trial: &Trial) -> (String, &'static str) {
    trial.cache.map_or_else(|| ("disk alone".to_owned(), ""), |(bytes, mode)| (human::bytes(bytes), mode.name()))
}

/// The rows of the engine and of the disk alone, in the order in which they are shown.
pub(crate) fn rows(advice: &Advice) -> impl Iterator<Item = &Trial> {
    [&advice.alone].into_iter().chain(&advice.sizes).chain(&advice.modes)
}

/// Returns the rows to compare with: RAM in place of the cache device, and other caches. Their kind
/// goes into the column of the mode.
pub(crate) fn compared(advice: &Advice) -> impl Iterator<Item = (&'static str, &Trial)> {
    let ram = advice.ram.iter().flat_map(|ram| [("RAM", &ram.alone), ("RAM, around", &ram.around)]);
    ram.chain(advice.rivals.iter().map(|(rival, trial)| (rival.name, trial)))
}

fn table(out: &mut String, advice: &Advice) -> Result<(), Error> {
    let mut table = Columns::new(["cache", "mode"], COLUMNS);
    for trial in rows(advice) {
        let (size, mode) = setup(trial);
        let mode = if is_chosen(advice, trial) { format!("{mode} <") } else { mode.to_owned() };
        table.row([size, mode].into_iter().chain(cells(advice, trial)));
    }
    for (name, trial) in compared(advice) {
        table.row([setup(trial).0, name.to_owned()].into_iter().chain(cells(advice, trial)));
    }
    out.push_str(&table.text());
    if let Some(words) = about_compared(advice) {
        writeln!(out, "{words}")?;
    }
    writeln!(
        out,
        "Of the second half of the requests. `<`: what is advised. `late`: by how much the last one came later than in the trace."
    )
}

/// Explains the rows to compare with.
pub(crate) fn about_compared(advice: &Advice) -> Option<String> {
    let mut words = Vec::new();
    if advice.ram.is_some() {
        words.push("`RAM`: in place of the cache device, with what was asked for, as a page cache; `around`: also with what is read around misses. Writes go to the disk.".to_owned());
    }
    if !advice.rivals.is_empty() {
        let names: Vec<_> = advice.rivals.iter().map(|(rival, _)| rival.name).collect();
        words.push(format!(
            "{}: models, in writeback mode with their defaults. They were fitted to published measurements, which they meet more or less (docs/laboratory/comparing.md); measure yours before you choose by them.",
            names.join(", ")
        ));
    }
    (!words.is_empty()).then(|| words.join(" "))
}

/// Whether a row is advised. Without writes all modes are one, and only writeback was tried.
pub(crate) fn is_chosen(advice: &Advice, trial: &Trial) -> bool {
    let same = |choice: Choice, (bytes, mode)| {
        bytes == choice.cache_bytes && (mode == choice.mode || advice.survey.writes == 0)
    };
    advice.choice.zip(trial.cache).is_some_and(|(choice, cache)| same(choice, cache))
}

/// Returns the conclusions, a line each.
pub(crate) fn conclusions(question: &Question, advice: &Advice) -> Vec<String> {
    let mut lines = vec![because::because(question, advice)];
    if let Some(choice) = &advice.choice {
        if !advice.because.needs_cache() {
            lines.push(format!(
                "If it is to be an SSD: with {} in {} mode a request takes {}.",
                human::bytes(choice.cache_bytes),
                choice.mode.name(),
                latency(choice.mean_ns)
            ));
        }
        lines.push(size(advice, choice));
        lines.push(mode(advice, choice));
        lines.extend(wear(advice, choice));
        lines.extend(because::ram(advice));
    }
    lines.push(because::converged(advice));
    lines.extend(limits(question, advice));
    lines
}

fn size(advice: &Advice, choice: &Choice) -> String {
    let best = advice.sizes.iter().min_by_key(|trial| trial.played.mean_ns());
    let Some((best, at)) = best.and_then(|trial| Some((trial.cache?.0, trial.played.mean_ns()))) else {
        return String::new();
    };
    if advice.sizes.first().is_some_and(|trial| trial.cache.is_some_and(|it| it.0 == choice.cache_bytes)) {
        return format!("Size: {} is the smallest that was tried.", human::bytes(choice.cache_bytes));
    }
    if best <= choice.cache_bytes {
        return format!("Size: a smaller one than {} saves clearly less.", human::bytes(choice.cache_bytes));
    }
    format!(
        "Size: {} saves {} or more of the time that {} would ({} a request).",
        human::bytes(choice.cache_bytes),
        human::percent(Some(ENOUGH)),
        human::bytes(best),
        human::latency(at)
    )
}

fn mode(advice: &Advice, choice: &Choice) -> String {
    let of = |mode| {
        let all = advice.sizes.iter().chain(&advice.modes);
        all.filter(|trial| trial.cache == Some((choice.cache_bytes, mode))).map(|trial| trial.played.mean_ns()).next()
    };
    let time = |mode| of(mode).map_or_else(String::new, human::latency);
    match choice.mode {
        _ if advice.survey.writes == 0 => {
            "Mode: writethrough, as nothing is written here. (A trace without directions is read as reads.)".to_owned()
        }
        Mode::Writeback => format!(
            "Mode: writeback, as writethrough takes {} and writearound {} a request. What is dirty is lost with the cache device; a mirror prevents that.",
            time(Mode::Writethrough),
            time(Mode::Writearound)
        ),
        Mode::Writethrough => format!(
            "Mode: writethrough, as writeback is {} ({} a request), and nothing is lost with the cache device.",
            compared_with(of(Mode::Writeback), choice.mean_ns),
            time(Mode::Writeback)
        ),
        _ => format!(
            "Mode: writearound, as writeback is {} ({} a request), what is written needn't go to flash, and nothing is lost with the cache device.",
            compared_with(of(Mode::Writeback), choice.mean_ns),
            time(Mode::Writeback)
        ),
    }
}

/// How fast writeback is beside the mode that is advised.
fn compared_with(writeback_ns: Option<u64>, chosen_ns: u64) -> &'static str {
    match writeback_ns {
        Some(ns) if ns as f64 > chosen_ns as f64 * 1.01 => "slower here",
        Some(ns) if ns as f64 > chosen_ns as f64 * 0.99 => "no faster",
        _ => "hardly faster",
    }
}

/// Returns the bytes in a day, if the trace says how long it took.
pub(crate) fn per_day(advice: &Advice, bytes: u64, took_ns: u64) -> Option<u64> {
    advice.survey.span_ns?;
    (took_ns > 0).then(|| (bytes as f64 * 86_400e9 / took_ns as f64) as u64)
}

fn wear(advice: &Advice, choice: &Choice) -> Option<String> {
    let a_day = per_day(advice, choice.flash_write_bytes, choice.took_ns)?;
    if a_day == 0 {
        return Some("Wear: once it is filled nothing is written to the cache device.".to_owned());
    }
    Some(format!(
        "Wear: {} a day are written to the cache device, {:.1} times the cache. Its endurance (DWPD, times its whole size) must allow that; `flash_writes_per_day` bounds what reads cause.",
        human::bytes(a_day),
        a_day as f64 / choice.cache_bytes as f64
    ))
}

/// Returns the limits of the figures, a line each.
fn limits(question: &Question, advice: &Advice) -> Vec<String> {
    let mut lines = Vec::new();
    let is_late = |played: &Played| {
        advice.survey.span_ns.is_some_and(|ns| played.late_ns as f64 > ns.max(1_000_000_000) as f64 * LATE)
    };
    if is_late(&advice.alone.played) {
        lines.push(format!(
            "{} alone can't keep up with the trace ({} late), which is of a faster disk, or of several: its clients would have waited even longer than is shown.",
            question.origin.name,
            human::span(advice.alone.played.late_ns / 1_000_000_000)
        ));
    }
    if let Some(largest) = advice.sizes.last().and_then(|trial| trial.cache)
        && largest.0 < advice.survey.touched_bytes
        && advice.choice.is_none_or(|choice| choice.cache_bytes == largest.0)
    {
        lines.push(format!(
            "{} is the largest that was tried; larger ones may do better ({} are touched).",
            human::bytes(largest.0),
            human::bytes(advice.survey.touched_bytes)
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writeback_is_called_what_the_table_shows() {
        let of = |writeback_us: u64, chosen_us: u64| compared_with(Some(writeback_us * 1000), chosen_us * 1000);
        assert_eq!([of(3950, 1520), of(1520, 1520), of(1400, 1520)], ["slower here", "no faster", "hardly faster"]);
    }
}
