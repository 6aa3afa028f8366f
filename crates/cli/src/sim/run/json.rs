// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scenario's outcome as scripts read it: one JSON object.
//! docs/laboratory/scenarios.md describes it.

use flashfront_sim::load::{JobResult, PhaseResult};
use flashfront_sim::scenario::{Judged, Ran, Scenario, Verdict};
use hdrhistogram::Histogram;
use serde::Serialize;

use super::steps::{Step, steps};
use super::text::{bound, per_s};

/// All of it.
#[derive(Debug, Serialize)]
pub(super) struct Line<'a> {
    scenario: &'a str,
    summary: &'a str,
    targets: Vec<TargetLine<'a>>,
    systems: Vec<SystemLine<'a>>,
}

#[derive(Debug, Serialize)]
struct TargetLine<'a> {
    name: &'a str,
    measured: Option<f64>,
    target: String,
    holds: bool,
}

#[derive(Debug, Serialize)]
struct SystemLine<'a> {
    system: &'a str,
    phases: Vec<PhaseLine<'a>>,
}

#[derive(Debug, Serialize)]
struct PhaseLine<'a> {
    phase: &'a str,
    time_s: f64,
    jobs: Vec<JobLine<'a>>,
    cache_read_bytes: u64,
    cache_write_bytes: u64,
    cache_flushes: u64,
    origin_read_bytes: u64,
    origin_write_bytes: u64,
    origin_ios: u64,
    origin_flushes: u64,
    read_hit_ratio: Option<f64>,
    dirty_bytes: u64,
    series: Vec<Step>,
}

#[derive(Debug, Serialize)]
struct JobLine<'a> {
    job: &'a str,
    reads_per_s: f64,
    writes_per_s: f64,
    flushes_per_s: f64,
    bytes_per_s: f64,
    read_ns: Option<Percentiles>,
    write_ns: Option<Percentiles>,
    flush_ns: Option<Percentiles>,
}

#[derive(Debug, Serialize)]
struct Percentiles {
    p50: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

fn percentiles(histogram: &Histogram<u64>) -> Option<Percentiles> {
    let at = |quantile| histogram.value_at_quantile(quantile);
    let of = || Percentiles { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: histogram.max() };
    (!histogram.is_empty()).then(of)
}

pub(super) fn line<'a>(scenario: &'a Scenario, outcome: &'a Judged) -> Line<'a> {
    let target = |verdict: &'a Verdict| TargetLine {
        name: &verdict.name,
        measured: verdict.measured,
        target: bound(verdict.target),
        holds: verdict.holds,
    };
    let system = |ran: &'a Ran| {
        let phases = scenario.phases.iter().zip(&ran.phases);
        let phases = phases.filter_map(|(phase, result)| Some(phase_line(&phase.name, result.as_ref()?)));
        SystemLine { system: ran.system, phases: phases.collect() }
    };
    Line {
        scenario: &scenario.name,
        summary: &scenario.summary,
        targets: outcome.verdicts.iter().map(target).collect(),
        systems: outcome.systems.iter().map(system).collect(),
    }
}

fn job_line(job: &JobResult) -> JobLine<'_> {
    JobLine {
        job: &job.name,
        reads_per_s: per_s(job, job.reads),
        writes_per_s: per_s(job, job.writes),
        flushes_per_s: per_s(job, job.flushes),
        bytes_per_s: per_s(job, job.read_bytes + job.write_bytes),
        read_ns: percentiles(&job.read_ns),
        write_ns: percentiles(&job.write_ns),
        flush_ns: percentiles(&job.flush_ns),
    }
}

fn phase_line<'a>(name: &'a str, phase: &'a PhaseResult) -> PhaseLine<'a> {
    let (before, after) = (&phase.before, &phase.after);
    let reads = after.read_blocks - before.read_blocks;
    PhaseLine {
        phase: name,
        time_s: phase.time_ns as f64 / 1e9,
        jobs: phase.jobs.iter().map(job_line).collect(),
        cache_read_bytes: after.cache_read_bytes - before.cache_read_bytes,
        cache_write_bytes: after.cache_write_bytes - before.cache_write_bytes,
        cache_flushes: after.cache_flushes - before.cache_flushes,
        origin_read_bytes: after.origin_read_bytes - before.origin_read_bytes,
        origin_write_bytes: after.origin_write_bytes - before.origin_write_bytes,
        origin_ios: after.origin_ios - before.origin_ios,
        origin_flushes: after.origin_flushes - before.origin_flushes,
        read_hit_ratio: (reads > 0).then(|| (after.read_hit_blocks - before.read_hit_blocks) as f64 / reads as f64),
        dirty_bytes: after.dirty_bytes,
        series: steps(phase),
    }
}
