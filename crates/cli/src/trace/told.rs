// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a trace was read, and what a reader of its figures should know.

use flashfront_sim::replay::{GridChoice, Reading, Source};
use flashfront_sim::trace::{Action, Reason, Report};

use crate::human;

/// How a trace was read, if not as it is: on which grid, behind what, and without what.
pub(crate) fn how(reading: &Reading) -> String {
    let mut out = String::new();
    if let phases = reading.phases()
        && phases != [0]
    {
        let phases: Vec<_> = phases.iter().map(u8::to_string).collect();
        out += &format!("; blocks begin at sector {} modulo 8", phases.join(" or "));
        if let disks @ 2.. = reading.disks.len() {
            out += &format!(", as best for each of {} disks", human::count(disks as u64));
        }
    }
    if reading.page_cache_hits > 0 {
        out += &format!("; the page cache answered {} reads of blocks", human::count(reading.page_cache_hits));
    }
    let requests = [
        (reading.echoes_dropped, "echo", "echoes"),
        (reading.discards, "discard", "discards"),
        (reading.flushes, "flush", "flushes"),
        (reading.report.bad, "bad line", "bad lines"),
    ];
    let requests = requests.into_iter().filter(|it| it.0 > 0).map(|(count, one, many)| counted(count, one, many));
    let lines = reading.report.skipped.iter().map(|(kind, count)| counted(*count, &Report::one_of(kind), kind));
    let left_out: Vec<String> = requests.chain(lines).collect();
    if !left_out.is_empty() {
        out += &format!("; left out: {}", left_out.join(", "));
    }
    out
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", human::count(count), if count == 1 { one } else { many })
}

/// What a reader of the figures should know, to stderr.
pub(crate) fn remarks(name: &str, source: &Source, reading: &Reading) {
    let (report, format) = (&reading.report, reading.format);
    let guessed = source.options.format.is_none();
    if guessed && !format.lookalikes.is_empty() {
        tracing::warn!(
            "{name}: taken for {}: {}. That is a guess, as {} look alike but for their units; if the footprint is absurd, say which with --format",
            format.name,
            format.summary,
            format.lookalikes.join(", ")
        );
    }
    if source.options.action != Action::default() && !format.has_actions() {
        tracing::warn!("{name}: --action does nothing here: {} has one line or record for a request", format.name);
    }
    if report.is_mostly_bad() {
        tracing::error!(
            "{name}: {} but only {} could be read: these figures tell nothing of the trace; it is damaged, or of another format (--format)",
            counted(report.bad, "line is bad", "lines are bad"),
            counted(report.records, "request", "requests")
        );
    }
    if let Some(damage) = &report.damage {
        tracing::warn!("{name}: {damage}; what came before may be wrong as well, so get the file anew");
    }
    let lines = report.bad - u64::from(report.damage.is_some());
    if lines > 0 {
        let shown = report.first_bad.iter().filter(|bad| !matches!(bad.reason, Reason::Damaged(_)));
        let shown: Vec<String> = shown.map(ToString::to_string).collect();
        let left_out = counted(lines, "bad line was left out", "bad lines were left out");
        tracing::warn!("{name}: {left_out}; the first: {}", shown.join("; "));
    }
    if reading.times_back > 0 {
        tracing::warn!(
            "{name}: its times step back by more than 10 s, or on by more than a year ({}), as where traces were joined or a clock was set; they are taken to go on from where they were. \
             If it is not in order, sort it: `advise`, smq, --flash-writes-per-day and --drop-echoes go by the time",
            counted(reading.times_back, "time", "times")
        );
    }
    if source.echoes_ns.is_some() && !reading.timed {
        tracing::warn!("{name}: no request has a time, so none is taken for an echo");
    }
    if reading.discards > 0 {
        tracing::warn!("{name}: {}", counted(reading.discards, "discard was left out", "discards were left out"));
    }
    if let Some(unaligned) = unaligned(reading) {
        tracing::warn!("{name}: {unaligned}");
    }
}

/// Disks with less than this share of the requests are not worth a word. They cost a block more in
/// one request of twenty at most.
const DISKS_WORTH_A_WORD: f64 = 0.05;

/// Disks most of whose requests touch a block more than they must.
fn unaligned(reading: &Reading) -> Option<String> {
    let off: Vec<_> = reading.disks.iter().filter(|disk| disk.grid.phase() > 0 && disk.share > 0.5).collect();
    let requests: u64 = off.iter().map(|disk| disk.requests).sum();
    let all: u64 = reading.disks.iter().map(|disk| disk.requests).sum();
    let of_all = requests as f64 / all.max(1) as f64;
    if reading.grid == GridChoice::Detected || of_all < DISKS_WORTH_A_WORD {
        return None;
    }
    let share = off.iter().map(|disk| disk.share * disk.requests as f64).sum::<f64>() / requests as f64;
    let mut phases: Vec<u8> = off.iter().map(|disk| disk.grid.phase()).collect();
    phases.sort_unstable();
    phases.dedup();
    let phases: Vec<String> = phases.iter().map(u8::to_string).collect();
    let disks = match reading.disks.len() {
        1 => String::new(),
        disks => format!(" to {} of {disks} disks, which have {} of all,", off.len(), human::percent(Some(of_all))),
    };
    Some(format!(
        "{} of the beginnings and ends of requests{disks} are at sector {} modulo 8, as on a partition that is not aligned: such requests touch a block more than they must; --shift-grid shows the cache with blocks that begin there",
        human::percent(Some(share)),
        phases.join(" or ")
    ))
}
