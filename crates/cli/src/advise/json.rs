// SPDX-License-Identifier: MIT OR Apache-2.0
//! The advice for scripts: one object. The names are a contract: fields are added, never renamed or
//! removed.

use std::borrow::Cow;

use flashfront_device::pace::PHASES;
use flashfront_sim::advise::{Advice, Question, Times, Trial};
use serde::Serialize;

use super::devices::{Devices, Probe};
use super::{because, told};

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
    /// How the origin's model was found; null if it was named.
    probe: Option<Probed<'a>>,
    /// The probe of the cache device.
    cache_probe: Option<Probed<'a>>,
    /// The disk alone first, then caches in writeback mode, then caches of the chosen size in other
    /// modes.
    trials: Vec<Line>,
    /// The effect of RAM alone, in place of the cache device; null if that was not tried.
    ram: Option<InRam>,
    /// The caches of `--with`, at the advised size, in writeback mode.
    rivals: Vec<Rival>,
    growth: Growing,
    /// Whether the trace is long enough for the answer to mean something.
    converged: bool,
    advice: Conclusion,
}

#[derive(Debug, Serialize)]
struct InRam {
    /// Only requested blocks are kept, as a page cache does.
    asked: Line,
    /// Blocks that are read around misses are kept, too.
    around: Line,
}

#[derive(Debug, Serialize)]
struct Rival {
    name: &'static str,
    #[serde(flatten)]
    line: Line,
}

/// How the working set grows. Shares are null if nothing is read there.
#[derive(Debug, Serialize)]
struct Growing {
    /// The touched bytes after each 32nd part of the requests.
    touched_bytes: Vec<u64>,
    /// The size that the first half alone advises; null for no cache.
    first_half_cache_bytes: Option<u64>,
    /// The share of the reads that had been asked for before.
    read_again_share: Option<f64>,
    /// The share of the second half's reads that are found to come again only with twice the
    /// history.
    gain_share: Option<f64>,
    /// The share of the last quarter's reads that had never been asked for.
    unseen_share: Option<f64>,
    /// How many times as long the recording should be; 1 if it is long enough.
    record_times: f64,
}

/// A device that was read to find its model.
#[derive(Debug, Serialize)]
struct Probed<'a> {
    model: &'static str,
    /// How many times as long everything takes as on that model.
    scale: f64,
    /// The factor by which its times differ from the scaled model's, in the mean.
    off: f64,
    device: Cow<'a, str>,
    device_bytes: u64,
    /// Null if the kernel doesn't say.
    write_cache: Option<bool>,
    busy: bool,
    /// Requests of others; null if the kernel doesn't count.
    others: Option<u64>,
    reads: Vec<Paced>,
}

/// Reads of one kind.
#[derive(Debug, Serialize)]
struct Paced {
    name: &'static str,
    bytes: u64,
    depth: usize,
    /// The time divided by the reads.
    ns: u64,
}

fn probed(probe: &Probe) -> Probed<'_> {
    let Probe { path, measured, nearest } = probe;
    let reads = PHASES.iter().zip(measured.times.0);
    Probed {
        model: nearest.known.name,
        scale: nearest.scale,
        off: nearest.off,
        device: path.to_string_lossy(),
        device_bytes: measured.device_bytes,
        write_cache: measured.hints.write_cache,
        busy: measured.was_busy(),
        others: measured.others,
        reads: reads
            .map(|(phase, ns)| Paced { name: phase.name, bytes: phase.len, depth: phase.depth, ns: ns as u64 })
            .collect(),
    }
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
    /// The hits among the blocks read; null if there are none.
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
    /// The lateness over the whole trace.
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
    /// A cache saves a fifth of the time or more.
    helps: bool,
    /// A cache helps, and RAM or a longer read-ahead would not, and it lasts.
    needs_cache: bool,
    because: Reason,
    /// The size; null if no cache helps, as the next fields are.
    cache_bytes: Option<u64>,
    mode: Option<&'static str>,
    mean_ns: Option<u64>,
    /// The sentences for people.
    text: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Reason {
    kind: &'static str,
    text: String,
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

pub(super) fn object<'a>(trace: &'a str, question: &Question, devices: &'a Devices, advice: &Advice) -> Object<'a> {
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
        probe: devices.probe.as_ref().map(probed),
        cache_probe: devices.cache_probe.as_ref().map(probed),
        trials: told::rows(advice).map(|trial| line(advice, trial)).collect(),
        ram: advice
            .ram
            .as_ref()
            .map(|ram| InRam { asked: line(advice, &ram.alone), around: line(advice, &ram.around) }),
        rivals: advice
            .rivals
            .iter()
            .map(|(rival, trial)| Rival { name: rival.name, line: line(advice, trial) })
            .collect(),
        growth: Growing {
            touched_bytes: advice.growth.touched_bytes.clone(),
            first_half_cache_bytes: advice.converged.first_half,
            read_again_share: advice.growth.again_share(),
            gain_share: advice.converged.gain,
            unseen_share: advice.converged.unseen,
            record_times: advice.converged.times,
        },
        converged: advice.converged.is_converged(),
        advice: Conclusion {
            helps: advice.choice.is_some(),
            needs_cache: advice.because.needs_cache(),
            because: Reason { kind: advice.because.word(), text: because::because(question, advice) },
            cache_bytes: advice.choice.map(|it| it.cache_bytes),
            mode: advice.choice.map(|it| it.mode.name()),
            mean_ns: advice.choice.map(|it| it.mean_ns),
            text: told::conclusions(question, advice),
        },
    }
}
