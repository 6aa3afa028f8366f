// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sim run --job`: a job file of fio as a scenario, on devices by name and beside other systems.
//! docs/laboratory/scenarios.md describes the options.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use flashfront_device::sim::{HddSpec, Known, ModelSpec};
use flashfront_engine::{Mode, Options};
use flashfront_serve::config::Size;
use flashfront_sim::load::fio;
use flashfront_sim::scenario::{Phase, Scenario};

use super::scenario::device;
use crate::human;
use crate::usage::misused;

const INTERVAL_NS: u64 = 1_000_000_000;
/// The smallest cache: the models of other caches weren't made for less.
const CACHE_BYTES_MIN: u64 = 256 << 20;

/// A job and what it runs on.
#[derive(Debug, Args)]
pub(super) struct JobArgs {
    /// A job file of fio, asked of one volume, in place of a scenario.
    #[arg(long, value_name = "FILE.fio", conflicts_with = "scenario")]
    pub(super) job: Option<PathBuf>,
    /// The job's disk, by its name in docs/laboratory/models.md.
    // Here and below clap waives `requires` beside a scenario, with which --job conflicts.
    #[arg(long, value_name = "DEVICE", requires = "job", conflicts_with = "scenario", default_value = "wd-re-4tb")]
    origin: String,
    /// The size of the volume, a part of the disk. Caches take it for their origin's size [default:
    /// all].
    #[arg(long, value_name = "SIZE", requires = "job", conflicts_with = "scenario")]
    origin_size: Option<Size>,
    /// The job's cache device.
    #[arg(
        long,
        value_name = "DEVICE",
        requires = "job",
        conflicts_with = "scenario",
        default_value = "samsung-850-pro"
    )]
    cache: String,
    /// The size of the cache, a part of the cache device: at least 256 MiB [default: all].
    #[arg(long, value_name = "SIZE", requires = "job", conflicts_with = "scenario")]
    cache_size: Option<Size>,
}

/// The model of a part of the disk, with seeks as short as in such a part.
fn beginning_of(disk: &Known) -> ModelSpec {
    match disk.model {
        ModelSpec::Hdd(spec) => ModelSpec::Hdd(HddSpec { whole_bytes: disk.size_bytes, ..spec }),
        model => model,
    }
}

impl JobArgs {
    /// Reads the job as a scenario. Options of it that have no effect are told.
    pub(super) fn read(&self, path: &Path) -> anyhow::Result<Scenario> {
        let (origin, cache) = (device("--origin", &self.origin)?, device("--cache", &self.cache)?);
        let cache_bytes = self.cache_size.map_or(cache.size_bytes, |size| size.0);
        if !(CACHE_BYTES_MIN..=cache.size_bytes).contains(&cache_bytes) {
            let [given, least, most] = [cache_bytes, CACHE_BYTES_MIN, cache.size_bytes].map(human::bytes);
            misused!("--cache-size: {given}; of {} it can be {least} to {most}", cache.name);
        }
        let origin_bytes = self.origin_size.map_or(origin.size_bytes, |size| size.0);
        if !(1..=origin.size_bytes).contains(&origin_bytes) {
            let [given, most] = [origin_bytes, origin.size_bytes].map(human::bytes);
            misused!("--origin-size: {given}; {} has {most}", origin.name);
        }
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| format!("the job file {shown} can't be read"))?;
        let file = fio::read(&text, origin_bytes, &|name| std::env::var(name).ok()).with_context(|| shown.clone())?;
        if !file.without_effect.is_empty() {
            eprintln!("{shown}: without effect in virtual time: {}", file.without_effect.join(", "));
        }
        if !file.left_out.is_empty() {
            eprintln!("{shown}: left out, so that the load differs from fio's: {}", file.left_out.join(", "));
        }
        for note in &file.notes {
            eprintln!("{shown}: {note}");
        }
        if !file.buffered.is_empty() {
            let jobs = file.buffered.join(", ");
            eprintln!("{shown}: there is no page cache here, all requests go to the volume as with direct=1: {jobs}");
        }
        let phases = file.phases.into_iter().map(|phase| Phase {
            name: phase.name,
            jobs: phase.jobs,
            idle_ns: phase.idle_ns,
            keep_percent: None,
            replace: false,
            beside: true,
            bound: None,
        });
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Scenario {
            summary: format!("fio's job {name} on {}, with {} as cache", origin.name, cache.name),
            name,
            origin: beginning_of(&origin),
            origin_bytes,
            cache: cache.model,
            cache_bytes,
            mode: Mode::Writeback,
            options: Options::default(),
            interval_ns: INTERVAL_NS,
            beside: Vec::new(),
            phases: phases.collect(),
            targets: Vec::new(),
        })
    }
}
