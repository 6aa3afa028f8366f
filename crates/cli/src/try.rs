// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront try`: the newcomer's minute.
//!
//! A demo origin and a demo cache device are files, slowed to the pace of a disk and an SSD. The
//! real daemon serves them in a thread. A workload goes through the real NBD socket, first past the
//! cache and then through it (the mode is switched online). No root, no other program, nothing left
//! behind.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use flashfront_engine::Mode;
use flashfront_serve::report::StatusReport;
use serde::Serialize;

use crate::interrupt::Interrupted;
use crate::terminal::Paint;
use crate::{human, interrupt};

mod load;
mod show;
mod world;

use load::{Load, Tally};
use show::Live;
use world::{Control, World};

/// See in a minute what a cache does: no root, nothing to install, nothing left behind.
///
/// Makes a demo disk and a demo SSD, which are files with the pace of such devices, and serves
/// them. Runs a workload without and with the cache, and compares.
#[derive(Debug, Args)]
pub(crate) struct Try {
    /// Print the result as one line of JSON, and nothing else.
    #[arg(long)]
    json: bool,
    /// Keep the files in this folder, which must be new or empty.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Seconds of workload in all. A third runs without the cache, a third while the cache warms
    /// up, a third with it.
    #[arg(long, value_name = "N", default_value_t = 36, value_parser = clap::value_parser!(u64).range(4..=3600))]
    seconds: u64,
}

/// A phase, measured.
#[derive(Debug, Serialize)]
struct Phase {
    iops: f64,
    p50_us: f64,
    p99_us: f64,
    hit_ratio: f64,
    /// Blocks read that RAM answered. They were on their way to the cache device, or had been read
    /// just before.
    ram_hit_blocks: u64,
    /// Blocks read.
    read_blocks: u64,
    operations: u64,
    /// Blocks read from the origin.
    origin_reads: u64,
    seconds: f64,
}

/// The results of all phases.
#[derive(Debug, Serialize)]
struct Outcome {
    without: Phase,
    with: Phase,
    warm_up_s: f64,
    origin_reads_saved: u64,
    /// Blocks that the cache had not written to the origin at the end.
    dirty_blocks: u64,
    reads_verified: u64,
    origin_bytes: u64,
    cache_bytes: u64,
}

/// The user has seen enough.
const ENOUGH: Interrupted = Interrupted("but for what --keep keeps, everything made for the demo has been removed");

/// The time between two updates of the live line.
const INTERVAL: Duration = Duration::from_millis(500);
/// The seed of the requests of both phases that are compared: the same every time.
const MEASURED_SEED: u64 = 20_251_121;
/// The seed of the requests while the cache warms up.
const WARMING_SEED: u64 = 20_251_122;

impl Try {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let stop = Arc::new(AtomicBool::new(false));
        let heard = Arc::clone(&stop);
        interrupt::on_signal(move || heard.store(true, Ordering::Relaxed))?;
        let outcome = self.measure(&|| stop.load(Ordering::Relaxed))?;
        if self.json {
            human::print_json(&outcome)?;
        } else {
            human::print(&format!("\n{}", show::summary(&outcome, self.keep.as_deref(), Paint::stdout())?))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn measure(&self, stop: &dyn Fn() -> bool) -> anyhow::Result<Outcome> {
        if !self.json {
            human::print(&show::intro())?;
        }
        let place = match self.keep {
            Some(_) => "--keep names",
            None => "TMPDIR or --keep names",
        };
        let mut world = World::new(self.keep.as_deref())
            .with_context(|| format!("can't make the demo volume in the folder that {place}"))?;
        let mut stage =
            Stage { load: Load::connect(&world.place())?, control: world.control()?, quiet: self.json, stop };
        let third = Duration::from_millis(self.seconds * 1000 / 3);
        let (without, _) = stage.phase("without cache", third, MEASURED_SEED)?;
        stage.control.set_mode(Mode::Writeback)?;
        // A third is long enough for the origin to have read the popular blocks: it reads 150
        // blocks a second.
        stage.phase("warming up", third, WARMING_SEED)?;
        // The requests are those of the first phase, in the same order, and then others. So equal
        // work is compared in equal time.
        let (with, saved) = stage.phase("with cache", third, MEASURED_SEED)?;
        let dirty_blocks = stage.control.status()?.blocks_dirty;
        let reads_verified = stage.load.verified;
        drop(stage);
        world.end()?;
        Ok(Outcome {
            without,
            with,
            warm_up_s: third.as_secs_f64(),
            origin_reads_saved: saved,
            dirty_blocks,
            reads_verified,
            origin_bytes: world::ORIGIN_BYTES,
            cache_bytes: world::CACHE_BYTES,
        })
    }
}

/// Workload and status, for one phase after the other.
struct Stage<'a> {
    load: Load,
    control: Control,
    quiet: bool,
    stop: &'a dyn Fn() -> bool,
}

impl Stage<'_> {
    /// Runs one phase. Also returns how many blocks it read without the origin.
    fn phase(&mut self, name: &'static str, time: Duration, seed: u64) -> anyhow::Result<(Phase, u64)> {
        let mut live = Live::new(name, time, self.quiet)?;
        let before = self.control.status()?;
        let mut last = before.clone();
        let control = &mut self.control;
        self.load.begin(seed);
        let tally = self.load.run(time, INTERVAL, self.stop, &mut |part, at| {
            let now = control.status()?;
            live.update(at, part, hit_ratio(&last, &now));
            last = now;
            Ok(())
        })?;
        live.end();
        if (self.stop)() {
            return Err(ENOUGH.into());
        }
        let after = self.control.status()?;
        let saved = after.counters.read_hits - before.counters.read_hits;
        Ok((Phase::new(&tally, &before, &after), saved))
    }
}

impl Phase {
    fn new(tally: &Tally, before: &StatusReport, after: &StatusReport) -> Self {
        let us = |quantile| tally.quantile_ns(quantile) as f64 / 1e3;
        Self {
            ram_hit_blocks: after.counters.ram_hits - before.counters.ram_hits,
            read_blocks: after.counters.read_hits + after.counters.read_misses
                - before.counters.read_hits
                - before.counters.read_misses,
            iops: tally.iops(),
            p50_us: us(0.5),
            p99_us: us(0.99),
            hit_ratio: hit_ratio(before, after).unwrap_or(0.0),
            operations: tally.operations(),
            origin_reads: after.counters.read_misses - before.counters.read_misses,
            seconds: tally.seconds,
        }
    }
}

/// The share of the blocks read between two moments that came from the cache.
fn hit_ratio(before: &StatusReport, after: &StatusReport) -> Option<f64> {
    let hits = after.counters.read_hits - before.counters.read_hits;
    let misses = after.counters.read_misses - before.counters.read_misses;
    (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
}
