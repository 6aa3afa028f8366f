// SPDX-License-Identifier: MIT OR Apache-2.0
//! The series of the history: their names, and how each follows from two moments.
//!
//! A name says the unit last. A counter becomes a rate by the second. A level is told as it was at
//! the end of the step. A share is that of the step. [`TRAFFIC`] is there for the daemon and for
//! each volume, [`WHOLE`] for the daemon alone.

use flashfront_engine::{BLOCK_BYTES, Counters};

use super::{Fresh, Value};
use crate::latency::{Kind, Summary};

/// The traffic of one volume since the start, and its present levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests by kind, in the order of [`Kind::ALL`].
    pub requests: [u64; 4],
    /// Bytes of their payload.
    pub bytes: [u64; 4],
    /// Dirty blocks.
    pub blocks_dirty: u64,
    /// I/Os of the origin that failed.
    pub origin_errors: u64,
}

impl Traffic {
    fn add(mut self, other: &Self) -> Self {
        for kind in 0..4 {
            self.requests[kind] += other.requests[kind];
            self.bytes[kind] += other.bytes[kind];
        }
        self.blocks_dirty += other.blocks_dirty;
        self.origin_errors += other.origin_errors;
        self
    }

    const fn of(&self, kind: Kind) -> u64 {
        self.requests[kind as usize]
    }
}

/// Figures of the daemon as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Whole {
    /// The counters.
    pub counters: Counters,
    /// Blocks in the cache.
    pub blocks_cached: u64,
    /// The most that may be dirty.
    pub dirty_limit_blocks: u64,
    /// Blocks whose only copy is corrupt.
    pub lost_blocks: u64,
    /// Requests not yet answered.
    pub requests_in_flight: u64,
    /// Clients connected.
    pub clients: u64,
    /// The share of the blocks read that a cache of half, the same, twice and four times the size
    /// would have. Some are not known yet.
    pub what_if: [Option<f64>; 4],
}

impl Whole {
    /// How it is without what is about a cache.
    pub(crate) fn without_cache(self) -> Self {
        let counters =
            Counters { cache_reads: 0, cache_reads_bytes: 0, cache_writes: 0, cache_writes_bytes: 0, ..self.counters };
        Self { counters, dirty_limit_blocks: 0, blocks_cached: 0, what_if: [None; 4], ..self }
    }
}

/// How it is at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moment {
    /// The daemon.
    pub whole: Whole,
    /// The volumes; the history follows the first ones.
    pub volumes: Vec<Traffic>,
}

impl Moment {
    /// The traffic of all volumes together.
    pub(super) fn traffic(&self) -> Traffic {
        self.volumes.iter().fold(Traffic::default(), Traffic::add)
    }
}

/// How a value follows from how it was at the begin and at the end of a step.
pub(super) enum Spec<T> {
    /// A count by the second.
    Rate(fn(&T) -> u64),
    /// A level at the end of the step.
    Level(fn(&T) -> u64),
    /// A part of a whole that was counted in the step, 0 to 1.
    Share(fn(&T) -> [u64; 2]),
    /// A level at the end of the step, if it is known.
    Known(fn(&T) -> Option<f64>),
}

impl<T> Spec<T> {
    fn value(&self, before: &T, now: &T, seconds: f64) -> Value {
        match self {
            Self::Rate(count) => Value::of((count(now) - count(before)) as f64 / seconds),
            Self::Level(level) => Value::of(level(now) as f64),
            Self::Share(counts) => {
                let ([part, whole], [part_before, whole_before]) = (counts(now), counts(before));
                let (part, whole) = (part - part_before, whole - whole_before);
                if whole == 0 { Value::NONE } else { Value::of(part as f64 / whole as f64) }
            }
            Self::Known(known) => known(now).map_or(Value::NONE, Value::of),
        }
    }
}

/// The series of the daemon, and of each volume.
pub(super) const TRAFFIC: [(&str, Spec<Traffic>); 9] = [
    ("read_bytes_per_s", Spec::Rate(|it| it.bytes[Kind::Hit as usize] + it.bytes[Kind::Miss as usize])),
    ("written_bytes_per_s", Spec::Rate(|it| it.bytes[Kind::Write as usize])),
    ("hits_per_s", Spec::Rate(|it| it.of(Kind::Hit))),
    ("misses_per_s", Spec::Rate(|it| it.of(Kind::Miss))),
    ("writes_per_s", Spec::Rate(|it| it.of(Kind::Write))),
    ("flushes_per_s", Spec::Rate(|it| it.of(Kind::Flush))),
    ("request_hit_ratio", Spec::Share(|it| [it.of(Kind::Hit), it.of(Kind::Hit) + it.of(Kind::Miss)])),
    ("dirty_bytes", Spec::Level(|it| it.blocks_dirty * BLOCK_BYTES)),
    ("origin_errors_per_s", Spec::Rate(|it| it.origin_errors)),
];

/// The durations of each kind of request, which come after [`TRAFFIC`].
pub(super) const LATENCIES: [[&str; 3]; 4] = [
    ["hit_p50_us", "hit_p99_us", "hit_max_us"],
    ["miss_p50_us", "miss_p99_us", "miss_max_us"],
    ["write_p50_us", "write_p99_us", "write_max_us"],
    ["flush_p50_us", "flush_p99_us", "flush_max_us"],
];

/// The series of the daemon alone.
pub(super) const WHOLE: [(&str, Spec<Whole>); 22] = [
    ("hit_ratio", Spec::Share(|it| [it.counters.read_hits, it.counters.read_hits + it.counters.read_misses])),
    ("cached_bytes", Spec::Level(|it| it.blocks_cached * BLOCK_BYTES)),
    ("dirty_limit_bytes", Spec::Level(|it| it.dirty_limit_blocks * BLOCK_BYTES)),
    ("destaged_bytes_per_s", Spec::Rate(|it| it.counters.destaged_blocks * BLOCK_BYTES)),
    ("throttled_writes_per_s", Spec::Rate(|it| it.counters.throttled_writes)),
    ("origin_read_bytes_per_s", Spec::Rate(|it| it.counters.origin_reads_bytes)),
    ("origin_written_bytes_per_s", Spec::Rate(|it| it.counters.origin_writes_bytes)),
    ("cache_read_bytes_per_s", Spec::Rate(|it| it.counters.cache_reads_bytes)),
    ("cache_written_bytes_per_s", Spec::Rate(|it| it.counters.cache_writes_bytes)),
    ("origin_reads_per_s", Spec::Rate(|it| it.counters.origin_reads)),
    ("origin_writes_per_s", Spec::Rate(|it| it.counters.origin_writes)),
    ("cache_reads_per_s", Spec::Rate(|it| it.counters.cache_reads)),
    ("cache_writes_per_s", Spec::Rate(|it| it.counters.cache_writes)),
    ("corrupt_blocks", Spec::Level(|it| it.counters.corrupt_blocks)),
    ("lost_blocks", Spec::Level(|it| it.lost_blocks)),
    ("requests_in_flight", Spec::Level(|it| it.requests_in_flight)),
    ("clients", Spec::Level(|it| it.clients)),
    ("promoted_bytes_per_s", Spec::Rate(|it| it.counters.promoted_blocks * BLOCK_BYTES)),
    ("what_if_hit_ratio_50", Spec::Known(|it| it.what_if[0])),
    ("what_if_hit_ratio_100", Spec::Known(|it| it.what_if[1])),
    ("what_if_hit_ratio_200", Spec::Known(|it| it.what_if[2])),
    ("what_if_hit_ratio_400", Spec::Known(|it| it.what_if[3])),
];

/// Values of a volume's traffic, and of all of it.
pub(super) const TRAFFIC_WIDTH: usize = TRAFFIC.len() + LATENCIES.len() * 3;

/// The names of a volume's values, in their order.
pub(super) fn traffic_names() -> impl Iterator<Item = &'static str> {
    TRAFFIC.iter().map(|it| it.0).chain(LATENCIES.as_flattened().iter().copied())
}

/// The names of all series.
pub(super) fn names() -> Vec<String> {
    WHOLE.iter().map(|it| it.0).chain(traffic_names()).map(str::to_owned).collect()
}

/// Puts the values of a volume's traffic behind `row`.
pub(super) fn push_traffic(row: &mut Vec<Value>, before: &Traffic, now: &Traffic, took: &Fresh, seconds: f64) {
    row.extend(TRAFFIC.iter().map(|(_, spec)| spec.value(before, now, seconds)));
    for counts in took {
        let summary = Summary::of([counts].into_iter());
        let micros = |ns: u64| if summary.count == 0 { Value::NONE } else { Value::of(ns as f64 / 1000.0) };
        row.extend([summary.p50_ns, summary.p99_ns, summary.max_ns].map(micros));
    }
}

/// Puts the values of the daemon behind `row`.
pub(super) fn push_whole(row: &mut Vec<Value>, before: &Whole, now: &Whole, seconds: f64) {
    row.extend(WHOLE.iter().map(|(_, spec)| spec.value(before, now, seconds)));
}
