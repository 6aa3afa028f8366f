// SPDX-License-Identifier: MIT OR Apache-2.0
//! The status as people read it: 80 columns, but for paths and addresses that are longer.

use std::fmt::{Result, Write};

use flashfront_serve::report::{HangReport, StatusReport, VolumeReport};

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
    for word in text.split(' ') {
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
    if report.without_cache {
        entry(out, "NO CACHE", "the origin is served without it; if the cache held dirty data, that is missing")?;
    }
    for device in &report.cache_devices {
        let role = if report.mirror == "none" { String::new() } else { format!("  {}", device.role) };
        entry(out, "cache", &format!("{}{role}", device.path))?;
        if let Some(hang) = device.hang {
            entry(out, "HANGS", &format!("{}: {}", device.path, hanging(hang)))?;
        }
    }
    match report.mirror.as_str() {
        "alone" => entry(out, "ALONE", "one cache device is left: `flashfront mirror add DEVICE` makes a new mirror"),
        "syncing" => {
            let (copied, all) = (report.mirror_copied_blocks, report.mirror_of_blocks);
            entry(out, "mirroring", &format!("{} of {}", human::blocks(copied), human::blocks(all)))
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
    volume_alarms(out, volume)
}

/// A volume in a line.
fn volume_head(out: &mut String, volume: &VolumeReport, without_cache: bool) -> Result {
    let (size, dirty) = (human::bytes(volume.size_bytes), human::blocks(volume.blocks_dirty));
    let dirty = if without_cache { String::new() } else { format!("  {dirty} dirty") };
    entry(out, "volume", &format!("{}  {size}  {}{dirty}", volume.name, volume.mode))
}

/// What is wrong with a volume.
fn volume_alarms(out: &mut String, volume: &VolumeReport) -> Result {
    if let Some(why) = &volume.away_why {
        let since = human::span(volume.away_s);
        entry(out, "AWAY", &format!("{}: the origin's server, for {since}: {why}; tried again for ever", volume.name))?;
    }
    if let Some(hang) = volume.origin_hang {
        entry(out, "HANGS", &format!("{}: the origin: {}", volume.name, hanging(hang)))?;
    }
    if let Some(error) = volume.origin_error.as_ref().filter(|_| volume.origin_hang.is_none()) {
        let why = format!("{}: the origin refuses dirty data: {error}; it is tried again", volume.name);
        entry(out, "REFUSED", &why)?;
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
    entry(out, "clients", &format!("{clients} connected, {requests} requests in flight{threads}{lanes}"))?;
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
mod tests {
    use flashfront_engine::shadow::{Totals, WhatIf};
    use flashfront_engine::{MirrorStatus, Mode, OriginId, OriginStatus, Status};
    use flashfront_serve::daemon::OriginErrors;
    use flashfront_serve::latency::{Durations, Kind, Summary};
    use flashfront_serve::report::{Facts, LinkReport, LostRange, VolumeFacts};

    use super::*;

    fn what_if(size_percent: u32, read_hits: u64, filled: bool) -> WhatIf {
        let totals = Totals { reads: 1000, read_hits, origin_read_blocks: 1000 - read_hits, ..Totals::default() };
        WhatIf { size_percent, totals: Totals { absorbed_blocks: 7, ..totals }, filled }
    }

    fn sizes() -> Vec<WhatIf> {
        vec![what_if(50, 400, true), what_if(100, 600, true), what_if(200, 700, true), what_if(400, 800, false)]
    }

    #[test]
    fn other_sizes_are_compared_with_the_present_one() {
        let status = Status { shadow_bytes: 1, ..Default::default() };
        let unknown = table(&StatusReport::new(&status, &Facts::default()), None).unwrap();
        assert!(unknown.contains("what if     another size would do better is not known yet"), "{unknown}");
        let status = Status { what_if: sizes(), ..status };
        let text = table(&StatusReport::new(&status, &Facts::default()), None).unwrap();
        for line in [
            "what if     the cache were      hits  origin reads  origin writes  flash writes",
            "            half as large     40.0 %         1.50x              -         1.00x",
            "            as it is          60.0 %         1.00x              -         1.00x",
            "            twice as large    70.0 %         0.75x              -         1.00x",
            "            4 times as large  80.0 %         0.50x              -         1.00x",
            "            (4x not full yet: it may get better still)",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is missing from\n{text}");
        }
    }

    fn minute() -> Summary {
        Summary { p50_ns: 12_345, p99_ns: 8_123_456, max_ns: 500_000_000_000, count: 1_000_000_000 }
    }

    #[test]
    fn what_took_how_long_is_a_table() {
        let text = table(&report(), None).unwrap();
        let lines = "
last minute        p50         p99     longest      requests
  hit            12 us     8.12 ms    500.00 s 1,000,000,000
  miss           12 us     8.12 ms    500.00 s 1,000,000,000
  write          12 us     8.12 ms    500.00 s 1,000,000,000
  flush          12 us     8.12 ms    500.00 s 1,000,000,000
";
        assert!(text.contains(lines), "{text}");
        let quiet = StatusReport::new(&Status::default(), &Facts::default());
        assert!(!table(&quiet, None).unwrap().contains("last minute"));
    }

    /// A report with a volume that has a value in every field.
    fn report() -> StatusReport {
        let volume = VolumeFacts {
            name: "data".to_owned(),
            origin_path: "/dev/sdb".to_owned(),
            uris: ["nbd+unix:///data?socket=/run/disk.sock", "file:///mnt/data"].map(str::to_owned).into(),
            durability: "flush".to_owned(),
            policy: "gated".to_owned(),
            origin_error: Some("no space left (ENOSPC)".to_owned()),
            origin_hang: None,
            origin_link: LinkReport::default(),
            failed: OriginErrors { reads: 1, writes: 12_345 },
            durations: Kind::ALL.map(|_| Durations { minute: minute(), ..Durations::default() }),
        };
        let facts = Facts {
            backend: "io_uring".to_owned(),
            volumes: vec![volume],
            members: ["/dev/nvme0n1", "/dev/nvme1n1"].map(|path| Some(path.to_owned())),
            uptime_s: 1_000_000,
            clients: 1000,
            threads: 64,
            lane_threads: 16,
            lanes: 16,
            opening: true,
            request_buffer_bytes: 1 << 35,
            ..Facts::default()
        };
        let origin = OriginStatus {
            id: OriginId(0),
            mode: Mode::Writethrough,
            size_bytes: 100 << 40,
            blocks_dirty: 123_456_789,
            doubtful: false,
        };
        let status = Status {
            origins: vec![origin],
            mirror: MirrorStatus::Whole,
            mirror_lacks_blocks: 1234,
            cache_failed: true,
            blocks_cached: 234_567_890,
            capacity_blocks: 345_678_901,
            blocks_dirty: 123_456_789,
            dirty_limit_blocks: 172_839_450,
            flash_writes_per_day_bytes: Some(1 << 40),
            flash_writes_left_bytes: -(1 << 39),
            index_bytes: 1 << 32,
            buffer_bytes: 1 << 34,
            window_bytes: 1 << 30,
            ram_front_bytes: 1 << 36,
            shadow_bytes: 1 << 22,
            what_if: sizes(),
            requests_in_flight: 10_000,
            ..Status::default()
        };
        let mut report = StatusReport::new(&status, &facts);
        report.lost_blocks = 1_000_000_000;
        report.counters.corrupt_blocks = 1_000_000_000;
        let range = |nth: u64| LostRange { origin: "data".to_owned(), lba: nth << 40, blocks: 1 << 40 };
        report.lost = (0..25).map(range).collect();
        report
    }

    #[test]
    fn a_volume_is_shown_with_its_origin_and_its_addresses() {
        let text = table(&report(), None).unwrap();
        let lines = "\
volume      data  100 TiB  writethrough  471 GiB dirty
  origin    /dev/sdb
  at        nbd+unix:///data?socket=/run/disk.sock
            file:///mnt/data
  policy    gated, durability flush
REFUSED     data: the origin refuses dirty data: no space left (ENOSPC); it is
            tried again
FAILED      data: 1 read and 12,345 writes of the origin; see the log
";
        assert!(text.contains(lines), "{text}");
        assert!(text.contains("cache       /dev/nvme0n1  lead\ncache       /dev/nvme1n1  mirror\n"), "{text}");
    }

    #[test]
    fn no_line_is_longer_than_80_columns() {
        let all = report();
        let before = StatusReport { counters: Default::default(), ..all.clone() };
        let alone = StatusReport { mirror: "alone".to_owned(), ..all.clone() };
        let bare = StatusReport { without_cache: true, ..all.clone() };
        for (report, before) in [(&all, Some((&before, 1.0))), (&all, None), (&alone, None), (&bare, None)] {
            let text = table(report, before).unwrap();
            for line in text.lines() {
                assert!(line.chars().count() <= COLUMNS, "{} columns: {line}\n{text}", line.chars().count());
            }
        }
    }

    #[test]
    fn a_word_longer_than_a_line_stays_whole() {
        let (mut out, path) = (String::new(), "/x".repeat(60));
        entry(&mut out, "cache", &format!("{path}  lead")).unwrap();
        assert!(out.starts_with(&format!("cache       {path}\n")), "{out}");
    }

    #[test]
    fn the_table_says_what_matters() {
        let engine = Status { capacity_blocks: 1000, dirty_limit_blocks: 500, ..Default::default() };
        let before = StatusReport::new(&engine, &Facts::default());
        let mut report = before.clone();
        report.counters.reads = 3000;
        report.counters.read_hits = 3;
        report.counters.read_misses = 1;
        report.blocks_dirty = 250;
        report.cache_failed = true;
        report.lost_blocks = 2;
        report.lost = vec![LostRange { origin: "data".to_owned(), lba: 8, blocks: 2 }];
        let text = table(&report, Some((&before, 2.0))).unwrap();
        assert!(text.contains("[###############...............]"), "{text}");
        assert!(text.contains("75.0 % since the start"), "{text}");
        assert!(text.contains("1,500"), "{text}");
        assert!(text.contains("FAILED"), "{text}");
        assert!(text.contains("sector 8, 2 blocks"), "{text}");
        report.counters.joined_blocks = 512;
        report.counters.waiting_neighbour_blocks = 256;
        let text = table(&report, None).unwrap();
        assert!(
            text.contains("  in RAM            1.00 MiB") && text.contains("joined              2.00 MiB"),
            "{text}"
        );
        let plain = table(&before, None).unwrap();
        assert!(!plain.contains("joined") && !plain.contains("in RAM"), "{plain}");
        assert!(plain.contains("hits        - of") && !plain.contains("LOST"), "{plain}");
        assert!(!plain.contains("what if") && !plain.contains("budget"), "{plain}");
        assert!(!plain.contains("FAILED") && !plain.contains("NO CACHE"), "{plain}");
        let budget = |left| {
            let limited = StatusReport { flash_writes_per_day_bytes: 200 << 30, ..before.clone() };
            table(&StatusReport { flash_writes_left_bytes: left, ..limited }, None).unwrap()
        };
        assert!(budget(3 << 30).contains("budget      3.00 GiB of flash writes saved up, 200 GiB a day"));
        assert!(budget(-5 << 20).contains("budget      used up, 5.00 MiB of debt, 200 GiB"));
        let alone = table(&StatusReport { without_cache: true, ..before }, None).unwrap();
        assert!(alone.contains("NO CACHE") && !alone.contains("cached") && !alone.contains("hits"), "{alone}");
    }
}
