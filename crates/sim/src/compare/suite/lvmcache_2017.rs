// SPDX-License-Identifier: MIT OR Apache-2.0
//! This suite asks whether a cache full of junk can learn: lvmcache before and since its mending in
//! Linux 4.12, and bcache (BitFolk's posts, 2017).
//!
//! fio: two jobs of random reads of 4 KiB after zipf:1.2, 8 in flight each, of 2 GiB each, so that
//! all of it fits into the cache of 4 GiB. An empty cache; and one full of junk, after 30 minutes,
//! 12 and 24 hours. The junk here: 8 GiB of other data, read until the cache is full (the posts:
//! runs before). The SSD was a RAID-10 of two SM863, here an 850 PRO (its cable decides, as theirs
//! did); the disks a RAID-1 of two drives of 5,400 a minute, here the WD Re, which is faster:
//! figures that hang on the disks are not to be compared.
//!
//! LVM keeps the metadata beside the 4 GiB, so the device has room for both, and all systems have
//! the same one. With 8 MiB less the data don't quite fit, and the model of 4.12 is in two minds:
//! once the hottest unit is thrown out, some read of it is always under way, so that its promotion,
//! which waits for a moment without, never begins (11,187 or 79,373 requests a second, by chance).

use flashfront_device::sim::{Fill, HddSpec, ModelSpec, SsdSpec};

use crate::calibrate::HDD_BYTES;
use crate::compare::task::{AsFio, Session, Suite, Task};
use crate::compare::under::under;
use crate::load::{Job, Pattern};
use crate::rival::Geometry;

pub(super) const SUITE: Suite = Suite {
    name: "lvmcache-2017",
    summary: "zipf reads that would fit: an empty cache, and one full of junk, for 30 minutes, 12 and 24 hours",
    source: "BitFolk, posts on lvmcache and bcache (2017)",
    systems: &[
        under("flashfront", "flashfront"),
        under("lvmcache 4.11", "dm-cache-smq-4.11"),
        under("lvmcache 4.12", "dm-cache-smq"),
        under("bcache", "bcache"),
        under("bcache 4 MiB", "bcache-4m"),
        under("ssd", "ssd"),
        under("hdd", "hdd"),
    ],
    by_iops: true,
    published: include_str!("../published/lvmcache-2017.csv"),
    sessions,
};

const GIB: u64 = 1 << 30;
/// Of LVM's pool of 4 GiB, the least that it takes.
const LVM_METADATA_BYTES: u64 = 8 << 20;
const JUNK_BYTES: u64 = 8 * GIB;
const MINUTE_NS: u64 = 60_000_000_000;

/// The cache and its volume.
pub(super) fn geometry() -> Geometry {
    Geometry {
        origin: ModelSpec::Hdd(HddSpec::default()),
        origin_bytes: HDD_BYTES,
        cache: ModelSpec::Ssd(SsdSpec::samsung_850_pro(Fill::Clean)),
        cache_bytes: 4 * GIB + LVM_METADATA_BYTES,
    }
}

/// Two jobs of half of the data each.
pub(super) fn zipf(offset_bytes: u64, data_bytes: u64, time_ns: u64, seed: u64) -> Vec<Job> {
    let job = |nth: u64| Job {
        name: format!("job{}", nth + 1),
        pattern: Pattern::Zipf(1.2),
        offset_bytes: offset_bytes + nth * data_bytes / 2,
        span_bytes: data_bytes / 2,
        time_ns,
        depth: 8,
        settles: true,
        seed: seed + nth,
        ..Job::default()
    };
    (0..2).map(job).collect()
}

/// What was cached before, elsewhere on the volume: read three times in one piece, then by zipf for
/// a while. Twice what the cache holds: while there is room smq takes in only regions of the upper
/// half of levels, and a cache that isn't full takes in the data under test at once.
fn junk() -> Vec<Task> {
    let pass = Job {
        name: "junk".to_owned(),
        block_bytes: 64 << 10,
        offset_bytes: 16 * GIB,
        span_bytes: JUNK_BYTES,
        total_bytes: 3 * JUNK_BYTES,
        depth: 8,
        ..Job::default()
    };
    let prepare = |name: &str, jobs| Task {
        name: name.to_owned(),
        jobs,
        idle_before_ns: 0,
        measured_since: None,
        fio: AsFio::SAME,
    };
    vec![prepare("junk, in order", vec![pass]), prepare("junk, by zipf", zipf(16 * GIB, JUNK_BYTES, 30 * MINUTE_NS, 7))]
}

fn sessions() -> Vec<Session> {
    let task = |name: &str, minutes, since| Task {
        name: name.to_owned(),
        jobs: zipf(GIB, 4 * GIB, minutes * MINUTE_NS, 1),
        idle_before_ns: 0,
        measured_since: Some(since),
        fio: AsFio::SAME,
    };
    let empty = Session { geometry: geometry(), tasks: vec![task("empty 30 min", 30, 0)] };
    let mut full = junk();
    // The later figures count from the beginning, as the published ones, of runs of their own, do.
    let first = full.len();
    full.extend([
        task("full 30 min", 30, first),
        task("full 12 h", 12 * 60 - 30, first),
        task("full 24 h", 12 * 60, first),
    ]);
    vec![empty, Session { geometry: geometry(), tasks: full }]
}
