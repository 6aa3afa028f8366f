// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the demo prints: what it is about, a live line, and the comparison.

use std::fmt::Write;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::load::{DEPTH, READ_PERCENT, SKEW, Tally};
use super::world::{CACHE_BYTES, ORIGIN_BYTES, hdd, ssd};
use super::{Outcome, Phase};
use crate::human;

/// What the demo does, with every delay it adds.
pub(super) fn intro() -> String {
    let (hdd, ssd) = (hdd(), ssd());
    let ms = |ns: u64| ns as f64 / 1e6;
    format!(
        "Two files stand for two devices, and are made as slow as these:\n\
         \x20 origin   {:>8}  a hard disk: seek {:.0} to {:.0} ms, half a turn {:.1} ms, {} MB/s\n\
         \x20 cache    {:>8}  a SATA SSD: read {} us, write {} us, flush {} us, {} MB/s\n\
         Workload: 4 KiB requests at random places after Zipf's law (exponent {SKEW}), {READ_PERCENT} % reads,\n\
         {DEPTH} in flight, over NBD on a unix socket. Every read is compared with what was written.\n\n",
        human::bytes(ORIGIN_BYTES),
        ms(hdd.settle_ns),
        ms(hdd.full_seek_ns),
        ms(hdd.turn_ns / 2),
        hdd.outer_bytes_per_s / 1_000_000,
        human::bytes(CACHE_BYTES),
        (ssd.read_ns + ssd.read_command_ns) / 1000,
        ssd.write_command_ns / 1000,
        ssd.flush_ns / 1000,
        ssd.link_read_bytes_per_s / 1_000_000,
    )
}

/// The live line of one phase; plain lines every few seconds where there is no terminal.
pub(super) struct Live {
    bar: ProgressBar,
    plain: bool,
    printed: Duration,
}

/// Between two plain lines.
const PLAIN_EVERY: Duration = Duration::from_secs(4);

impl Live {
    pub(super) fn new(name: &'static str, time: Duration, quiet: bool) -> anyhow::Result<Self> {
        let plain = !quiet && !std::io::stderr().is_terminal();
        let target = if quiet || plain { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(time.as_millis() as u64), target);
        bar.set_style(ProgressStyle::with_template("{prefix:<14} [{bar:20}] {msg}")?.progress_chars("#>."));
        bar.set_prefix(name);
        if plain {
            eprintln!("{name}:");
        }
        Ok(Self { bar, plain, printed: Duration::ZERO })
    }

    pub(super) fn update(&mut self, at: Duration, tally: &Tally, hit_ratio: Option<f64>) {
        let line = format!(
            "{:>7} IOPS  p50 {:>8}  p99 {:>8}  hits {:>7}",
            human::count(tally.iops() as u64),
            human::latency(tally.quantile_ns(0.5)),
            human::latency(tally.quantile_ns(0.99)),
            human::percent(hit_ratio)
        );
        if self.plain && at >= self.printed + PLAIN_EVERY {
            eprintln!("  {:>3} s {line}", at.as_secs());
            self.printed = at;
        }
        self.bar.set_position(at.as_millis() as u64);
        self.bar.set_message(line);
    }

    pub(super) fn end(self) {
        self.bar.abandon();
    }
}

/// The comparison, and where to go from here.
pub(super) fn summary(outcome: &Outcome, kept: Option<&Path>) -> Result<String, std::fmt::Error> {
    let (without, with) = (&outcome.without, &outcome.with);
    let mut out = String::new();
    let times = |better: f64, worse: f64| match better / worse {
        ratio if !ratio.is_finite() => String::new(),
        ratio if ratio >= 100.0 => format!("{} x", human::count(ratio as u64)),
        ratio => format!("{ratio:.1} x"),
    };
    let us = |us: f64| human::latency((us * 1e3) as u64);
    let mut row = |name: &str, left: String, right: String, note: String| {
        let line = format!("{name:<22}{left:>16}{right:>16}   {note}");
        writeln!(out, "{}", line.trim_end())
    };
    row("", "without cache".to_owned(), "with cache".to_owned(), String::new())?;
    let iops = |phase: &Phase| human::count(phase.iops as u64);
    row("IOPS", iops(without), iops(with), times(with.iops, without.iops))?;
    row("latency p50", us(without.p50_us), us(with.p50_us), times(without.p50_us, with.p50_us))?;
    row("latency p99", us(without.p99_us), us(with.p99_us), times(without.p99_us, with.p99_us))?;
    let hits = |phase: &Phase| human::percent(Some(phase.hit_ratio));
    row("read hits", hits(without), hits(with), String::new())?;
    let reads = |phase: &Phase| human::count(phase.origin_reads);
    row("origin reads", reads(without), reads(with), format!("{} saved", human::count(outcome.origin_reads_saved)))?;
    writeln!(out)?;
    writeln!(
        out,
        "Measured for {:.0} s each, with the cache after {:.0} s of warming up. {} reads compared, all right.",
        with.seconds,
        outcome.warm_up_s,
        human::count(outcome.reads_verified)
    )?;
    writeln!(out, "What the origin still reads are misses: with a larger cache, or more time, there are fewer.\n")?;
    writeln!(out, "Next:")?;
    match kept {
        Some(dir) => {
            let dir = dir.display();
            writeln!(
                out,
                "  flashfront serve --cache {dir}/cache.img --origin {dir}/origin.img --nbd unix:{dir}/nbd.sock --control {dir}/control.sock"
            )?;
            writeln!(out, "  flashfront status --watch --control {dir}/control.sock    (in another terminal)")?;
            writeln!(out, "  flashfront check {dir}/cache.img                          (when it is stopped)")?;
        }
        None => {
            writeln!(out, "  flashfront try --keep DIR            the same, and keep the files to play with")?;
        }
    }
    writeln!(
        out,
        "  flashfront format --help             a cache for a device of yours; the origin keeps what it holds"
    )?;
    Ok(out)
}
