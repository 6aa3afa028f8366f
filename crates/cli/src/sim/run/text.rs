// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scenario's outcome for people: a table of jobs and a table of targets. Also its series as CSV.

use std::fmt::{Error, Write};

use flashfront_sim::load::JobResult;
use flashfront_sim::scenario::{Bound, Judged, Scenario};
use hdrhistogram::Histogram;

use super::steps::{Step, steps};
use crate::columns::Columns;
use crate::csv::{self, Column};
use crate::human;
use crate::terminal::{Paint, Tone};

/// The bound of a target, as people read it.
pub(in crate::sim) fn bound(bound: Bound) -> String {
    match bound {
        Bound::AtLeast(least) => format!(">= {least}"),
        Bound::AtMost(most) => format!("<= {most}"),
    }
}

/// The rate in a second, if `count` happened in the time of a job.
pub(in crate::sim) fn per_s(job: &JobResult, count: u64) -> f64 {
    count as f64 * 1e9 / job.time_ns.max(1) as f64
}

/// The latency that this quantile of a job's requests keeps; a dash if there were no requests.
pub(in crate::sim) fn latency(histogram: &Histogram<u64>, quantile: f64) -> String {
    if histogram.is_empty() { "-".to_owned() } else { human::latency(histogram.value_at_quantile(quantile)) }
}

pub(super) fn table(scenario: &Scenario, outcome: &Judged) -> Result<String, Error> {
    let mut out = format!("{}\n\n", scenario.summary);
    let figures = ["reads/s", "writes/s", "MB/s", "flushes/s", "read p99", "write p99"];
    let mut table = Columns::new(["system", "phase", "job"], figures);
    for ran in &outcome.systems {
        for (phase, result) in scenario.phases.iter().zip(&ran.phases) {
            for job in result.iter().flat_map(|result| &result.jobs) {
                table.row([
                    ran.system.to_owned(),
                    phase.name.clone(),
                    job.name.clone(),
                    format!("{:.0}", per_s(job, job.reads)),
                    format!("{:.0}", per_s(job, job.writes)),
                    format!("{:.1}", per_s(job, job.read_bytes + job.write_bytes) / 1e6),
                    format!("{:.0}", per_s(job, job.flushes)),
                    latency(&job.read_ns, 0.99),
                    latency(&job.write_ns, 0.99),
                ]);
            }
        }
    }
    out.push_str(&table.text());
    out.push('\n');
    for verdict in &outcome.verdicts {
        let measured = verdict.measured.map_or_else(|| "not measured".to_owned(), |it| format!("{it:.3}"));
        let (tone, holds) = if verdict.holds { (Tone::Good, "holds ") } else { (Tone::Bad, "MISSED") };
        let holds = Paint::stdout().paint(tone, holds);
        writeln!(out, "{holds}  {:<48} {measured:>12}  {}", verdict.name, bound(verdict.target))?;
    }
    Ok(out)
}

/// Writes a line for each system, phase and interval.
pub(super) fn csv(scenario: &Scenario, outcome: &Judged) -> anyhow::Result<String> {
    let columns: [Column<(&str, &str, Step)>; 11] = [
        ("system", |it| it.0.to_owned()),
        ("phase", |it| it.1.to_owned()),
        ("end_s", |it| it.2.end_s.to_string()),
        ("read_bytes", |it| it.2.read_bytes.to_string()),
        ("write_bytes", |it| it.2.write_bytes.to_string()),
        ("dirty_bytes", |it| it.2.dirty_bytes.to_string()),
        ("dirty_limit_bytes", |it| it.2.dirty_limit_bytes.to_string()),
        ("origin_read_bytes", |it| it.2.origin_read_bytes.to_string()),
        ("origin_write_bytes", |it| it.2.origin_write_bytes.to_string()),
        ("cache_read_bytes", |it| it.2.cache_read_bytes.to_string()),
        ("cache_write_bytes", |it| it.2.cache_write_bytes.to_string()),
    ];
    let mut rows = Vec::new();
    for ran in &outcome.systems {
        for (phase, result) in scenario.phases.iter().zip(&ran.phases) {
            rows.extend(result.iter().flat_map(steps).map(|step| (&*ran.system, &*phase.name, step)));
        }
    }
    csv::text(&columns, rows)
}
