// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront status`: what a running daemon does, once or every second.

use std::fmt::Write;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use flashfront_serve::config::control_path_to_ask;
use flashfront_serve::control::Client;
use flashfront_serve::report::StatusReport;

use crate::human;
use crate::interrupt::Interrupt;

/// How to reach a daemon.
#[derive(Debug, Args)]
pub(crate) struct Socket {
    /// The daemon's control socket [default: $XDG_RUNTIME_DIR/flashfront.sock if it is there, else /run/flashfront.sock].
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

impl Socket {
    pub(crate) fn path(&self) -> PathBuf {
        self.control.clone().unwrap_or_else(control_path_to_ask)
    }
}

/// Show what a running daemon does.
#[derive(Debug, Args)]
pub(crate) struct Status {
    #[command(flatten)]
    socket: Socket,
    /// Print one line of JSON (with --watch: one per second).
    #[arg(long)]
    json: bool,
    /// Refresh every second until Ctrl-C.
    #[arg(short, long)]
    watch: bool,
}

impl Status {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut client = Client::connect(&self.socket.path())?;
        let report = client.status()?;
        if !self.watch {
            self.show(&report, None)?;
            return Ok(ExitCode::SUCCESS);
        }
        let watched = self.watch(&mut client, report);
        if !self.json && window().is_some() {
            // Below the picture, which has no end of its last line.
            human::print("\n")?;
        }
        watched.map(|()| ExitCode::SUCCESS)
    }

    /// Until Ctrl-C, or until the daemon goes.
    fn watch(&self, client: &mut Client, mut report: StatusReport) -> anyhow::Result<()> {
        let interrupt = Interrupt::new()?;
        let mut taken = Instant::now();
        self.show(&report, None)?;
        while !interrupt.wait(Duration::from_secs(1)) {
            let next = client.status()?;
            let elapsed_s = taken.elapsed().as_secs_f64();
            taken = Instant::now();
            self.show(&next, Some((&report, elapsed_s)))?;
            report = next;
        }
        Ok(())
    }

    fn show(&self, report: &StatusReport, before: Option<(&StatusReport, f64)>) -> anyhow::Result<()> {
        if self.json {
            return human::print_json(report);
        }
        let text = table(report, before)?;
        if !self.watch {
            return human::print(&text);
        }
        human::print(&next_picture(&text, window()))
    }
}

/// A terminal whose cursor can be moved.
#[derive(Clone, Copy, Debug)]
struct Window {
    rows: usize,
    columns: usize,
}

/// The one that stdout is, if it is one.
fn window() -> Option<Window> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() || std::env::var_os("TERM").is_none_or(|it| it == "dumb") {
        return None;
    }
    // A serial line doesn't know its size, and says 0.
    let size = rustix::termios::tcgetwinsize(stdout).ok().filter(|it| it.ws_row > 0 && it.ws_col > 0);
    Some(
        size.map_or(Window { rows: 24, columns: 80 }, |it| Window {
            rows: it.ws_row.into(),
            columns: it.ws_col.into(),
        }),
    )
}

/// One in place of the one before, as much of it as the window has room for; below it where the cursor can't be moved.
fn next_picture(text: &str, window: Option<Window>) -> String {
    let Some(Window { rows, columns }) = window else { return format!("{text}\n") };
    let mut lines: Vec<&str> = text.lines().collect();
    let all = lines.len();
    let taken = |lines: &[&str]| lines.iter().map(|line| line.chars().count().div_ceil(columns).max(1)).sum::<usize>();
    // A row too many, and the terminal would scroll the first one away.
    while taken(&lines) > rows - usize::from(lines.len() < all) {
        lines.pop();
    }
    let more = human::counted((all - lines.len()) as u64, "more line");
    let more: String = format!("({more} in a taller window)").chars().take(columns).collect();
    if lines.len() < all {
        lines.push(&more);
    }
    // Cursor home, each line cleared to its end, and the rest of the screen: no flicker.
    format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\n"))
}

/// The report for people; `before` gives rates.
fn table(report: &StatusReport, before: Option<(&StatusReport, f64)>) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    let now = &report.counters;
    let state = match (report.opening, report.draining) {
        (true, _) => "replaying, requests wait",
        (_, true) => "draining",
        _ => "serving",
    };
    let up = human::span(report.uptime_s);
    writeln!(out, "flashfront {}  pid {}  {}  up {up}  {state}", report.version, report.pid, report.backend)?;
    if report.cache_failed {
        writeln!(out, "FAILED      the cache device takes nothing new: drain, stop, and do not serve it again")?;
    }
    if report.without_cache {
        writeln!(out, "NO CACHE    the origin is served without it; if the cache held dirty data, that is missing")?;
    }
    for device in report.cache_devices.iter().filter(|_| report.mirror != "none") {
        writeln!(out, "cache       {}  {}", device.path, device.role)?;
    }
    match report.mirror.as_str() {
        "alone" => {
            writeln!(out, "ALONE       one cache device is left: `flashfront mirror add DEVICE` makes a new mirror")?
        }
        "syncing" => {
            let (copied, all) = (report.mirror_copied_blocks, report.mirror_of_blocks);
            writeln!(out, "mirroring   {} of {}", human::blocks(copied), human::blocks(all))?;
        }
        "whole" if report.mirror_lacks_blocks > 0 => writeln!(
            out,
            "LACKING     {} dirty are on one cache device only: unreadable when the other one was filled",
            human::blocks(report.mirror_lacks_blocks)
        )?,
        _ => {}
    }
    for volume in &report.volumes {
        let (size, dirty) = (human::bytes(volume.size_bytes), human::blocks(volume.blocks_dirty));
        let dirty = if report.without_cache { String::new() } else { format!("  {dirty} dirty") };
        writeln!(out, "volume      {}  {size}  {}{dirty}", volume.name, volume.mode)?;
        if let Some(error) = &volume.origin_error {
            writeln!(out, "REFUSED     {}: the origin refuses dirty data ({error}); it is tried again", volume.name)?;
        }
    }
    if !report.without_cache {
        cache(&mut out, report, before)?;
    }
    lost(&mut out, report)?;
    writeln!(out)?;
    let second = if before.is_some() { "per second" } else { "" };
    let head = format!("{:>28} {second:>14}", "since the start");
    writeln!(out, "{}", head.trim_end())?;
    let mut line = |name: &str, value: u64, old: fn(&StatusReport) -> u64, size: bool| {
        let text = |value| if size { human::bytes(value) } else { human::count(value) };
        let rate = before.map_or_else(String::new, |(before, seconds)| {
            text((value.saturating_sub(old(before)) as f64 / seconds) as u64)
        });
        let line = format!("{name:<12}{:>16} {rate:>14}", text(value));
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
    line("throttled", now.throttled_writes, |it| it.counters.throttled_writes, false)?;
    writeln!(out)?;
    let threads = match report.threads {
        0 | 1 => String::new(),
        more => format!("; {more} threads, one of them the engine's"),
    };
    let lanes = match (report.lanes, report.lane_threads) {
        (0 | 1, _) => String::new(),
        (lanes, 0 | 1) => format!("; {lanes} lanes"),
        (lanes, threads) => format!("; {lanes} lanes by {threads} threads"),
    };
    writeln!(
        out,
        "clients     {} connected, {} requests in flight{threads}{lanes}",
        report.clients, report.requests_in_flight
    )?;
    writeln!(
        out,
        "memory      {} resident; index {}, buffers {}, window {}, RAM front {}",
        human::bytes(report.rss_bytes),
        human::bytes(report.index_bytes),
        human::bytes(report.buffer_bytes + report.request_buffer_bytes),
        human::bytes(report.window_bytes),
        human::bytes(report.ram_front_bytes)
    )?;
    Ok(out)
}

/// What did not match its checksum, and what of it had no other copy.
fn lost(out: &mut String, report: &StatusReport) -> Result<(), std::fmt::Error> {
    if report.counters.corrupt_blocks > 0 || report.lost_blocks > 0 {
        writeln!(
            out,
            "CORRUPT     {} did not match its checksum",
            human::counted(report.counters.corrupt_blocks, "block")
        )?;
    }
    if report.lost_blocks > 0 {
        writeln!(
            out,
            "LOST        {}; reads of what is lost fail until it is written anew:",
            human::counted(report.lost_blocks, "block")
        )?;
        for range in report.lost.iter().take(20) {
            writeln!(
                out,
                "            {}: sector {}, {} of 4 KiB",
                range.origin,
                range.lba,
                human::counted(range.blocks, "block")
            )?;
        }
        if report.lost.len() > 20 {
            writeln!(out, "            and {} more ranges (--json lists all)", report.lost.len() - 20)?;
        }
    }
    Ok(())
}

/// How full the cache is, and how often it helps.
fn cache(out: &mut String, report: &StatusReport, before: Option<(&StatusReport, f64)>) -> Result<(), std::fmt::Error> {
    let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let filled = share(report.blocks_cached, report.capacity_blocks);
    let of = |part, whole| format!("{} of {}", human::blocks(part), human::blocks(whole));
    writeln!(out, "cached      {} {}", human::bar(filled, 30), of(report.blocks_cached, report.capacity_blocks))?;
    let dirty = share(report.blocks_dirty, report.dirty_limit_blocks);
    writeln!(
        out,
        "dirty       {} {} allowed",
        human::bar(dirty, 30),
        of(report.blocks_dirty, report.dirty_limit_blocks)
    )?;
    let hits = human::percent(report.hit_ratio());
    match before.and_then(|(before, _)| recent_hits(report, before)) {
        Some(recent) => {
            writeln!(out, "hits        {hits} since the start, {} in the last second", human::percent(Some(recent)))
        }
        None => writeln!(out, "hits        {hits} of the blocks read"),
    }?;
    match (report.flash_writes_per_day_bytes, report.flash_writes_left_bytes) {
        (0, _) => {}
        (day, left @ 1..) => {
            let (left, day) = (human::bytes(left.unsigned_abs()), human::bytes(day));
            writeln!(out, "budget      {left} of flash writes saved up, {day} a day")?;
        }
        (day, debt) => {
            let (debt, day) = (human::bytes(debt.unsigned_abs()), human::bytes(day));
            writeln!(out, "budget      used up, {debt} of debt, {day} of flash writes a day: reads are not cached")?;
        }
    }
    if report.shadow_bytes == 0 { Ok(()) } else { what_if(out, report) }
}

/// What another size of the cache would change.
fn what_if(out: &mut String, report: &StatusReport) -> Result<(), std::fmt::Error> {
    if report.what_if.is_empty() {
        return writeln!(out, "what if     another size would do better is not known yet: too little was asked for");
    }
    for (nth, it) in report.what_if.iter().enumerate() {
        let size = match it.size_percent {
            50 => "half the cache",
            100 => "as it is",
            200 => "twice",
            _ => "four times",
        };
        let times = |count| report.times_present(it, count).map_or_else(|| "-".to_owned(), |it| format!("{it:.2}x"));
        writeln!(
            out,
            "{:<12}{size:<14} {:>7} hits, origin reads {}, writes {}, flash writes {}{}",
            if nth == 0 { "what if" } else { "" },
            human::percent(it.read_hit_ratio()),
            times(|it| it.origin_read_blocks),
            times(|it| it.origin_write_blocks),
            times(|it| it.flash_written_blocks),
            if it.filled { "" } else { " (not full yet)" }
        )?;
    }
    Ok(())
}

fn recent_hits(now: &StatusReport, before: &StatusReport) -> Option<f64> {
    let hits = now.counters.read_hits.saturating_sub(before.counters.read_hits);
    let misses = now.counters.read_misses.saturating_sub(before.counters.read_misses);
    (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
}

#[cfg(test)]
mod tests {
    use flashfront_engine::shadow::{Totals, WhatIf};
    use flashfront_serve::report::{Facts, LostRange};

    use super::*;

    #[test]
    fn other_sizes_are_compared_with_the_present_one() {
        let what_if = |size_percent, read_hits, filled| {
            let totals = Totals { reads: 1000, read_hits, origin_read_blocks: 1000 - read_hits, ..Totals::default() };
            WhatIf { size_percent, totals: Totals { absorbed_blocks: 7, ..totals }, filled }
        };
        let status = flashfront_engine::Status { shadow_bytes: 1, ..Default::default() };
        let unknown = table(&StatusReport::new(&status, &Facts::default()), None).unwrap();
        assert!(unknown.contains("what if     another size would do better is not known yet"), "{unknown}");
        let sizes =
            vec![what_if(50, 400, true), what_if(100, 600, true), what_if(200, 700, true), what_if(400, 800, false)];
        let status = flashfront_engine::Status { what_if: sizes, ..status };
        let text = table(&StatusReport::new(&status, &Facts::default()), None).unwrap();
        for line in [
            "what if     half the cache  40.0 % hits, origin reads 1.50x, writes -, flash writes 1.00x",
            "            as it is        60.0 % hits, origin reads 1.00x, writes -, flash writes 1.00x",
            "            twice           70.0 % hits, origin reads 0.75x, writes -, flash writes 1.00x",
            "            four times      80.0 % hits, origin reads 0.50x, writes -, flash writes 1.00x (not full yet)",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is missing from\n{text}");
        }
    }

    #[test]
    fn only_a_terminal_is_told_to_move_its_cursor() {
        let window = Some(Window { rows: 2, columns: 80 });
        assert_eq!(next_picture("a\nb\n", window), "\x1b[Ha\x1b[K\nb\x1b[K\x1b[J");
        assert_eq!(next_picture("a\nb\n", None), "a\nb\n\n");
    }

    #[test]
    fn the_first_lines_stay_in_a_low_window() {
        let picture = |text: &str, columns| next_picture(text, Some(Window { rows: 3, columns })).replace("\x1b[K", "");
        assert_eq!(picture("a\nb\nc\nd", 80), "\x1b[Ha\nb\n(2 more lines in a taller window)\x1b[J");
        assert_eq!(picture("wider\nb\nc", 4), "\x1b[Hwider\n(2 m\x1b[J");
    }

    #[test]
    fn the_table_says_what_matters() {
        let engine = flashfront_engine::Status { capacity_blocks: 1000, dirty_limit_blocks: 500, ..Default::default() };
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
