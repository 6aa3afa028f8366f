// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is advised, as scripts read it: one object. The names are a contract: fields are added,
//! never renamed or removed.

use flashfront_sim::advise::{Advice, Question, Times, Trial};
use serde::Serialize;

use super::told;

#[derive(Debug, Serialize)]
pub(super) struct Object<'a> {
    trace: &'a str,
    format: &'static str,
    requests: u64,
    reads: u64,
    writes: u64,
    read_bytes: u64,
    write_bytes: u64,
    touched_bytes: u64,
    origin_bytes: u64,
    /// Null if its requests have no times.
    span_ns: Option<u64>,
    bad_lines: u64,
    /// The compressed data is cut or fails its checksum: what was unpacked may be wrong too.
    damaged: bool,
    origin: &'static str,
    cache: &'static str,
    /// The disk alone first, then caches in writeback mode, then those of the chosen size in
    /// others.
    trials: Vec<Line>,
    advice: Conclusion,
}

/// A run of the trace. Figures are of the second half of the requests.
#[derive(Debug, Serialize)]
struct Line {
    /// Null for the disk alone.
    cache_bytes: Option<u64>,
    mode: Option<&'static str>,
    mean_ns: u64,
    reads: Latency,
    writes: Latency,
    /// Of the blocks read; null if there are none.
    read_hit_ratio: Option<f64>,
    flash_write_bytes: u64,
    /// Null if the requests have no times.
    flash_write_bytes_per_day: Option<u64>,
    origin_ios: u64,
    origin_read_bytes: u64,
    origin_write_bytes: u64,
    origin_flushes: u64,
    cache_flushes: u64,
    took_ns: u64,
    /// Of the whole trace.
    late_ns: u64,
}

#[derive(Debug, Serialize)]
struct Latency {
    requests: u64,
    /// Null of no requests.
    mean_ns: Option<u64>,
    p99_ns: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Conclusion {
    helps: bool,
    /// These are null if it doesn't.
    cache_bytes: Option<u64>,
    mode: Option<&'static str>,
    mean_ns: Option<u64>,
    /// As people read it.
    text: Vec<String>,
}

fn latency(times: &Times) -> Latency {
    Latency { requests: times.requests, mean_ns: times.mean_ns(), p99_ns: times.p99_ns() }
}

fn line(advice: &Advice, trial: &Trial) -> Line {
    let played = &trial.played;
    Line {
        cache_bytes: trial.cache.map(|it| it.0),
        mode: trial.cache.map(|it| it.1.name()),
        mean_ns: played.mean_ns(),
        reads: latency(&played.reads),
        writes: latency(&played.writes),
        read_hit_ratio: played.read_hit_ratio().filter(|_| trial.cache.is_some()),
        flash_write_bytes: played.traffic.cache_write_bytes,
        flash_write_bytes_per_day: told::per_day(advice, played.traffic.cache_write_bytes, played.took_ns),
        origin_ios: played.traffic.origin_ios,
        origin_read_bytes: played.traffic.origin_read_bytes,
        origin_write_bytes: played.traffic.origin_write_bytes,
        origin_flushes: played.traffic.origin_flushes,
        cache_flushes: played.traffic.cache_flushes,
        took_ns: played.took_ns,
        late_ns: played.late_ns,
    }
}

pub(super) fn object<'a>(trace: &'a str, question: &Question, advice: &Advice) -> Object<'a> {
    let (reading, survey) = (&advice.reading, &advice.survey);
    Object {
        trace,
        format: reading.format.name,
        requests: reading.requests,
        reads: survey.reads,
        writes: survey.writes,
        read_bytes: survey.read_bytes,
        write_bytes: survey.write_bytes,
        touched_bytes: survey.touched_bytes,
        origin_bytes: survey.origin_bytes,
        span_ns: survey.span_ns,
        bad_lines: reading.report.bad,
        damaged: reading.report.damage.is_some(),
        origin: question.origin.name,
        cache: question.cache.name,
        trials: told::rows(advice).map(|trial| line(advice, trial)).collect(),
        advice: Conclusion {
            helps: advice.choice.is_some(),
            cache_bytes: advice.choice.map(|it| it.cache_bytes),
            mode: advice.choice.map(|it| it.mode.name()),
            mean_ns: advice.choice.map(|it| it.mean_ns),
            text: told::conclusions(question, advice),
        },
    }
}
