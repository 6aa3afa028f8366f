// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of `status --json`: one flat, stable JSON object about a running daemon.
//!
//! It is made from the engine's snapshot and what only the daemon knows ([`Facts`]). Names here are
//! a contract with scripts: keys are added, never renamed or removed (test: `keys_are_a_contract`).
//! Units come last in a name; a number without a unit is a count.

use flashfront_device::real::MapFileFigures;
use flashfront_engine::{BLOCK_SECTORS, Counters, Key, MirrorStatus, Mode, OriginId, Status};
use serde::{Deserialize, Serialize};

use crate::latency::Summary;

mod counters;
mod latency;
mod map_file;
mod store;
#[cfg(test)]
mod tests;
mod volume;
mod what_if;
mod window;

pub use counters::CounterReport;
pub use latency::{KindReport, LatencyReport, Micros};
pub use map_file::MapFileReport;
pub use store::{AskedReport, StoreReport};
pub(crate) use volume::begun_seconds;
pub use volume::{LinkReport, VolumeFacts, VolumeReport};
pub use what_if::WhatIfReport;
pub use window::{Grown, RecentReport, WindowReport};

/// Writes a number with its noun, as in "1 block", "2 blocks".
pub(crate) fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Facts that the daemon knows and the engine does not.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// How I/O is done: `io_uring` or `threads`.
    pub backend: String,
    /// The volumes, sorted by their origins.
    pub volumes: Vec<VolumeFacts>,
    /// Seconds since the daemon was ready.
    pub uptime_s: u64,
    /// Clients connected now.
    pub clients: u64,
    /// Clients so far that were turned away, since all places were taken.
    pub clients_refused: u64,
    /// Threads that carry clients' bytes, with the engine's.
    pub threads: u64,
    /// Threads that do lanes' work, with the engine's.
    pub lane_threads: u64,
    /// Independent logs of the cache.
    pub lanes: u64,
    /// Bytes of buffers the daemon holds for clients' requests.
    pub request_buffer_bytes: u64,
    /// The paths of the cache's members, by their numbers.
    pub members: [Option<String>; 2],
    /// The member that holds everything.
    pub lead: u8,
    /// The device that has left the cache, until it is closed.
    pub leaving: Option<String>,
    /// Whether the cache is being replayed and requests wait.
    pub opening: bool,
    /// Whether there is no cache device.
    pub without_cache: bool,
    /// Whether the cache was detached while the volumes were served.
    pub detached: bool,
    /// How the members of the cache hang, by their numbers.
    pub member_hangs: [Option<HangReport>; 2],
    /// The requests of all volumes in the last minute, hour and day.
    pub recent: [[Summary; 4]; 3],
    /// What was evicted and written to flash meanwhile.
    pub grown: [Grown; 3],
    /// The file with pages of maps.
    pub map_file: Option<MapFileFigures>,
}

/// A device that hangs: it has I/O that it did not answer in time
/// ([`crate::config::Config::device_timeout`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HangReport {
    /// Seconds since it was given the oldest of these I/Os.
    pub silent_s: u64,
    /// How many have not ended. All new ones fail until these have.
    pub ios: u64,
    /// Bytes of buffers that they keep.
    pub buffer_bytes: u64,
}

/// A cache device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheDeviceReport {
    /// The path by which it was opened.
    pub path: String,
    /// `lead` (holds everything), `mirror` (holds what is dirty), `filling`, or `left out`
    /// (failed).
    pub role: String,
    /// How it hangs, if it does.
    #[serde(default)]
    pub hang: Option<HangReport>,
}

/// A run of blocks whose only copy is corrupt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostRange {
    /// The name of the volume.
    pub origin: String,
    /// First sector (512 bytes) on the origin.
    pub lba: u64,
    /// Length in blocks (4 KiB).
    pub blocks: u64,
}

/// Everything `status` knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusReport {
    /// The daemon's version.
    pub version: String,
    /// The id of the daemon's process.
    pub pid: u32,
    /// Seconds since it was ready.
    pub uptime_s: u64,
    /// How I/O is done: `io_uring` or `threads`.
    pub backend: String,
    /// The mode of all volumes, or `mixed`.
    pub mode: String,
    /// Whether the cache is being replayed and requests wait.
    pub opening: bool,
    /// Whether a drain is going on.
    pub draining: bool,
    /// Whether the cache device failed, so that nothing new is trusted to it.
    #[serde(default)]
    pub cache_failed: bool,
    /// Whether the origins are served without their cache. All that is about a cache is 0 then.
    #[serde(default)]
    pub without_cache: bool,
    /// Whether the cache was detached while they were served, so that the origins lack nothing.
    #[serde(default)]
    pub detached: bool,
    /// The state of the mirror. `none`; `whole`: both cache devices hold all dirty data; `syncing`:
    /// a new one is being filled; `alone`: one failed or was left out.
    #[serde(default)]
    pub mirror: String,
    /// The path of the cache device that holds everything; null without a cache.
    #[serde(default)]
    pub cache_path: Option<String>,
    /// The path of its mirror, while that is part of the cache or is being filled.
    #[serde(default)]
    pub mirror_path: Option<String>,
    /// The cache devices that the daemon has open.
    #[serde(default)]
    pub cache_devices: Vec<CacheDeviceReport>,
    /// The path of the cache device that leaves when all is copied, or has just left and is being
    /// closed (`cache replace`, `mirror remove`).
    #[serde(default)]
    pub leaving_path: Option<String>,
    /// The path of the cache device that leads when all is copied (`mirror promote`).
    #[serde(default)]
    pub promoting_path: Option<String>,
    /// The number of blocks copied to the mirror that is being filled. They are the dirty ones,
    /// and the clean ones if the other device is to leave.
    #[serde(default)]
    pub mirror_copied_blocks: u64,
    /// The number of blocks to be copied.
    #[serde(default)]
    pub mirror_of_blocks: u64,
    /// Dirty blocks that only one of both cache devices has, as far as is known. They could not be
    /// read while the other one was filled.
    #[serde(default)]
    pub mirror_lacks_blocks: u64,
    /// Blocks that are left in the end of the cache, while that is being emptied so that the cache
    /// can shrink.
    #[serde(default)]
    pub left_in_end_blocks: Option<u64>,
    /// Blocks in the cache.
    pub blocks_cached: u64,
    /// Dirty ones among them.
    pub blocks_dirty: u64,
    /// The most that may be dirty.
    pub dirty_limit_blocks: u64,
    /// Blocks the log has room for.
    pub capacity_blocks: u64,
    /// Segments ready to be written.
    pub segments_free: u64,
    /// The number of segments.
    pub segments: u64,
    /// The logs that they are divided among.
    #[serde(default)]
    pub lanes: u64,
    /// The counters.
    #[serde(flatten)]
    pub counters: CounterReport,
    /// Blocks whose only copy is corrupt.
    pub lost_blocks: u64,
    /// The places of these blocks.
    pub lost: Vec<LostRange>,
    /// Resident memory of the process, without what it shares with guests.
    pub rss_bytes: u64,
    /// Bytes of index, dirty set and ghost.
    pub index_bytes: u64,
    /// Buffer bytes the engine holds.
    pub buffer_bytes: u64,
    /// Bytes of the RAM front's copies.
    pub ram_front_bytes: u64,
    /// Bytes that may be written to the cache device in a day; 0 if that has no limit.
    #[serde(default)]
    pub flash_writes_per_day_bytes: u64,
    /// Bytes that were saved up of the budget when the last request came, a quarter of a day's at
    /// most. From 0 down no block is cached because it was read.
    #[serde(default)]
    pub flash_writes_left_bytes: i64,
    /// Bytes of blocks that wait in RAM to be seen again.
    #[serde(default)]
    pub window_bytes: u64,
    /// Bytes of the models of caches of other sizes.
    #[serde(default)]
    pub shadow_bytes: u64,
    /// Figures of a cache of half, the same, twice and four times the size; empty while they are
    /// not known.
    #[serde(default)]
    pub what_if: Vec<WhatIfReport>,
    /// Bytes of buffers held for clients' requests.
    pub request_buffer_bytes: u64,
    /// Requests accepted and not yet answered.
    pub requests_in_flight: u64,
    /// Clients connected now.
    pub clients: u64,
    /// Clients so far that were turned away, since all places were taken.
    #[serde(default)]
    pub clients_refused: u64,
    /// Threads: one for the engine, and the rest for the clients' bytes; 0: a daemon that doesn't
    /// say.
    #[serde(default)]
    pub threads: u64,
    /// Threads that do lanes' work, the engine's among them; 0: a daemon that doesn't say.
    #[serde(default)]
    pub lane_threads: u64,
    /// What all volumes did in the last minute, hour and day.
    #[serde(default)]
    pub recent: RecentReport,
    /// The file with pages of maps of volumes in object stores; `None` if none is wanted.
    #[serde(default)]
    pub map_file: Option<MapFileReport>,
    /// The volumes.
    pub volumes: Vec<VolumeReport>,
}

impl StatusReport {
    /// The report of this moment.
    #[must_use]
    pub fn new(status: &Status, facts: &Facts) -> Self {
        let uncached = facts.without_cache.then(|| uncached(status));
        let status = uncached.as_ref().unwrap_or(status);
        let volumes = status.origins.iter().map(|origin| VolumeReport::new(origin, volume_facts(facts, origin.id)));
        let (mirror, other, copied, of) = match status.mirror {
            MirrorStatus::None => ("none", "left out", 0, 0),
            MirrorStatus::Whole => {
                let (copied, of) = status.succeeding.or(status.promoting).unwrap_or_default();
                ("whole", "mirror", copied, of)
            }
            MirrorStatus::Alone { .. } => ("alone", "left out", 0, 0),
            MirrorStatus::Syncing { copied, of } => ("syncing", "filling", copied, of),
        };
        let lead = usize::from(facts.lead);
        let leaving = status.succeeding.and_then(|_| facts.members[lead].clone());
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: facts.uptime_s,
            backend: facts.backend.clone(),
            mode: common_mode(status.origins.iter().map(|origin| origin.mode)),
            opening: facts.opening,
            draining: status.draining,
            cache_failed: status.cache_failed,
            without_cache: facts.without_cache,
            detached: facts.detached,
            mirror: mirror.to_owned(),
            cache_path: facts.members[lead].clone(),
            mirror_path: facts.members[1 - lead].clone().filter(|_| matches!(mirror, "whole" | "syncing")),
            cache_devices: cache_devices(facts, other),
            leaving_path: leaving.or_else(|| facts.leaving.clone()),
            promoting_path: status.promoting.and_then(|_| facts.members[1 - lead].clone()),
            mirror_copied_blocks: copied,
            mirror_of_blocks: of,
            mirror_lacks_blocks: status.mirror_lacks_blocks,
            left_in_end_blocks: status.left_in_end,
            blocks_cached: status.blocks_cached,
            blocks_dirty: status.blocks_dirty,
            dirty_limit_blocks: status.dirty_limit_blocks,
            capacity_blocks: status.capacity_blocks,
            segments_free: status.segments_free,
            segments: status.segments,
            lanes: facts.lanes,
            counters: CounterReport::from(&status.counters),
            lost_blocks: status.lost.len() as u64,
            lost: lost_ranges(&status.lost, |id| volume_facts(facts, id).name),
            rss_bytes: rss_bytes(),
            index_bytes: status.index_bytes,
            buffer_bytes: status.buffer_bytes,
            ram_front_bytes: status.ram_front_bytes,
            flash_writes_per_day_bytes: status.flash_writes_per_day_bytes.unwrap_or(0),
            flash_writes_left_bytes: status.flash_writes_left_bytes,
            window_bytes: status.window_bytes,
            shadow_bytes: status.shadow_bytes,
            what_if: status.what_if.iter().map(WhatIfReport::from).collect(),
            request_buffer_bytes: facts.request_buffer_bytes,
            requests_in_flight: status.requests_in_flight,
            clients: facts.clients,
            clients_refused: facts.clients_refused,
            threads: facts.threads,
            lane_threads: facts.lane_threads,
            recent: RecentReport::new(&facts.recent, &facts.grown),
            map_file: facts.map_file.as_ref().map(MapFileReport::from),
            volumes: volumes.collect(),
        }
    }

    /// A count at another size as a multiple of the present one; `None` if the present one is 0.
    #[must_use]
    pub fn times_present(&self, it: &WhatIfReport, count: fn(&WhatIfReport) -> u64) -> Option<f64> {
        let present = self.what_if.iter().find(|it| it.size_percent == 100)?;
        share(count(it), count(present))
    }

    /// Share of the blocks read that came from the cache, 0 to 1; `None` before the first read.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        share(self.counters.read_hits, self.counters.read_hits + self.counters.read_misses)
    }
}

/// The status without what is about a cache: that of the engine is empty, and in RAM.
fn uncached(status: &Status) -> Status {
    let mut it = status.clone();
    (it.capacity_blocks, it.dirty_limit_blocks, it.segments, it.segments_free) = (0, 0, 0, 0);
    (it.shadow_bytes, it.what_if) = (0, Vec::new());
    (it.flash_writes_per_day_bytes, it.flash_writes_left_bytes) = (None, 0);
    it.counters = Counters {
        cache_reads: 0,
        cache_reads_bytes: 0,
        cache_writes: 0,
        cache_writes_bytes: 0,
        cache_flushes: 0,
        commits: 0,
        checkpoints: 0,
        ..it.counters
    };
    it
}

fn cache_devices(facts: &Facts, other: &str) -> Vec<CacheDeviceReport> {
    let lead = usize::from(facts.lead);
    let devices = [(lead, "lead"), (1 - lead, other)];
    let known = |(number, role): (usize, &str)| {
        let path = facts.members[number].clone()?;
        Some(CacheDeviceReport { path, role: role.to_owned(), hang: facts.member_hangs[number] })
    };
    devices.into_iter().filter_map(known).collect()
}

/// Returns the facts of an origin's volume: its name at least.
fn volume_facts(facts: &Facts, id: OriginId) -> VolumeFacts {
    let known = facts.volumes.binary_search_by_key(&id, |volume| volume.id).map(|at| facts.volumes[at].clone());
    known.unwrap_or_else(|_| VolumeFacts { id, name: format!("origin-{}", id.0), ..VolumeFacts::default() })
}

fn common_mode(mut modes: impl Iterator<Item = Mode>) -> String {
    let Some(first) = modes.next() else {
        return "none".to_owned();
    };
    if modes.all(|mode| mode == first) { first.name().to_owned() } else { "mixed".to_owned() }
}

/// Neighbouring blocks become one range, whatever order they come in.
pub(crate) fn lost_ranges(lost: &[Key], name: impl Fn(OriginId) -> String) -> Vec<LostRange> {
    let mut keys = lost.to_vec();
    keys.sort_unstable();
    keys.dedup();
    let mut ranges: Vec<(Key, u64)> = Vec::new();
    for key in keys {
        match ranges.last_mut() {
            Some((first, blocks)) if first.origin == key.origin && first.block.0 + *blocks == key.block.0 => {
                *blocks += 1;
            }
            _ => ranges.push((key, 1)),
        }
    }
    ranges
        .into_iter()
        .map(|(first, blocks)| LostRange { origin: name(first.origin), lba: first.block.0 * BLOCK_SECTORS, blocks })
        .collect()
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Resident memory of this process, without what it shares with others; 0 where /proc is not
/// mounted.
///
/// A guest's memory is the guest's, and mapped here as far as requests went through it. With a
/// guest of 1 GiB 1012 MiB were told for 13.
#[must_use]
pub fn rss_bytes() -> u64 {
    std::fs::read_to_string("/proc/self/status").ok().and_then(|text| own_kib(&text)).map_or(0, |kib| kib * 1024)
}

/// Returns VmRSS of /proc/self/status without RssShmem, in KiB; it needs no page size, unlike
/// statm.
fn own_kib(status: &str) -> Option<u64> {
    let kib = |name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some(kib("RssAnon:")? + kib("RssFile:")?)
}
