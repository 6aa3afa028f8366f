// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of `status` about one volume.

use flashfront_engine::OriginStatus;
use serde::{Deserialize, Serialize};

use super::{HangReport, LatencyReport};
use crate::latency::{Cumulative, Durations, Kind};
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
}

/// Facts of a volume that the daemon knows and the engine does not.
#[derive(Clone, Debug, Default)]
pub struct VolumeFacts {
    /// The name of the volume.
    pub name: String,
    /// The path of its origin.
    pub origin_path: String,
    /// Every address at which clients reach it.
    pub uris: Vec<String>,
    /// The name of the durability.
    pub durability: String,
    /// The name of the policy.
    pub policy: String,
    /// Why its origin refuses dirty data.
    pub origin_error: Option<String>,
    /// How its origin hangs.
    pub origin_hang: Option<HangReport>,
    /// The link to its origin's server.
    pub origin_link: LinkReport,
    /// I/Os of its origin that failed.
    pub failed: OriginErrors,
    /// How long its requests take, in the order of [`Kind::ALL`](crate::latency::Kind::ALL).
    pub durations: [Durations; 4],
}

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeReport {
    /// The name of the volume.
    pub name: String,
    /// The path of its origin.
    #[serde(default)]
    pub origin_path: String,
    /// Every address at which clients reach it.
    #[serde(default)]
    pub uris: Vec<String>,
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
    /// The dirty blocks of the volume.
    pub blocks_dirty: u64,
    /// Why its origin refused them when they were last tried, unless something was destaged since.
    #[serde(default)]
    pub origin_error: Option<String>,
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
            name,
            origin_path,
            uris,
            durability,
            policy,
            origin_error,
            origin_hang,
            origin_link,
            failed,
            durations,
        } = facts;
        Self {
            name,
            origin_path,
            uris,
            mode: origin.mode.name().to_owned(),
            durability,
            policy,
            size_bytes: origin.size_bytes,
            blocks_dirty: origin.blocks_dirty,
            origin_error,
            origin_hang,
            origin_state: if origin_link.away_s.is_some() { "away" } else { "up" }.to_owned(),
            away_s: origin_link.away_s.unwrap_or(0),
            away_why: origin_link.why,
            reconnects: origin_link.reconnects,
            origin_read_errors: failed.reads,
            origin_write_errors: failed.writes,
            read_bytes: durations[Kind::Hit as usize].bytes + durations[Kind::Miss as usize].bytes,
            written_bytes: durations[Kind::Write as usize].bytes,
            latency_us: LatencyReport::new(&durations),
            durations: durations.map(|it| it.since_start),
        }
    }
}
