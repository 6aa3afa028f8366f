// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of a comparison that `--assert` asks for: a job is a task of the suite, a target is
//! a system.

use flashfront_bench::assert::{COMMON, Figure, Names, Value};
use flashfront_sim::compare::{Compared, Comparison, Task};
use flashfront_sim::load::PhaseResult;
use hdrhistogram::Histogram;

/// The function that only models have: they know what was a hit.
const HITS: (&str, &str) = ("hit_ratio", "the share of read blocks that the cache had");

/// Reads, writes, or both, of a task or of all.
const DIRECTIONS: [&str; 2] = ["read", "write"];

/// What can be asked for.
pub(super) fn names(comparison: &Comparison) -> Names {
    let tasks = || measured(comparison).map(|(_, _, task)| task);
    let moves = |direction: &&str| tasks().any(|task| has(task, direction));
    let jobs = tasks().map(|task| task.name.clone());
    Names {
        functions: COMMON.into_iter().chain([HITS]).collect(),
        jobs: jobs.chain(DIRECTIONS.into_iter().filter(moves).map(str::to_owned)).collect(),
        targets: comparison.systems.iter().map(|it| (*it).to_owned()).collect(),
    }
}

/// A figure; without repeats, as each run is the same in virtual time.
pub(super) fn value(comparison: &Comparison, compared: &[Compared], figure: &Figure) -> Option<Value> {
    let system = compared.iter().find(|it| it.system == figure.target)?;
    let direction = DIRECTIONS.into_iter().find(|it| *it == figure.job);
    let is_asked = |task: &Task| direction.map_or(task.name == figure.job, |direction| has(task, direction));
    let asked = measured(comparison).filter(|(_, _, task)| is_asked(task));
    let phases: Vec<&PhaseResult> = asked.flat_map(|(session, tasks, _)| phases(system, session, tasks)).collect();
    let parts = phases.iter().flat_map(|phase| &phase.jobs);
    let (mut times, mut requests, mut bytes) = (Histogram::<u64>::new(2).ok()?, 0.0, 0.0);
    for job in parts {
        if direction != Some("write") {
            times.add(&job.read_ns).ok()?;
            (requests, bytes) = (requests + job.reads as f64, bytes + job.read_bytes as f64);
        }
        if direction != Some("read") {
            times.add(&job.write_ns).ok()?;
            (requests, bytes) = (requests + job.writes as f64, bytes + job.write_bytes as f64);
        }
    }
    let quantile = |it: f64| times.value_at_quantile(it) as f64 / 1e3;
    let value = match figure.function {
        // The devices alone have no cache.
        "hit_ratio" if matches!(system.system, "hdd" | "ssd") => return None,
        "hit_ratio" => return hit_ratio(&phases).map(Value::exact),
        "iops" => per_second(&phases, requests)?,
        "bandwidth_kib_s" => per_second(&phases, bytes / 1024.0)?,
        "mean_us" => times.mean() / 1e3,
        "p50_us" => quantile(0.5),
        "p90_us" => quantile(0.9),
        "p95_us" => quantile(0.95),
        "p99_us" => quantile(0.99),
        "p99_9_us" => quantile(0.999),
        _ => times.max() as f64 / 1e3,
    };
    (!times.is_empty()).then(|| Value::exact(value))
}

/// Each task that has figures: its session, and the numbers of the tasks that they are of.
fn measured(comparison: &Comparison) -> impl Iterator<Item = (usize, std::ops::RangeInclusive<usize>, &Task)> {
    comparison.sessions.iter().enumerate().flat_map(|(session, of)| {
        let tasks = of.tasks.iter().enumerate();
        tasks.filter_map(move |(nth, task)| Some((session, task.measured_since?..=nth, task)))
    })
}

fn phases(
    system: &Compared,
    session: usize,
    tasks: std::ops::RangeInclusive<usize>,
) -> impl Iterator<Item = &PhaseResult> {
    let ran = system.ran.iter().filter(move |ran| ran.session == session && tasks.contains(&ran.task));
    ran.map(|ran| &ran.result)
}

fn has(task: &Task, direction: &str) -> bool {
    task.jobs.iter().any(|job| if direction == "read" { job.read_percent > 0 } else { job.read_percent < 100 })
}

/// An amount by the time that was simulated, with the rest as the last intervals were.
fn per_second(phases: &[&PhaseResult], amount: f64) -> Option<f64> {
    let (all, ns) = phases.iter().fold((0.0, 0.0), |sum, phase| {
        let (bytes, ns) = phase.bytes_and_ns();
        (sum.0 + bytes, sum.1 + ns)
    });
    let jobs = phases.iter().flat_map(|phase| &phase.jobs);
    let simulated = jobs.map(|job| (job.read_bytes + job.write_bytes) as f64).sum::<f64>();
    (ns > 0.0 && simulated > 0.0).then(|| amount * all / simulated * 1e9 / ns)
}

fn hit_ratio(phases: &[&PhaseResult]) -> Option<f64> {
    let of = |count: fn(&PhaseResult) -> u64| phases.iter().map(|it| count(it)).sum::<u64>() as f64;
    let blocks = of(|it| it.after.read_blocks - it.before.read_blocks);
    let hits = of(|it| it.after.read_hit_blocks - it.before.read_hit_blocks);
    (blocks > 0.0).then(|| hits / blocks)
}
