// SPDX-License-Identifier: MIT OR Apache-2.0
//! A measure is taken of a scenario, and has a bound to keep.

use super::{Judged, Scenario};
use crate::load::{Interval, PhaseResult};

/// At this part of its limit dirty data is taken to have reached it: from nine tenths on writers
/// are slowed.
const AT_LIMIT: f64 = 0.9;

/// What is measured. Phases are numbers in the scenario's order; ratios are Flashfront's figure by
/// the other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Bytes a second of a phase, by those of a system beside it.
    Rate {
        /// The phase.
        phase: usize,
        /// `origin`, `cache` or `bound`.
        by: &'static str,
        /// Only from when the dirty limit was reached.
        at_limit: bool,
    },
    /// Bytes a second of a phase from when the dirty limit was reached, by those of another phase
    /// on a system beside it.
    RateOfPhase {
        /// The phase.
        phase: usize,
        /// The other phase.
        of: usize,
        /// `origin` or `cache`.
        by: &'static str,
    },
    /// The slowest whole interval of a phase (from when the dirty limit was reached), by the mean
    /// of a system beside it.
    WorstInterval {
        /// The phase.
        phase: usize,
        /// `origin`, `cache` or `bound`.
        by: &'static str,
    },
    /// The most dirty data ever seen, by its limit.
    Dirty,
    /// Reads a second of the first job of a phase, by those of another phase.
    ReadsOfPhase {
        /// The phase.
        phase: usize,
        /// The other phase.
        of: usize,
    },
    /// The 99th percentile of the reads of a phase's first job, by that of another phase.
    ReadP99OfPhase {
        /// The phase.
        phase: usize,
        /// The other phase.
        of: usize,
    },
    /// The 99th percentile of the reads of a phase's first job, by that of a system beside it.
    ReadP99 {
        /// The phase.
        phase: usize,
        /// `origin` or `cache`.
        by: &'static str,
    },
    /// The longest write of a phase, in ms.
    LongestWriteMs {
        /// The phase.
        phase: usize,
    },
    /// FLUSHes a second of a phase, by those of a system beside it.
    Flushes {
        /// The phase.
        phase: usize,
        /// `origin` or `cache`.
        by: &'static str,
    },
    /// FLUSHes of the cache device for each of the clients in a phase.
    DeviceFlushes {
        /// The phase.
        phase: usize,
    },
    /// Bytes written to the cache device for each that clients wrote in a phase.
    FlashWrites {
        /// The phase.
        phase: usize,
    },
    /// MB (10^6 bytes) a second that the origin was written with in a phase.
    OriginWriteMbPerS {
        /// The phase.
        phase: usize,
    },
    /// MB (10^6 bytes) a second that the cache device was written with in a phase.
    CacheWriteMbPerS {
        /// The phase.
        phase: usize,
    },
}

/// The bound that a figure has to keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// The figure is not less.
    AtLeast(f64),
    /// The figure is not more.
    AtMost(f64),
}

/// A target of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The name in results.
    pub name: String,
    /// The measure that is taken.
    pub measure: Measure,
    /// The bound that the figure has to keep.
    pub bound: Bound,
}

/// The result of a target. Nothing measured (a phase that did not run, nothing written) holds
/// nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The name of the target.
    pub name: String,
    /// The figure that was measured.
    pub measured: Option<f64>,
    /// The bound that the figure has to keep.
    pub target: Bound,
    /// Whether the figure keeps its bound.
    pub holds: bool,
}

impl Target {
    pub(super) fn judge(&self, scenario: &Scenario, outcome: &Judged) -> Verdict {
        let measured = self.measure.of(scenario, outcome);
        let holds = measured.is_some_and(|figure| match self.bound {
            Bound::AtLeast(least) => figure >= least,
            Bound::AtMost(most) => figure <= most,
        });
        Verdict { name: self.name.clone(), measured, target: self.bound, holds }
    }
}

fn moved(interval: &Interval) -> u64 {
    interval.read_bytes.iter().chain(&interval.write_bytes).sum()
}

fn per_s(count: u64, ns: u64) -> Option<f64> {
    (ns > 0).then(|| count as f64 * 1e9 / ns as f64)
}

/// Bytes and time of a phase from the first interval on at whose end dirty data is at its limit.
fn from_limit(phase: &PhaseResult) -> Option<(u64, u64)> {
    let at_limit = |it: &Interval| {
        it.traffic.dirty_limit_bytes > 0
            && it.traffic.dirty_bytes as f64 >= it.traffic.dirty_limit_bytes as f64 * AT_LIMIT
    };
    let from = phase.series.iter().position(at_limit)?;
    let rest = &phase.series[from + 1..];
    Some((rest.iter().map(moved).sum(), phase.time_ns - phase.series[from].end_ns))
}

/// When so many bytes of a phase had been moved, by its series.
fn time_of(phase: &PhaseResult, bytes: u64) -> u64 {
    let (mut sum, mut last_ns) = (0, 0);
    for interval in &phase.series {
        let here = moved(interval);
        if sum + here >= bytes && here > 0 {
            let part = (bytes - sum) as f64 / here as f64;
            return last_ns + ((interval.end_ns - last_ns) as f64 * part) as u64;
        }
        (sum, last_ns) = (sum + here, interval.end_ns);
    }
    phase.time_ns
}

fn rate(phase: &PhaseResult) -> Option<f64> {
    per_s(phase.series.iter().map(moved).sum(), phase.time_ns)
}

fn read_p99(phase: &PhaseResult) -> Option<f64> {
    let job = phase.jobs.first()?;
    (!job.read_ns.is_empty()).then(|| job.read_ns.value_at_quantile(0.99) as f64)
}

fn reads_per_s(phase: &PhaseResult) -> Option<f64> {
    let job = phase.jobs.first()?;
    per_s(job.reads, job.time_ns)
}

fn flushes_per_s(phase: &PhaseResult) -> Option<f64> {
    per_s(phase.jobs.iter().map(|job| job.flushes).sum(), phase.time_ns)
}

fn written(phase: &PhaseResult) -> Option<f64> {
    let bytes: u64 = phase.jobs.iter().map(|job| job.write_bytes).sum();
    (bytes > 0).then_some(bytes as f64)
}

impl Measure {
    fn of(self, scenario: &Scenario, outcome: &Judged) -> Option<f64> {
        let ours = |phase| outcome.phase("flashfront", phase);
        match self {
            Self::Rate { phase, by, at_limit: false } => Some(rate(ours(phase)?)? / rate(outcome.phase(by, phase)?)?),
            Self::Rate { phase, by, at_limit: true } => {
                let (bytes, ns) = from_limit(ours(phase)?)?;
                let other = outcome.phase(by, phase)?;
                let total: u64 = other.series.iter().map(moved).sum();
                // The other's time for the same bytes: a disk is slower inside than outside.
                let others = if by == "bound" {
                    rate(other)?
                } else {
                    per_s(bytes, other.time_ns - time_of(other, total.saturating_sub(bytes)))?
                };
                Some(per_s(bytes, ns)? / others)
            }
            Self::RateOfPhase { phase, of, by } => {
                let (bytes, ns) = from_limit(ours(phase)?)?;
                Some(per_s(bytes, ns)? / rate(outcome.phase(by, of)?)?)
            }
            Self::WorstInterval { phase, by } => {
                let (phase_of, other) = (ours(phase)?, rate(outcome.phase(by, phase)?)?);
                let (bytes, _) = from_limit(phase_of)?;
                let (mut left, mut worst) = (bytes, f64::INFINITY);
                for interval in phase_of.series.iter().rev().skip(1) {
                    left = left.saturating_sub(moved(interval));
                    if left == 0 {
                        break;
                    }
                    worst = worst.min(per_s(moved(interval), scenario.interval_ns)? / other);
                }
                worst.is_finite().then_some(worst)
            }
            Self::Dirty => {
                let all = outcome.systems[0].phases.iter().flatten().flat_map(|phase| &phase.series);
                let shares = all.filter(|it| it.traffic.dirty_limit_bytes > 0);
                shares.map(|it| it.traffic.dirty_bytes as f64 / it.traffic.dirty_limit_bytes as f64).reduce(f64::max)
            }
            Self::ReadsOfPhase { phase, of } => Some(reads_per_s(ours(phase)?)? / reads_per_s(ours(of)?)?),
            Self::ReadP99OfPhase { phase, of } => Some(read_p99(ours(phase)?)? / read_p99(ours(of)?)?),
            Self::ReadP99 { phase, by } => Some(read_p99(ours(phase)?)? / read_p99(outcome.phase(by, phase)?)?),
            Self::LongestWriteMs { phase } => {
                let longest = ours(phase)?.jobs.iter().map(|job| job.write_ns.max()).max()?;
                Some(longest as f64 / 1e6)
            }
            Self::Flushes { phase, by } => {
                Some(flushes_per_s(ours(phase)?)? / flushes_per_s(outcome.phase(by, phase)?)?)
            }
            Self::DeviceFlushes { phase } => {
                let phase = ours(phase)?;
                let asked: u64 = phase.jobs.iter().map(|job| job.flushes).sum();
                let sent = phase.after.cache_flushes - phase.before.cache_flushes;
                (asked > 0).then(|| sent as f64 / asked as f64)
            }
            Self::FlashWrites { phase } => {
                let phase = ours(phase)?;
                Some((phase.after.cache_write_bytes - phase.before.cache_write_bytes) as f64 / written(phase)?)
            }
            Self::OriginWriteMbPerS { phase } => {
                let phase = ours(phase)?;
                per_s((phase.after.origin_write_bytes - phase.before.origin_write_bytes) / 1_000_000, phase.time_ns)
            }
            Self::CacheWriteMbPerS { phase } => {
                let phase = ours(phase)?;
                per_s((phase.after.cache_write_bytes - phase.before.cache_write_bytes) / 1_000_000, phase.time_ns)
            }
        }
    }
}
