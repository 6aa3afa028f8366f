// SPDX-License-Identifier: MIT OR Apache-2.0
//! This suite asks whether a cache full of junk can learn. The caches are bcache, and lvmcache
//! before and after its repair in Linux 4.12 (BitFolk's posts, 2017).
//!
//! The load is two fio jobs of random reads of 4 KiB after zipf:1.2. Each job has 8 reads in flight
//! and 2 GiB of data, so that all data fits into the cache of 4 GiB. The cache is empty in one
//! session. In the other it is full of junk, and figures are taken after 30 minutes, 12 and 24
//! hours. The junk here is 8 GiB of other data, read until the cache is full; in the posts it came
//! from earlier runs.
//!
//! The SSD was a RAID-10 of two SM863; here it is an 850 PRO. The cable decides in both cases. The
//! disks were a RAID-1 of two drives of 5,400 a minute; here it is the WD Re, which is faster.
//! Figures that depend on the disks must not be compared.
//!
//! LVM keeps the metadata beside the 4 GiB. So the device has room for both, and all systems have
//! the same device. With 8 MiB less the data don't quite fit, and the model of 4.12 goes one of two
//! ways. A promotion waits for a moment without reads of its unit. Once the hottest unit is thrown
//! out, some read of it is always under way, and its promotion never begins. By chance this gave
//! 11,187 or 79,373 requests a second.

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
/// LVM's metadata for the pool of 4 GiB; LVM takes no less.
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

/// Fills the cache with data from elsewhere on the volume. They are read three times in order, then
/// by zipf for 30 minutes.
///
/// The junk is twice what the cache holds, because the cache must be full before the test. A cache
/// that isn't takes in the data under test at once. And while there is room, smq takes in only
/// regions of the upper half of levels.
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
    // The later figures count from the beginning: the published ones are of runs of their own.
    let first = full.len();
    full.extend([
        task("full 30 min", 30, first),
        task("full 12 h", 12 * 60 - 30, first),
        task("full 24 h", 12 * 60, first),
    ]);
    vec![empty, Session { geometry: geometry(), tasks: full }]
}
