// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenario files: TOML into what the simulator runs.
//! docs/laboratory/scenarios.md describes every key.

use std::path::Path;

use anyhow::{Context, anyhow, bail};
use flashfront_device::sim::{Known, known};
use flashfront_engine::{BLOCK_BYTES, Destage, Mode, Options, REQUEST_BYTES_MAX};
use flashfront_serve::config::{Age, Size};
use flashfront_serve::daemon::dirty_limit_blocks;
use flashfront_sim::load::{Job, Pattern};
use flashfront_sim::scenario::{Beside, Bound, Measure, Phase, Scenario, Target};
use flashfront_sim::system::FlashfrontSpec;

use crate::human;
use crate::usage::Usage;

mod tables;

use tables::{
    DestageName, EngineTable, File, JobTable, MeasureName, ModeName, Other, PatternName, PhaseTable, TargetTable,
};

/// Requests in flight, and sequences, of one job: each takes memory.
const WORKERS_MAX: u32 = 1 << 16;

/// Reads a scenario file.
pub(super) fn read(path: &Path) -> anyhow::Result<Scenario> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("the scenario {shown} can't be read"))?;
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let file: Result<File, _> = toml::from_str(&text);
    let read = file
        .map_err(|error| anyhow!("{error}\nEvery key is explained in docs/laboratory/scenarios.md"))
        .and_then(|file| scenario(name, file));
    // What stands in the file is the user's word as much as an option is.
    read.map_err(|error| Usage(format!("{shown}: {}", human::error(&error))).into())
}

pub(super) fn device(key: &str, name: &str) -> anyhow::Result<Known> {
    let all = known();
    let found = all.iter().find(|known| known.name == name).copied();
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|known| known.name).collect();
        Usage(format!("{key} = `{name}`; no device is called so, there are {}", names.join(", "))).into()
    })
}

fn ns(age: Option<Age>) -> u64 {
    age.map_or(0, |age| u64::try_from(age.0.as_nanos()).unwrap_or(u64::MAX))
}

fn scenario(name: String, file: File) -> anyhow::Result<Scenario> {
    let (origin, cache) = (device("origin", &file.origin)?, device("cache", &file.cache)?);
    for (nth, table) in file.phase.iter().enumerate() {
        if file.phase[..nth].iter().any(|earlier| earlier.name == table.name) {
            bail!("phase `{}`: there twice; targets need to know which", table.name);
        }
    }
    let phases = file.phase.iter().map(|table| phase(table, origin.size_bytes)).collect::<anyhow::Result<Vec<_>>>()?;
    if phases.is_empty() {
        bail!("no [[phase]]; a scenario has at least one");
    }
    let targets = file.target.iter().map(|table| target(table, &file)).collect::<anyhow::Result<Vec<_>>>()?;
    let interval_ns = ns(Some(file.interval));
    if interval_ns == 0 {
        bail!("interval: 0; write a span of time, as in \"1s\" or \"1min\"");
    }
    let beside = file.beside.iter().map(|other| match other {
        Other::Origin => Beside::Origin("origin"),
        Other::Cache => Beside::Cache("cache"),
    });
    let mut spec = FlashfrontSpec {
        origin: origin.model,
        origin_bytes: origin.size_bytes,
        cache: cache.model,
        cache_bytes: cache.size_bytes,
        mode: match file.engine.mode.unwrap_or(ModeName::Writeback) {
            ModeName::Writeback => Mode::Writeback,
            ModeName::Writethrough => Mode::Writethrough,
            ModeName::Writearound => Mode::Writearound,
            ModeName::Passthrough => Mode::Passthrough,
        },
        options: options(&file.engine, cache.size_bytes)?,
    };
    if let Some(limit) = file.engine.dirty_limit {
        // The engine would take the nearest that it can keep.
        let blocks = dirty_limit_blocks(limit, &spec.superblock()).context("dirty-limit")?;
        spec.options.dirty_limit_blocks = Some(blocks);
    }
    Ok(Scenario {
        name,
        summary: file.summary,
        origin: spec.origin,
        origin_bytes: spec.origin_bytes,
        cache: spec.cache,
        cache_bytes: spec.cache_bytes,
        mode: spec.mode,
        options: spec.options,
        interval_ns,
        beside: beside.collect(),
        phases,
        targets,
    })
}

fn options(table: &EngineTable, cache_bytes: u64) -> anyhow::Result<Options> {
    let mut options = Options {
        flash_writes_per_day_bytes: table.flash_writes_per_day.and_then(|budget| budget.bytes(cache_bytes)),
        ..Options::default()
    };
    if let Some(bypass) = table.sequential_bypass {
        options.sequential_bypass_bytes = bypass.0;
    }
    if let Some(age) = table.dirty_age {
        options.dirty_age_max_ns = ns(Some(age));
    }
    if let Some(DestageName::Ordered) = table.destage {
        options.destage = Destage::Ordered;
    }
    if let Some(name) = &table.policy {
        let all = flashfront_engine::policy::ALL;
        let names: Vec<&str> = all.iter().map(|spec| spec.name).collect();
        let found = all.iter().find(|spec| spec.name == name);
        options.policy = found.ok_or_else(|| anyhow!("policy: `{name}`; there are {}", names.join(", ")))?;
    }
    Ok(options)
}

fn phase(table: &PhaseTable, origin_bytes: u64) -> anyhow::Result<Phase> {
    let of = |tables: &[JobTable]| -> anyhow::Result<Vec<Job>> {
        let jobs = tables.iter().enumerate();
        jobs.map(|(nth, it)| job(it, nth, origin_bytes).with_context(|| format!("phase `{}`", table.name))).collect()
    };
    let jobs = of(&table.job)?;
    if jobs.is_empty() {
        bail!("phase `{}`: no [[phase.job]]", table.name);
    }
    if table.keep_percent.is_some_and(|percent| !(1..=100).contains(&percent)) {
        bail!("phase `{}`: keep-percent: from 1 to 100", table.name);
    }
    Ok(Phase {
        name: table.name.clone(),
        jobs,
        idle_ns: ns(table.idle_before),
        keep_percent: table.keep_percent,
        replace: table.replace,
        beside: table.beside,
        bound: table.bound.as_deref().map(of).transpose()?,
    })
}

fn job(table: &JobTable, nth: usize, origin_bytes: u64) -> anyhow::Result<Job> {
    let name = table.name.clone().unwrap_or_else(|| format!("job{}", nth + 1));
    let wrong = |what: String| Err(anyhow!("job `{name}`: {what}"));
    let (block, offset) = (table.block.0, table.offset.map_or(0, |size| size.0));
    if block == 0 || block > REQUEST_BYTES_MAX || !block.is_multiple_of(BLOCK_BYTES) {
        return wrong(format!("block = {}; whole blocks of 4 KiB, at most 1 MiB", table.block));
    }
    if !offset.is_multiple_of(BLOCK_BYTES) {
        return wrong(format!("offset = {}; it must be a multiple of 4 KiB", Size(offset)));
    }
    let (depth, streams) = (table.depth.unwrap_or(1), table.streams.unwrap_or(1));
    for (key, given) in [("depth", depth), ("streams", streams)] {
        if !(1..=WORKERS_MAX).contains(&given) {
            return wrong(format!("{key} = {given}; it must be 1 to {WORKERS_MAX}"));
        }
    }
    if table.span.0 / u64::from(streams) < block
        || offset.checked_add(table.span.0).is_none_or(|end| end > origin_bytes)
    {
        let (span, origin) = (table.span, Size(origin_bytes));
        return wrong(format!(
            "span = {span} at {}; at least a block for each stream, and within {origin}",
            Size(offset)
        ));
    }
    if table.reads > 100 {
        return wrong(format!("reads = {}; percent, 0 to 100", table.reads));
    }
    let background = table.background.unwrap_or(false);
    let (total_bytes, time_ns) = (table.total.map_or(0, |size| size.0), ns(table.time));
    if total_bytes == 0 && time_ns == 0 && !background {
        return wrong("it never ends; give it a total or a time, or background = true".to_owned());
    }
    let rate = table.rate.unwrap_or(0.0);
    let bursts = match (table.on, table.off) {
        (None, None) => true,
        (on, off) => ns(on) > 0 && off.is_some() && rate > 0.0,
    };
    if !(0.0..=1e9).contains(&rate) || !bursts {
        return wrong(
            "rate: requests a second up to 10^9; `on` and `off` go with a rate, and with each other".to_owned(),
        );
    }
    let parameter = |least: f64, what: &str| match table.parameter {
        Some(it) if it > least && it.is_finite() && it != 1.0 => Ok(it),
        _ => Err(anyhow!("job `{name}`: parameter: {what}, larger than {least}")),
    };
    let pattern = match table.pattern {
        PatternName::Sequential => Pattern::Sequential,
        PatternName::Random => Pattern::Random,
        PatternName::Ascending => Pattern::Ascending(parameter(1.0, "the mean gap in blocks")?),
        PatternName::Zipf => Pattern::Zipf(parameter(0.0, "the exponent, not 1 (as in fio)")?),
    };
    Ok(Job {
        name,
        pattern,
        read_percent: table.reads,
        block_bytes: block,
        offset_bytes: offset,
        span_bytes: table.span.0,
        total_bytes,
        time_ns,
        depth,
        streams,
        writes_per_flush: table.writes_per_flush.unwrap_or(0),
        rate_per_s: rate,
        on_ns: ns(table.on),
        off_ns: ns(table.off),
        background,
        seed: table.seed.unwrap_or(1),
        ..Job::default()
    })
}

fn target(table: &TargetTable, file: &File) -> anyhow::Result<Target> {
    let phases = &file.phase;
    let wrong = |what: &str| anyhow!("target `{}`: {what}", table.name);
    let find = |name: &Option<String>, key: &str| {
        let name = name.as_ref().ok_or_else(|| wrong(&format!("`{key}` is missing; name a phase")))?;
        let at = phases.iter().position(|phase| phase.name == *name);
        at.ok_or_else(|| wrong(&format!("{key} = `{name}`; there is no such phase")))
    };
    let phase = || find(&table.phase, "phase");
    // What never runs beside a phase can't be measured by.
    let by = |at: usize| {
        let (phase, beside) = (&phases[at], |other: Other| phases[at].beside && file.beside.contains(&other));
        let (by, runs) = match table.by.as_deref() {
            Some("origin") => ("origin", beside(Other::Origin)),
            Some("cache") => ("cache", beside(Other::Cache)),
            Some("bound") => ("bound", phase.bound.is_some()),
            _ => return Err(wrong("by: `origin`, `cache` or `bound`")),
        };
        runs.then_some(by).ok_or_else(|| {
            let (how, name) =
                ("`beside` of the scenario and of the phase say what runs beside it, `bound` has jobs", &phase.name);
            wrong(&format!("by = `{by}`, which does not run in phase `{name}`; {how}"))
        })
    };
    let of = || find(&table.of, "of");
    let measure = match table.measure {
        MeasureName::Rate => {
            let phase = phase()?;
            Measure::Rate { phase, by: by(phase)?, at_limit: table.at_limit }
        }
        MeasureName::RateOfPhase => {
            let (phase, of) = (phase()?, of()?);
            Measure::RateOfPhase { phase, of, by: by(of)? }
        }
        MeasureName::WorstInterval => {
            let phase = phase()?;
            Measure::WorstInterval { phase, by: by(phase)? }
        }
        MeasureName::Dirty => Measure::Dirty,
        MeasureName::ReadsOfPhase => Measure::ReadsOfPhase { phase: phase()?, of: of()? },
        MeasureName::ReadP99OfPhase => Measure::ReadP99OfPhase { phase: phase()?, of: of()? },
        MeasureName::ReadP99 => {
            let phase = phase()?;
            Measure::ReadP99 { phase, by: by(phase)? }
        }
        MeasureName::LongestWriteMs => Measure::LongestWriteMs { phase: phase()? },
        MeasureName::Flushes => {
            let phase = phase()?;
            Measure::Flushes { phase, by: by(phase)? }
        }
        MeasureName::DeviceFlushes => Measure::DeviceFlushes { phase: phase()? },
        MeasureName::FlashWrites => Measure::FlashWrites { phase: phase()? },
        MeasureName::CacheWriteMbPerS => Measure::CacheWriteMbPerS { phase: phase()? },
        MeasureName::OriginWriteMbPerS => Measure::OriginWriteMbPerS { phase: phase()? },
    };
    let bound = match (table.at_least, table.at_most) {
        (Some(least), None) => Bound::AtLeast(least),
        (None, Some(most)) => Bound::AtMost(most),
        _ => return Err(wrong("either `at-least` or `at-most`")),
    };
    // No measure is less than that, or more: it would tell nothing, and no number in JSON.
    if let Bound::AtLeast(it) | Bound::AtMost(it) = bound
        && !it.is_finite()
    {
        return Err(wrong(&format!("{it} is no bound; write a number")));
    }
    Ok(Target { name: table.name.clone(), measure, bound })
}
