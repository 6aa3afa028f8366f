// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scenario's outcome for people: a table of jobs and one of targets; and its series as CSV.

use std::fmt::{Error, Write};

use flashfront_sim::load::JobResult;
use flashfront_sim::scenario::{Bound, Outcome, Scenario};
use hdrhistogram::Histogram;

use super::steps::{Step, steps};
use crate::columns::Columns;
use crate::human;
use crate::terminal::{Paint, Tone};

/// What a target has to be.
pub(in crate::sim) fn bound(bound: Bound) -> String {
    match bound {
        Bound::AtLeast(least) => format!(">= {least}"),
        Bound::AtMost(most) => format!("<= {most}"),
    }
}

/// So many in the time of a job, for a second.
pub(in crate::sim) fn per_s(job: &JobResult, count: u64) -> f64 {
    count as f64 * 1e9 / job.time_ns.max(1) as f64
}

/// A latency that so many of a job's requests keep; a dash if there were none.
pub(in crate::sim) fn latency(histogram: &Histogram<u64>, quantile: f64) -> String {
    if histogram.is_empty() { "-".to_owned() } else { human::latency(histogram.value_at_quantile(quantile)) }
}

pub(super) fn table(scenario: &Scenario, outcome: &Outcome) -> Result<String, Error> {
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

/// A line for each system, phase and interval.
pub(super) fn csv(scenario: &Scenario, outcome: &Outcome) -> Result<String, Error> {
    let mut out = "system,phase,end_s,read_bytes,write_bytes,dirty_bytes,dirty_limit_bytes,origin_read_bytes,origin_write_bytes,cache_read_bytes,cache_write_bytes\n".to_owned();
    for ran in &outcome.systems {
        for (phase, result) in scenario.phases.iter().zip(&ran.phases) {
            for step in result.iter().flat_map(steps) {
                let Step { end_s, read_bytes, write_bytes, dirty_bytes, dirty_limit_bytes, .. } = step;
                let (from_origin, to_origin) = (step.origin_read_bytes, step.origin_write_bytes);
                let (from_cache, to_cache) = (step.cache_read_bytes, step.cache_write_bytes);
                writeln!(
                    out,
                    "{},{},{end_s},{read_bytes},{write_bytes},{dirty_bytes},{dirty_limit_bytes},{from_origin},{to_origin},{from_cache},{to_cache}",
                    ran.system,
                    field(&phase.name)
                )?;
            }
        }
    }
    Ok(out)
}

/// A name as CSV (RFC 4180) has it.
fn field(name: &str) -> String {
    if name.contains([',', '"', '\n', '\r']) { format!("\"{}\"", name.replace('"', "\"\"")) } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_comma_is_one_field() {
        assert_eq!(field("one, a \"third\" dirty"), "\"one, a \"\"third\"\" dirty\"");
        assert_eq!(field("write"), "write");
    }
}
