// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each volume did between two readings of the status, and the order of volumes.

use std::cmp::Reverse;
use std::collections::HashMap;

use clap::ValueEnum;
use flashfront_engine::BLOCK_BYTES;
use flashfront_serve::report::{StatusReport, VolumeReport};
use serde::Serialize;

/// What volumes are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Sort {
    Bytes,
    Requests,
    Hits,
    Slowest,
    Dirty,
    Cached,
    Flash,
    Gain,
    Name,
}

impl Sort {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Requests => "requests",
            Self::Hits => "hits",
            Self::Slowest => "slowest",
            Self::Dirty => "dirty",
            Self::Cached => "cached",
            Self::Flash => "flash",
            Self::Gain => "gain",
            Self::Name => "name",
        }
    }

    /// The key of a keyboard.
    pub(super) const fn key(self) -> u8 {
        self.name().as_bytes()[0]
    }
}

/// A volume between two readings.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) read_bytes_per_s: f64,
    pub(super) written_bytes_per_s: f64,
    /// Reads, writes and FLUSHes.
    pub(super) requests_per_s: f64,
    /// The share of the reads that the cache answered alone; none without a read.
    pub(super) hit_ratio: Option<f64>,
    /// The slowest kind's: 99 of 100 requests of the last minute took this long at most.
    pub(super) p99_us: f64,
    pub(super) dirty_bytes: u64,
    pub(super) cached_bytes: u64,
    pub(super) flash_written_bytes_per_s: f64,
    /// The volume's part of the bytes that the cache served in the last hour; none if it served
    /// nothing.
    pub(super) gain: Option<f64>,
}

/// The row of all volumes, and one for each. A volume that was added between the readings counts
/// from nothing.
pub(super) fn rows(before: &StatusReport, now: &StatusReport, seconds: f64) -> (Row, Vec<Row>) {
    let same_daemon = before.pid == now.pid;
    let known: HashMap<u32, &VolumeReport> = before.volumes.iter().map(|it| (it.id, it)).collect();
    let served = now.recent.hour.hit_bytes;
    let nothing = VolumeReport::default();
    let row = |now: &VolumeReport| {
        let before = known.get(&now.id).copied().filter(|_| same_daemon).unwrap_or(&nothing);
        let rate = |count: fn(&VolumeReport) -> u64| count(now).saturating_sub(count(before)) as f64 / seconds;
        let (hits, misses) = (rate(|it| it.hit_requests), rate(|it| it.miss_requests));
        let slowest = now.latency_us.each().into_iter().map(|(_, it)| it.p99.ns()).max();
        Row {
            name: now.name.clone(),
            read_bytes_per_s: rate(|it| it.read_bytes),
            written_bytes_per_s: rate(|it| it.written_bytes),
            requests_per_s: hits + misses + rate(|it| it.write_requests) + rate(|it| it.flush_requests),
            hit_ratio: (hits + misses > 0.0).then(|| hits / (hits + misses)),
            p99_us: slowest.unwrap_or(0) as f64 / 1e3,
            dirty_bytes: now.blocks_dirty * BLOCK_BYTES,
            cached_bytes: now.blocks_cached * BLOCK_BYTES,
            flash_written_bytes_per_s: rate(|it| it.flash_written_bytes),
            gain: (served > 0).then(|| now.recent.hour.hit_bytes as f64 / served as f64),
        }
    };
    let volumes: Vec<Row> = now.volumes.iter().map(row).collect();
    (all(before, now, &volumes, seconds), volumes)
}

/// The volumes together. The wear is that of the device, with headers and checkpoints.
fn all(before: &StatusReport, now: &StatusReport, volumes: &[Row], seconds: f64) -> Row {
    let sum = |of: fn(&Row) -> f64| volumes.iter().map(of).sum::<f64>();
    let count = |of: fn(&VolumeReport) -> u64| {
        let [before, now] = [before, now].map(|report| report.volumes.iter().map(of).sum::<u64>());
        now.saturating_sub(before)
    };
    let (hits, misses) = (count(|it| it.hit_requests), count(|it| it.miss_requests));
    let flash = now.counters.cache_writes_bytes.saturating_sub(before.counters.cache_writes_bytes);
    Row {
        name: "all".to_owned(),
        read_bytes_per_s: sum(|it| it.read_bytes_per_s),
        written_bytes_per_s: sum(|it| it.written_bytes_per_s),
        requests_per_s: sum(|it| it.requests_per_s),
        hit_ratio: (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64),
        p99_us: now.recent.minute.latency_us.each().into_iter().map(|(_, it)| it.p99.ns()).max().unwrap_or(0) as f64
            / 1e3,
        dirty_bytes: now.blocks_dirty * BLOCK_BYTES,
        cached_bytes: now.blocks_cached * BLOCK_BYTES,
        flash_written_bytes_per_s: flash as f64 / seconds,
        gain: (now.recent.hour.hit_bytes > 0).then_some(1.0),
    }
}

/// The most of it comes first; names that are alike in this go by the alphabet.
pub(super) fn sort(rows: &mut [Row], by: Sort) {
    let weight = |row: &Row| match by {
        Sort::Bytes => row.read_bytes_per_s + row.written_bytes_per_s,
        Sort::Requests => row.requests_per_s,
        Sort::Hits => row.hit_ratio.unwrap_or(-1.0),
        Sort::Slowest => row.p99_us,
        Sort::Dirty => row.dirty_bytes as f64,
        Sort::Cached => row.cached_bytes as f64,
        Sort::Flash => row.flash_written_bytes_per_s,
        Sort::Gain => row.gain.unwrap_or(0.0),
        Sort::Name => 0.0,
    };
    // No weight is below -1, and of these numbers the bits are in the order of the numbers.
    rows.sort_by_cached_key(|row| (Reverse((weight(row) + 1.0).to_bits()), row.name.clone()));
}
