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
use crate::terminal::{Paint, Tone};

/// What the demo does, with every delay it adds.
pub(super) fn intro() -> String {
    let (hdd, ssd) = (hdd(), ssd());
    let ms = |ns: u64| ns as f64 / 1e6;
    format!(
        "Two files stand for two devices, and are made as slow as these:\n\
         \x20 origin   {:>8}  a hard disk: seek {:.0} to {:.0} ms, half a turn {:.1} ms, {} MB/s\n\
         \x20 cache    {:>8}  an SSD: read {} us, write {} us, flush {} us, {} MB/s\n\
         Workload: requests of 4 KiB at random places after Zipf's law (exponent {SKEW}),\n\
         {READ_PERCENT} % reads, {DEPTH} in flight, over NBD on a unix socket. Every read is compared with\n\
         what was written.\n\n",
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
        bar.set_style(ProgressStyle::with_template("{prefix:<13} [{bar:7}] {msg}")?.progress_chars("#>."));
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

    /// Ends the line, with a full bar: the last update came a moment before the end.
    pub(super) fn end(self) {
        self.bar.set_position(self.bar.length().unwrap_or_default());
        self.bar.abandon();
    }
}

/// The comparison, and where to go from here.
pub(super) fn summary(outcome: &Outcome, kept: Option<&Path>, paint: Paint) -> Result<String, std::fmt::Error> {
    let (without, with) = (&outcome.without, &outcome.with);
    let mut out = String::new();
    let times = |better: f64, worse: f64| match better / worse {
        ratio if !ratio.is_finite() => String::new(),
        ratio if ratio >= 100.0 => format!("{} x", human::count(ratio as u64)),
        ratio => format!("{ratio:.1} x"),
    };
    let us = |us: f64| human::latency((us * 1e3) as u64);
    writeln!(out, "{}", paint.paint(Tone::Strong, &format!("{:<22}{:>16}{:>16}", "", "without cache", "with cache")))?;
    let mut row = |name: &str, left: String, right: String, note: String| {
        let line = format!("{name:<22}{left:>16}{right:>16}   {}", paint.paint(Tone::Good, &note));
        writeln!(out, "{}", line.trim_end())
    };
    let iops = |phase: &Phase| human::count(phase.iops as u64);
    row("IOPS", iops(without), iops(with), times(with.iops, without.iops))?;
    row("latency p50", us(without.p50_us), us(with.p50_us), times(without.p50_us, with.p50_us))?;
    row("latency p99", us(without.p99_us), us(with.p99_us), times(without.p99_us, with.p99_us))?;
    let hits = |phase: &Phase| human::percent(Some(phase.hit_ratio));
    row("read hits", hits(without), hits(with), String::new())?;
    let reads = |phase: &Phase| human::count(phase.origin_reads);
    row("origin reads", reads(without), reads(with), format!("{} saved", human::count(outcome.origin_reads_saved)))?;
    let ram = |phase: &Phase| human::percent(Some(phase.ram_hit_blocks as f64 / phase.read_blocks.max(1) as f64));
    row("reads answered by RAM", ram(without), ram(with), String::new())?;
    let requests = |phase: &Phase| human::count(phase.operations);
    row("requests measured", requests(without), requests(with), String::new())?;
    let seconds = |phase: &Phase| format!("{:.1} s", phase.seconds);
    row("measured for", seconds(without), seconds(with), String::new())?;
    writeln!(out)?;
    writeln!(
        out,
        "Both were asked the same requests in the same order, and the faster one more. In\n\
         between the cache warmed up for {:.0} s. {} reads compared, all right.",
        outcome.warm_up_s,
        human::count(outcome.reads_verified)
    )?;
    writeln!(
        out,
        "At the end {} of writes were in the cache and not yet on the origin.\n\
         RAM answers what is on its way to the cache device or was read just before.\n\
         Origin reads are misses: with a larger cache, or more time, there are fewer.\n",
        human::blocks(outcome.dirty_blocks)
    )?;
    writeln!(out, "Next:")?;
    match kept {
        Some(dir) => {
            let dir = dir.display();
            writeln!(
                out,
                "  cd {dir} && flashfront serve --cache cache.img --origin origin.img \\\n\
                 \x20     --nbd unix:nbd.sock --control control.sock"
            )?;
            writeln!(out, "  flashfront status --watch --control control.sock   (in another terminal)")?;
            writeln!(out, "  flashfront check cache.img                          (when it is stopped)")?;
        }
        None => {
            writeln!(out, "  flashfront try --keep DIR   the same, and keep the files to play with")?;
        }
    }
    writeln!(out, "  flashfront format --help    a cache for a disk of yours, which keeps its data")?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_full_at_the_end() {
        let live = Live::new("with cache", Duration::from_secs(3), true).unwrap();
        live.bar.set_position(2800);
        let bar = live.bar.clone();
        live.end();
        assert_eq!(bar.position(), 3000);
    }

    #[test]
    fn every_line_fits_a_terminal_of_80_columns() {
        let phase = |iops: f64| Phase {
            iops,
            p50_us: 99_999.0,
            p99_us: 999_999.0,
            hit_ratio: 0.999,
            ram_hit_blocks: 999_999,
            read_blocks: 1_999_999,
            operations: 9_999_999,
            origin_reads: 999_999,
            seconds: 1200.0,
        };
        let outcome = Outcome {
            without: phase(1.0),
            with: phase(999_999.0),
            warm_up_s: 1200.0,
            origin_reads_saved: 9_999_999,
            dirty_blocks: 65_535,
            reads_verified: 99_999_999,
            origin_bytes: ORIGIN_BYTES,
            cache_bytes: CACHE_BYTES,
        };
        let kept = Path::new("/tmp/x");
        let told = [
            intro(),
            summary(&outcome, None, Paint::with(false)).unwrap(),
            summary(&outcome, Some(kept), Paint::with(false)).unwrap(),
        ];
        for line in told.iter().flat_map(|text| text.lines()) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
