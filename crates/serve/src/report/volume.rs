// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of `status` about one volume.

use std::time::Duration;

use flashfront_engine::format::Shares;
use flashfront_engine::{BLOCK_BYTES, OriginId, OriginStatus};
use serde::{Deserialize, Serialize};

use super::{Grown, HangReport, LatencyReport, RecentReport, StoreReport};
use crate::latency::{Cumulative, Durations, Kind, Summary};
use crate::origin_errors::OriginErrors;

/// The link to the server of a network volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkReport {
    /// Seconds since the connection was lost; `None` while there is one.
    pub away_s: Option<u64>,
    /// Why there is none.
    pub why: Option<String>,
    /// How often the connection was lost and made again.
    pub reconnects: u64,
    /// Bytes that were written to the object store's volume, and that the store does not have yet.
    pub unsent_bytes: u64,
    /// Seconds since the oldest of them were written.
    pub unsent_age_s: u64,
    /// By whom the volume in the object store was taken over, if it was.
    pub fenced: Option<String>,
    /// The requests to the object store; `None` with another origin.
    pub requests: Option<StoreReport>,
}

/// Facts of a volume that the daemon knows and the engine does not.
#[derive(Clone, Debug, Default)]
pub struct VolumeFacts {
    /// The id of its origin.
    pub id: OriginId,
    /// The name of the volume.
    pub name: String,
    /// The path of its origin.
    pub origin_path: String,
    /// Every address at which clients reach it.
    pub uris: Vec<String>,
    /// Whether clients may not write.
    pub read_only: bool,
    /// Its part of the cache.
    pub shares: Shares,
    /// Its clients; users of a block device are not known.
    pub clients: u64,
    /// The size of its origin now, if the kernel knows it at once.
    pub origin_bytes: Option<u64>,
    /// Whether it is being removed.
    pub removing: bool,
    /// The name of the durability.
    pub durability: String,
    /// The name of the order of destage.
    pub destage: String,
    /// The name of the policy.
    pub policy: String,
    /// Why its origin refuses dirty data.
    pub origin_error: Option<String>,
    /// What became of the name of its origin's file.
    pub origin_astray: Option<String>,
    /// How its origin hangs.
    pub origin_hang: Option<HangReport>,
    /// The link to its origin's server.
    pub origin_link: LinkReport,
    /// I/Os of its origin that failed.
    pub failed: OriginErrors,
    /// How long its requests take, in the order of [`Kind::ALL`](crate::latency::Kind::ALL).
    pub durations: [Durations; 4],
    /// What was evicted and written to flash of it in the last minute, hour and day.
    pub grown: [Grown; 3],
}

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeReport {
    /// The name of the volume.
    pub name: String,
    /// The number of its origin, which it keeps for life.
    #[serde(default)]
    pub id: u32,
    /// The path of its origin.
    #[serde(default)]
    pub origin_path: String,
    /// Every address at which clients reach it.
    #[serde(default)]
    pub uris: Vec<String>,
    /// Whether clients may not write.
    #[serde(default)]
    pub read_only: bool,
    /// The part of the cache that other volumes leave to it; 0: none.
    #[serde(default)]
    pub share_min_bytes: u64,
    /// The largest part of the cache that it may have; 0: all of it.
    #[serde(default)]
    pub share_max_bytes: u64,
    /// What it gets of the cache beside other volumes with a weight; 0: no weight.
    #[serde(default)]
    pub weight: u16,
    /// The most of its data that may be dirty; 0: what the cache allows.
    #[serde(default)]
    pub dirty_limit_bytes: u64,
    /// How long its data may stay dirty, in milliseconds; 0: as long as the cache allows.
    #[serde(default)]
    pub dirty_age_ms: u32,
    /// Streams longer than this bypass the cache; `None`: as for the whole cache.
    #[serde(default)]
    pub sequential_bypass_bytes: Option<u64>,
    /// How much is read at once around a miss; `None`: as for the whole cache.
    #[serde(default)]
    pub read_around_bytes: Option<u32>,
    /// Its clients now; users of a block device are not known.
    #[serde(default)]
    pub clients: u64,
    /// Whether it is being removed: its dirty data is destaged, and clients are served no more.
    #[serde(default)]
    pub removing: bool,
    /// The name of its mode.
    pub mode: String,
    /// When a write in writeback is acknowledged: `flush` (from RAM) or `always` (when it is
    /// durable).
    #[serde(default)]
    pub durability: String,
    /// The name of the policy that decides what is cached; `none` without a cache.
    #[serde(default)]
    pub policy: String,
    /// The size of the volume.
    pub size_bytes: u64,
    /// The size of its origin, if it is another one: `flashfront volume grow` gives clients more.
    #[serde(default)]
    pub origin_bytes: Option<u64>,
    /// The blocks that the cache has of the volume.
    #[serde(default)]
    pub blocks_cached: u64,
    /// The dirty ones among them.
    pub blocks_dirty: u64,
    /// The order in which dirty data goes to its origin: `free`, or `ordered`, as FLUSHes came.
    #[serde(default)]
    pub destage: String,
    /// Seconds since the oldest FLUSH was acknowledged that its origin alone may lack something of;
    /// 0 if it lacks nothing.
    #[serde(default)]
    pub oldest_unsent_flush_s: u64,
    /// Bytes that clients have written and the origin alone lacks.
    #[serde(default)]
    pub unsent_bytes: u64,
    /// Seconds since the oldest of them were durable here; 0 if the origin lacks nothing that a
    /// FLUSH has covered.
    #[serde(default)]
    pub unsent_age_s: u64,
    /// Whether another writer has opened the volume in the object store: nothing is written to it
    /// any more.
    #[serde(default)]
    pub fenced: bool,
    /// Which writer that is.
    #[serde(default)]
    pub fenced_by: Option<String>,
    /// Why its origin refused them when they were last tried, unless something was destaged since.
    #[serde(default)]
    pub origin_error: Option<String>,
    /// What became of the name of its origin's file, if its path leads to another file, or none.
    #[serde(default)]
    pub origin_astray: Option<String>,
    /// How its origin hangs, if it does.
    #[serde(default)]
    pub origin_hang: Option<HangReport>,
    /// `up`, or `away`: the connection to its origin's server is lost, and made again.
    #[serde(default)]
    pub origin_state: String,
    /// Seconds since the connection to its origin's server was lost; 0 while there is one.
    #[serde(default)]
    pub away_s: u64,
    /// Why there is no connection to its origin's server.
    #[serde(default)]
    pub away_why: Option<String>,
    /// How often the connection to its origin's server was lost and made again, since the start.
    #[serde(default)]
    pub reconnects: u64,
    /// The requests to the object store of its origin; null if its origin is none.
    #[serde(default)]
    pub store: Option<StoreReport>,
    /// Reads of its origin that failed, since the start.
    #[serde(default)]
    pub origin_read_errors: u64,
    /// Writes, zeroes, discards and flushes of its origin that failed, since the start.
    #[serde(default)]
    pub origin_write_errors: u64,
    /// Bytes that clients read from it, since the start.
    #[serde(default)]
    pub read_bytes: u64,
    /// Bytes that clients wrote to it, since the start; zeroes without a payload are not counted.
    #[serde(default)]
    pub written_bytes: u64,
    /// Reads that the cache answered alone, since the start.
    #[serde(default)]
    pub hit_requests: u64,
    /// Reads that needed the origin for some part, since the start.
    #[serde(default)]
    pub miss_requests: u64,
    /// Writes and write-zeroes, since the start.
    #[serde(default)]
    pub write_requests: u64,
    /// FLUSHes, since the start.
    #[serde(default)]
    pub flush_requests: u64,
    /// Bytes of the reads that the cache answered alone, since the start: what the origin was
    /// spared.
    #[serde(default)]
    pub hit_bytes: u64,
    /// Blocks of it that reclaim dropped, since the start.
    #[serde(default)]
    pub evicted_blocks: u64,
    /// Its blocks that were dropped although it had less than its smallest part.
    #[serde(default)]
    pub evicted_below_min: u64,
    /// Its blocks that were dropped as it had its largest part.
    #[serde(default)]
    pub evicted_at_max: u64,
    /// Bytes of its blocks that were written to the cache device, since the start: the wear.
    #[serde(default)]
    pub flash_written_bytes: u64,
    /// What it did in the last minute, hour and day.
    #[serde(default)]
    pub recent: RecentReport,
    /// How long its requests took in the last minute.
    #[serde(default)]
    pub latency_us: LatencyReport,
    /// How long they took since the start, in the order of
    /// [`Kind::ALL`](crate::latency::Kind::ALL): for the metrics, in this process alone.
    #[serde(skip)]
    pub durations: [Cumulative; 4],
}

impl VolumeReport {
    pub(super) fn new(origin: &OriginStatus, facts: VolumeFacts) -> Self {
        let VolumeFacts {
            id: _,
            name,
            origin_path,
            uris,
            read_only,
            shares,
            clients,
            origin_bytes,
            removing,
            durability,
            destage,
            policy,
            origin_error,
            origin_astray,
            origin_hang,
            origin_link,
            failed,
            durations,
            grown,
        } = facts;
        let (count, bytes) =
            (|kind: Kind| durations[kind as usize].since_start.count(), |kind: Kind| durations[kind as usize].bytes);
        let recent: [[Summary; 4]; 3] = [
            durations.each_ref().map(|it| it.minute),
            durations.each_ref().map(|it| it.hour),
            durations.each_ref().map(|it| it.day),
        ];
        let oldest_unsent_flush_s = origin.unsent_flush_ns.map_or(0, |ns| begun_seconds(Duration::from_nanos(ns)));
        Self {
            name,
            id: origin.id.0,
            origin_path,
            uris,
            read_only,
            share_min_bytes: shares.min_bytes,
            share_max_bytes: shares.max_bytes,
            weight: shares.weight,
            dirty_limit_bytes: shares.dirty_limit_bytes,
            dirty_age_ms: shares.dirty_age_ms,
            sequential_bypass_bytes: shares.bypass_bytes,
            read_around_bytes: shares.read_around_bytes,
            clients,
            removing,
            mode: origin.mode.name().to_owned(),
            durability,
            policy,
            size_bytes: origin.size_bytes,
            origin_bytes: origin_bytes.filter(|bytes| *bytes != origin.size_bytes),
            blocks_cached: origin.blocks_cached,
            blocks_dirty: origin.blocks_dirty,
            destage,
            oldest_unsent_flush_s,
            unsent_bytes: (origin.blocks_dirty * BLOCK_BYTES).max(origin_link.unsent_bytes),
            unsent_age_s: oldest_unsent_flush_s.max(origin_link.unsent_age_s),
            fenced: origin_link.fenced.is_some(),
            fenced_by: origin_link.fenced,
            origin_error,
            origin_astray,
            origin_hang,
            origin_state: if origin_link.away_s.is_some() { "away" } else { "up" }.to_owned(),
            away_s: origin_link.away_s.unwrap_or(0),
            away_why: origin_link.why,
            reconnects: origin_link.reconnects,
            store: origin_link.requests,
            origin_read_errors: failed.reads,
            origin_write_errors: failed.writes,
            read_bytes: bytes(Kind::Hit) + bytes(Kind::Miss),
            written_bytes: bytes(Kind::Write),
            hit_requests: count(Kind::Hit),
            miss_requests: count(Kind::Miss),
            write_requests: count(Kind::Write),
            flush_requests: count(Kind::Flush),
            hit_bytes: bytes(Kind::Hit),
            evicted_blocks: origin.evicted_blocks,
            evicted_below_min: origin.evicted_below_min,
            evicted_at_max: origin.evicted_at_max,
            flash_written_bytes: origin.logged_blocks * BLOCK_BYTES,
            latency_us: LatencyReport::new(&recent[0]),
            recent: RecentReport::new(&recent, &grown),
            durations: durations.map(|it| it.since_start),
        }
    }
}

/// Seconds that have begun since something happened: 0 would say that it never has.
pub(crate) fn begun_seconds(age: Duration) -> u64 {
    (age.as_secs() + u64::from(age.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_second_counts_as_one() {
        let ages = [0, 1, 999_999_999, 1_000_000_000, 1_000_000_001];
        assert_eq!(ages.map(|ns| begun_seconds(Duration::from_nanos(ns))), [1, 1, 1, 1, 2]);
    }
}
