// SPDX-License-Identifier: MIT OR Apache-2.0
//! This suite has 22 fio runs on bcache, dm-cache, flashcache and gflash. They follow each other on
//! the same cache (geomflash, test_cache, 2015).
//!
//! The runs used fio 2.1.11 with libaio. FreeBSD, where gflash ran, had sync and 32 threads
//! instead. A random run goes to each place of [offset, filesize) at most once; with threads, each
//! thread does. All systems were set to cache requests of any length.
//!
//! Between two runs the scripts printed counters, which is half a second here. Two things say that
//! it was no longer. The dates in a script's log span what its runs took, to the minute. Around
//! each of the tasks 14 and 15, in which gflash doesn't destage, it destaged 84 MiB of its dirty
//! data. At the disk's speed that takes half a second.

use flashfront_device::sim::{Fill, HddSpec, ModelSpec, SsdSpec};

use crate::calibrate::{HDD_BYTES, SSD_BYTES};
use crate::compare::task::{AsFio, Session, Suite, Task};
use crate::compare::under::{by_threads, under};
use crate::load::{Job, Pattern};
use crate::rival::Geometry;

pub(super) const SUITE: Suite = Suite {
    name: "caches-2015",
    summary: "21 tasks (22 runs) of reads, writes, overload and a database's mix; a 256 GB SSD before a disk of 4 TB",
    source: "geomflash, test_cache (2015)",
    systems: &[
        under("flashfront", "flashfront"),
        under("bcache", "bcache"),
        under("dm-cache", "dm-cache-mq"),
        under("flashcache", "flashcache"),
        by_threads("gflash", "gflash"),
        under("ssd", "ssd"),
        under("hdd", "hdd"),
    ],
    by_iops: false,
    published: include_str!("../published/caches-2015.csv"),
    sessions,
};

const GIB: u64 = 1 << 30;
const IDLE_NS: u64 = 500_000_000;

#[derive(Clone, Copy)]
enum Kind {
    Read,
    Write,
    RandomRead,
    RandomWrite,
    Mix,
}

/// A run's task, kind, KiB of a request, depth, GiB in all, offset and filesize (GiB).
type Run = (&'static str, Kind, u64, u32, u64, u64, u64);
const RUNS: [Run; 22] = [
    ("1", Kind::Read, 128, 1, 8, 1, 9),
    ("2", Kind::Read, 128, 1, 8, 1, 9),
    ("3", Kind::Read, 128, 1, 8, 1, 9),
    ("4", Kind::RandomRead, 4, 1, 1, 1, 9),
    ("5", Kind::RandomRead, 4, 32, 4, 1, 9),
    ("6", Kind::Write, 128, 1, 4, 25, 29),
    ("7", Kind::Write, 128, 1, 64, 29, 93),
    ("8", Kind::Write, 128, 1, 64, 93, 157),
    ("8b", Kind::Write, 128, 1, 64, 157, 221),
    ("9", Kind::Write, 128, 1, 64, 221, 285),
    ("10", Kind::Write, 128, 1, 64, 285, 349),
    ("11", Kind::Write, 128, 1, 64, 349, 413),
    ("12", Kind::Write, 128, 1, 64, 413, 477),
    ("13", Kind::Write, 128, 1, 64, 477, 541),
    ("14", Kind::Read, 128, 1, 8, 1, 9),
    ("15", Kind::Read, 128, 1, 8, 1, 9),
    ("16", Kind::Read, 128, 1, 8, 1, 9),
    ("17", Kind::RandomRead, 4, 1, 1, 1, 9),
    ("18", Kind::RandomRead, 4, 32, 4, 1, 9),
    ("19", Kind::Mix, 8, 32, 4, 1, 9),
    ("20", Kind::RandomWrite, 4, 1, 1, 9, 17),
    ("21", Kind::RandomWrite, 4, 32, 4, 17, 25),
];

fn sessions() -> Vec<Session> {
    let geometry = Geometry {
        origin: ModelSpec::Hdd(HddSpec::default()),
        origin_bytes: HDD_BYTES,
        cache: ModelSpec::Ssd(SsdSpec::samsung_850_pro(Fill::Clean)),
        cache_bytes: SSD_BYTES,
    };
    let task = |(nth, (name, kind, kib, depth, gib, from, to)): (usize, Run)| {
        let job = Job {
            name: name.to_owned(),
            pattern: if matches!(kind, Kind::Read | Kind::Write) { Pattern::Sequential } else { Pattern::Random },
            read_percent: match kind {
                Kind::Read | Kind::RandomRead => 100,
                Kind::Write | Kind::RandomWrite => 0,
                Kind::Mix => 67,
            },
            block_bytes: kib << 10,
            offset_bytes: from * GIB,
            span_bytes: (to - from) * GIB,
            total_bytes: gib * GIB,
            depth,
            // Like fio without randrepeat=0: runs of the same kind go to the same places.
            seed: 1,
            ..Job::default()
        };
        Task {
            name: name.to_owned(),
            jobs: vec![job],
            idle_before_ns: IDLE_NS,
            measured_since: Some(nth),
            fio: AsFio::SAME,
        }
    };
    vec![Session { geometry, tasks: RUNS.into_iter().enumerate().map(task).collect() }]
}
