// SPDX-License-Identifier: MIT OR Apache-2.0
//! This suite measures lvmcache with a cache of 4 GiB and data of 1 to 48 GiB. The source is
//! BitFolk, "A slightly more realistic look at lvmcache", 2017.
//!
//! The jobs and devices of the suite `lvmcache-2017`, 30 minutes for each size, the cache filled by
//! the same job before.

use super::lvmcache_2017::{geometry, zipf};
use crate::compare::task::{AsFio, Session, Suite, Task};
use crate::compare::under::under;
use crate::load::Job;

pub(super) const SUITE: Suite = Suite {
    name: "cache-size-2017",
    summary: "zipf reads of 1 to 48 GiB of data with a cache of 4 GiB",
    source: "BitFolk, posts on lvmcache and bcache (2017)",
    systems: &[
        under("flashfront", "flashfront"),
        under("lvmcache 4.12", "dm-cache-smq"),
        under("bcache", "bcache"),
        under("ssd", "ssd"),
        under("hdd", "hdd"),
    ],
    by_iops: true,
    published: include_str!("../published/cache-size-2017.csv"),
    sessions,
};

const GIB: u64 = 1 << 30;
const MINUTE_NS: u64 = 60_000_000_000;

fn sessions() -> Vec<Session> {
    let session = |gib: u64| {
        let task = |name: String, minutes, measured_since: Option<usize>| Task {
            name,
            // What is measured isn't the same requests once more.
            jobs: zipf(GIB, gib * GIB, minutes * MINUTE_NS, 1)
                .into_iter()
                .map(|job| Job { sequence: u64::from(measured_since.is_some()), ..job })
                .collect(),
            idle_before_ns: 0,
            measured_since,
            fio: AsFio::SAME,
        };
        let tasks = vec![task(format!("{gib} GiB, before"), 20, None), task(format!("{gib} GiB"), 30, Some(1))];
        Session { geometry: geometry(), tasks }
    };
    [1, 2, 4, 8, 16, 32, 48].map(session).into()
}
