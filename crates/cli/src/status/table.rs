// SPDX-License-Identifier: MIT OR Apache-2.0
//! The status as people read it: 80 columns, but for paths and addresses that are longer.

use std::fmt::{Result, Write};

use flashfront_serve::report::{AskedReport, HangReport, MapFileReport, StatusReport, StoreReport, VolumeReport};

use crate::human;

/// Columns that a terminal has at least.
const COLUMNS: usize = 80;
/// Columns of the names on the left.
pub(super) const LABEL: usize = 12;

/// The report for people; `before`, taken so many seconds earlier, gives rates.
pub(super) fn table(
    report: &StatusReport,
    before: Option<(&StatusReport, f64)>,
) -> std::result::Result<String, std::fmt::Error> {
    let mut out = String::new();
    head(&mut out, report)?;
    devices(&mut out, report)?;
    for volume in &report.volumes {
        self::volume(&mut out, volume, report.without_cache)?;
    }
    if let Some(file) = &report.map_file {
        entry(&mut out, "map file", &map_file(file))?;
    }
    if !report.without_cache {
        fill(&mut out, report)?;
        hits(&mut out, report, before)?;
    }
    lost(&mut out, report)?;
    latencies(&mut out, report)?;
    writeln!(out)?;
    counters(&mut out, report, before)?;
    writeln!(out)?;
    process(&mut out, report)?;
    Ok(out)
}

/// The figures that people watch, in the order of their weight: a low window shows the first ones.
pub(super) fn watched(report: &StatusReport, history: &[String]) -> std::result::Result<String, std::fmt::Error> {
    let mut out = String::new();
    head(&mut out, report)?;
    devices(&mut out, report)?;
    lost(&mut out, report)?;
    for volume in report.volumes.iter().take(VOLUMES_WATCHED) {
        volume_head(&mut out, volume, report.without_cache)?;
        volume_alarms(&mut out, volume)?;
    }
    if report.volumes.len() > VOLUMES_WATCHED {
        let more = human::counted((report.volumes.len() - VOLUMES_WATCHED) as u64, "more volume");
        entry(&mut out, "", &format!("and {more} (`flashfront status` lists all)"))?;
    }
    writeln!(out)?;
    history.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    if !report.without_cache {
        fill(&mut out, report)?;
    }
    latencies(&mut out, report)?;
    process(&mut out, report)?;
    if !report.without_cache {
        hits(&mut out, report, None)?;
    }
    Ok(out)
}

/// What a window has room for beside the rest.
const VOLUMES_WATCHED: usize = 4;

/// Which daemon this is, and what it is doing.
fn head(out: &mut String, report: &StatusReport) -> Result {
    let state = match (report.opening, report.draining) {
        (true, _) => "replaying, requests wait",
        (_, true) => "draining",
        _ => "serving",
    };
    let up = human::span(report.uptime_s);
    writeln!(out, "flashfront {}  pid {}  {}  up {up}  {state}", report.version, report.pid, report.backend)
}

/// A name and what there is to say of it, broken between words where a line is full.
fn entry(out: &mut String, label: &str, text: &str) -> Result {
    let mut line = format!("{label:<LABEL$}");
    let mut is_empty = true;
    // Paths can have any character.
    for word in human::one_line(text).split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            writeln!(out, "{line}")?;
            line = " ".repeat(LABEL);
        } else if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    writeln!(out, "{}", line.trim_end())
}

/// The cache devices, and what is wrong with them.
fn devices(out: &mut String, report: &StatusReport) -> Result {
    if report.cache_failed {
        entry(out, "FAILED", "the cache device takes nothing new: drain, stop, and do not serve it again")?;
    }
    if report.detached {
        let what = "it was detached, and the origins lack nothing; `flashfront cache attach` gives them one";
        entry(out, "NO CACHE", what)?;
    } else if report.without_cache {
        entry(out, "NO CACHE", "the origin is served without it; if the cache held dirty data, that is missing")?;
    }
    for device in &report.cache_devices {
        let role = if report.mirror == "none" { String::new() } else { format!("  {}", device.role) };
        entry(out, "cache", &format!("{}{role}", device.path))?;
        if let Some(hang) = device.hang {
            entry(out, "HANGS", &format!("{}: {}", device.path, hanging(hang)))?;
        }
    }
    if let Some(left) = report.left_in_end_blocks {
        entry(out, "emptying", &format!("{} are left beyond the size that the cache is to have", human::blocks(left)))?;
    }
    match report.mirror.as_str() {
        "alone" => entry(out, "ALONE", "one cache device is left: `flashfront mirror add DEVICE` makes a new mirror"),
        "syncing" => {
            let (copied, all) = (report.mirror_copied_blocks, report.mirror_of_blocks);
            entry(out, "mirroring", &format!("{} of {}", human::blocks(copied), human::blocks(all)))
        }
        "whole" if report.leaving_path.is_some() || report.promoting_path.is_some() => {
            let (copied, all) = (report.mirror_copied_blocks, report.mirror_of_blocks);
            entry(out, "moving", &format!("{} of {}", human::blocks(copied), human::blocks(all)))
        }
        "whole" if report.mirror_lacks_blocks > 0 => {
            let lacking = human::blocks(report.mirror_lacks_blocks);
            let why = "are on one cache device only: unreadable when the other one was filled";
            entry(out, "LACKING", &format!("{lacking} dirty {why}"))
        }
        _ => Ok(()),
    }
}

/// What is to be said of a device that hangs.
fn hanging(hang: HangReport) -> String {
    let ios = human::counted(hang.ios, "I/O");
    format!("no answer to {ios} for {}; new ones fail until these have ended", human::span(hang.silent_s))
}

/// Shows a volume: its mode and size, its origin, and its addresses.
fn volume(out: &mut String, volume: &VolumeReport, without_cache: bool) -> Result {
    volume_head(out, volume, without_cache)?;
    entry(out, "  origin", &volume.origin_path)?;
    for (nth, uri) in volume.uris.iter().enumerate() {
        entry(out, if nth == 0 { "  at" } else { "" }, uri)?;
    }
    if !without_cache {
        entry(out, "  policy", &format!("{}, durability {}", volume.policy, volume.durability))?;
    }
    if let Some(asked) = &volume.store {
        entry(out, "  store", &store(asked))?;
    }
    volume_alarms(out, volume)
}

/// The requests to an object store, and what became of them.
fn store(asked: &StoreReport) -> String {
    let of = |(name, it): (&str, &AskedReport)| match it.latency_us.count {
        0 => format!("no {name}"),
        _ => format!("{} {name} (p99 {})", human::count(it.requests), human::latency(it.latency_us.p99.ns())),
    };
    let kinds = asked.each().map(of).join(", ");
    let (sent, received) = (human::bytes(asked.put.bytes), human::bytes(asked.get.bytes));
    let sum = |count: fn(&AskedReport) -> u64| asked.each().map(|it| count(it.1)).iter().sum();
    let told = match (sum(|it| it.errors), sum(|it| it.throttled), sum(|it| it.retries)) {
        (0, ..) => String::new(),
        (errors, throttled, retries) => format!(
            "; {}, {throttled} of them as the store wants fewer requests, {} sent again",
            human::counted(errors, "error"),
            human::count(retries)
        ),
    };
    format!("{kinds}; {sent} sent, {received} received{told}")
}

/// A volume in a line.
fn volume_head(out: &mut String, volume: &VolumeReport, without_cache: bool) -> Result {
    let (size, dirty) = (human::bytes(volume.size_bytes), human::blocks(volume.blocks_dirty));
    let dirty = if without_cache { String::new() } else { format!("  {dirty} dirty") };
    entry(out, "volume", &format!("{}  {size}  {}{dirty}", volume.name, volume.mode))
}

/// The file with pages of maps, and what it has saved.
fn map_file(file: &MapFileReport) -> String {
    if let Some(why) = &file.off {
        return format!("none: {why}");
    }
    let (bytes, size) = (human::bytes(file.page_bytes), human::bytes(file.size_bytes));
    let pages = if file.is_ready { human::counted(file.pages, "page") } else { "being read".to_owned() };
    let (saved, missed) = (human::counted(file.saved_gets, "GET"), human::count(file.missed_gets));
    format!("{}: {pages}, {bytes} of {size}; {saved} saved, {missed} went to a store", file.path)
}

/// What is wrong with a volume.
fn volume_alarms(out: &mut String, volume: &VolumeReport) -> Result {
    if let Some(by) = &volume.fenced_by {
        let unsent = human::bytes(volume.unsent_bytes);
        let what = format!(
            "{}: another writer has opened the origin ({by}): nothing is written to it any more, clients may only read, and {unsent} of dirty data never reach it; stop this daemon",
            volume.name
        );
        entry(out, "FENCED", &what)?;
    }
    if let Some(why) = &volume.away_why {
        let (since, unsent) = (human::span(volume.away_s), human::bytes(volume.unsent_bytes));
        let what = format!(
            "{}: the origin's server, for {since}: {why}; {unsent} of dirty data wait for it, and clients' writes, too, when the cache is full of it; check the network, the server and its rights; it is tried again for ever",
            volume.name
        );
        entry(out, "AWAY", &what)?;
    }
    if let Some(hang) = volume.origin_hang {
        entry(out, "HANGS", &format!("{}: the origin: {}", volume.name, hanging(hang)))?;
    }
    let is_told = volume.origin_hang.is_some() || volume.fenced;
    if let Some(error) = volume.origin_error.as_ref().filter(|_| !is_told) {
        let why = format!("{}: the origin refuses dirty data: {error}; it is tried again", volume.name);
        entry(out, "REFUSED", &why)?;
    }
    if let Some(what) = &volume.origin_astray {
        entry(out, "ASTRAY", &format!("{}: {what}", volume.name))?;
    }
    if let Some(bytes) = volume.origin_bytes {
        entry(out, "SIZE", &format!("{}: {}", volume.name, human::resized(&volume.name, volume.size_bytes, bytes)))?;
    }
    let (reads, writes) = (volume.origin_read_errors, volume.origin_write_errors);
    if reads + writes > 0 {
        let (reads, writes) = (human::counted(reads, "read"), human::counted(writes, "write"));
        entry(out, "FAILED", &format!("{}: {reads} and {writes} of the origin; see the log", volume.name))?;
    }
    Ok(())
}

/// How full the cache is, and how much of it is dirty.
fn fill(out: &mut String, report: &StatusReport) -> Result {
    let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let filled = share(report.blocks_cached, report.capacity_blocks);
    let of = |part, whole| format!("{} of {}", human::blocks(part), human::blocks(whole));
    let cached = of(report.blocks_cached, report.capacity_blocks);
    entry(out, "cached", &format!("{} {cached}", human::bar(filled, 30)))?;
    let dirty = share(report.blocks_dirty, report.dirty_limit_blocks);
    let allowed = of(report.blocks_dirty, report.dirty_limit_blocks);
    entry(out, "dirty", &format!("{} {allowed} allowed", human::bar(dirty, 30)))
}

/// How often the cache helps, what it wears out, and what another size would change.
fn hits(out: &mut String, report: &StatusReport, before: Option<(&StatusReport, f64)>) -> Result {
    let hits = human::percent(report.hit_ratio());
    let hits = match before.and_then(|(before, _)| recent_hits(report, before)) {
        Some(recent) => format!("{hits} since the start, {} in the last second", human::percent(Some(recent))),
        None => format!("{hits} of the blocks read"),
    };
    entry(out, "hits", &hits)?;
    match (report.flash_writes_per_day_bytes, report.flash_writes_left_bytes) {
        (0, _) => {}
        (day, left @ 1..) => {
            let (left, day) = (human::bytes(left.unsigned_abs()), human::bytes(day));
            entry(out, "budget", &format!("{left} of flash writes saved up, {day} a day"))?;
        }
        (day, debt) => {
            let (debt, day) = (human::bytes(debt.unsigned_abs()), human::bytes(day));
            let used = format!("used up, {debt} of debt, {day} of flash writes a day: reads are not cached");
            entry(out, "budget", &used)?;
        }
    }
    if report.shadow_bytes == 0 { Ok(()) } else { what_if(out, report) }
}

/// What another size of the cache would change.
fn what_if(out: &mut String, report: &StatusReport) -> Result {
    if report.what_if.is_empty() {
        let unknown = "another size would do better is not known yet: too little was asked for";
        return entry(out, "what if", unknown);
    }
    let row = |[size, hits, reads, writes, flash]: [&str; 5]| {
        format!("{size:<17}{hits:>7}{reads:>14}{writes:>15}{flash:>14}")
    };
    writeln!(
        out,
        "{:<LABEL$}{}",
        "what if",
        row(["the cache were", "hits", "origin reads", "origin writes", "flash writes"])
    )?;
    for it in &report.what_if {
        let size = match it.size_percent {
            50 => "half as large",
            100 => "as it is",
            200 => "twice as large",
            _ => "4 times as large",
        };
        let times = |count| report.times_present(it, count).map_or_else(|| "-".to_owned(), |it| format!("{it:.2}x"));
        let hits = human::percent(it.read_hit_ratio());
        let [reads, writes, flash] = [
            times(|it| it.origin_read_blocks),
            times(|it| it.origin_write_blocks),
            times(|it| it.flash_written_blocks),
        ];
        writeln!(out, "{:LABEL$}{}", "", row([size, &hits, &reads, &writes, &flash]))?;
    }
    let unfilled = report.what_if.iter().filter(|it| !it.filled).map(|it| f64::from(it.size_percent) / 100.0);
    let unfilled: Vec<String> = unfilled.map(|times| format!("{times}x")).collect();
    if unfilled.is_empty() {
        return Ok(());
    }
    entry(out, "", &format!("({} not full yet: it may get better still)", unfilled.join(", ")))
}

fn recent_hits(now: &StatusReport, before: &StatusReport) -> Option<f64> {
    let hits = now.counters.read_hits.saturating_sub(before.counters.read_hits);
    let misses = now.counters.read_misses.saturating_sub(before.counters.read_misses);
    (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
}

/// What did not match its checksum, and what of it had no other copy.
fn lost(out: &mut String, report: &StatusReport) -> Result {
    if report.counters.corrupt_blocks > 0 || report.lost_blocks > 0 {
        let corrupt = human::counted(report.counters.corrupt_blocks, "block");
        entry(out, "CORRUPT", &format!("{corrupt} did not match its checksum"))?;
    }
    if report.lost_blocks > 0 {
        let lost = human::counted(report.lost_blocks, "block");
        entry(out, "LOST", &format!("{lost}; reads of what is lost fail until it is written anew:"))?;
        for range in report.lost.iter().take(20) {
            let blocks = human::counted(range.blocks, "block");
            entry(out, "", &format!("{}: sector {}, {blocks} of 4 KiB", range.origin, range.lba))?;
        }
        if report.lost.len() > 20 {
            entry(out, "", &format!("and {} more ranges (--json lists all)", report.lost.len() - 20))?;
        }
    }
    Ok(())
}

/// How long requests took in the last minute: of each volume, what there was.
fn latencies(out: &mut String, report: &StatusReport) -> Result {
    let is_one = report.volumes.len() == 1;
    let mut has_head = false;
    for volume in &report.volumes {
        for (kind, took) in volume.latency_us.each().into_iter().filter(|(_, took)| took.count > 0) {
            if !std::mem::replace(&mut has_head, true) {
                writeln!(
                    out,
                    "\n{:<LABEL$}{:>10}{:>12}{:>12}{:>14}",
                    "last minute", "p50", "p99", "longest", "requests"
                )?;
            }
            let [p50, p99, max] = [took.p50, took.p99, took.max].map(|it| human::latency(it.ns()));
            let of = if is_one { String::new() } else { format!("  {}", volume.name) };
            let name = format!("  {kind}");
            writeln!(out, "{name:<LABEL$}{p50:>10}{p99:>12}{max:>12}{:>14}{of}", human::count(took.count))?;
        }
    }
    Ok(())
}

/// What was done since the start, and in a second.
fn counters(out: &mut String, report: &StatusReport, before: Option<(&StatusReport, f64)>) -> Result {
    let now = &report.counters;
    let second = if before.is_some() { "per second" } else { "" };
    let head = format!("{:>28} {second:>14}", "since the start");
    writeln!(out, "{}", head.trim_end())?;
    let mut line = |name: &str, value: u64, old: fn(&StatusReport) -> u64, size: bool| {
        let text = |value| if size { human::bytes(value) } else { human::count(value) };
        let rate = before.map_or_else(String::new, |(before, seconds)| {
            text((value.saturating_sub(old(before)) as f64 / seconds) as u64)
        });
        let line = format!("{name:<LABEL$}{:>16} {rate:>14}", text(value));
        writeln!(out, "{}", line.trim_end())
    };
    line("reads", now.reads, |it| it.counters.reads, false)?;
    line("writes", now.writes, |it| it.counters.writes, false)?;
    line("flushes", now.flushes, |it| it.counters.flushes, false)?;
    line("origin  r", now.origin_reads_bytes, |it| it.counters.origin_reads_bytes, true)?;
    line("origin  w", now.origin_writes_bytes, |it| it.counters.origin_writes_bytes, true)?;
    line("cache   r", now.cache_reads_bytes, |it| it.counters.cache_reads_bytes, true)?;
    line("cache   w", now.cache_writes_bytes, |it| it.counters.cache_writes_bytes, true)?;
    line("promoted", now.promoted_blocks * 4096, |it| it.counters.promoted_blocks * 4096, true)?;
    line("neighbours", now.neighbour_blocks * 4096, |it| it.counters.neighbour_blocks * 4096, true)?;
    if now.waiting_neighbour_blocks > 0 {
        line("  in RAM", now.waiting_neighbour_blocks * 4096, |it| it.counters.waiting_neighbour_blocks * 4096, true)?;
    }
    if now.joined_blocks > 0 {
        line("joined", now.joined_blocks * 4096, |it| it.counters.joined_blocks * 4096, true)?;
    }
    if now.over_budget_blocks > 0 {
        line("overbudget", now.over_budget_blocks * 4096, |it| it.counters.over_budget_blocks * 4096, true)?;
    }
    line("destaged", now.destaged_blocks * 4096, |it| it.counters.destaged_blocks * 4096, true)?;
    line("bypassed", now.bypassed_sequential, |it| it.counters.bypassed_sequential, false)?;
    if now.bypassed_congested_blocks > 0 {
        line(
            "congested",
            now.bypassed_congested_blocks * 4096,
            |it| it.counters.bypassed_congested_blocks * 4096,
            true,
        )?;
    }
    line("throttled", now.throttled_writes, |it| it.counters.throttled_writes, false)
}

/// Clients, threads and memory.
fn process(out: &mut String, report: &StatusReport) -> Result {
    let threads = match report.threads {
        0 | 1 => String::new(),
        more => format!("; {more} threads, one of them the engine's"),
    };
    let lanes = match (report.lanes, report.lane_threads) {
        (0 | 1, _) => String::new(),
        (lanes, 0 | 1) => format!("; {lanes} lanes"),
        (lanes, threads) => format!("; {lanes} lanes by {threads} threads"),
    };
    let (clients, requests) = (report.clients, report.requests_in_flight);
    let refused = match report.clients_refused {
        0 => String::new(),
        refused => format!(", {} turned away so far (all places were taken)", human::count(refused)),
    };
    entry(out, "clients", &format!("{clients} connected{refused}, {requests} requests in flight{threads}{lanes}"))?;
    let memory = format!(
        "{} resident; index {}, buffers {}, window {}, RAM front {}",
        human::bytes(report.rss_bytes),
        human::bytes(report.index_bytes),
        human::bytes(report.buffer_bytes + report.request_buffer_bytes),
        human::bytes(report.window_bytes),
        human::bytes(report.ram_front_bytes)
    );
    entry(out, "memory", &memory)
}

#[cfg(test)]
mod tests;
