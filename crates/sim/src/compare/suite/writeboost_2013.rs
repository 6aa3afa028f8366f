// SPDX-License-Identifier: MIT OR Apache-2.0
//! This suite puts dm-writeboost beside bcache, on an SSD and on a RAM disk (its author's mail to
//! dm-devel, 2013).
//!
//! fio 2.0.8, libaio, random writes of 4 KiB for 15 s, `norandommap`, (jobs, depth) as the tasks
//! are named; the raw device beside. What is compared is each system's rate by the raw device's.
//! The volume's size is not given: 64 GiB here; too little is written for anything to be destaged.

use flashfront_device::sim::{Fill, HddSpec, ModelSpec, SsdSpec};

use crate::calibrate::{HDD_BYTES, SSD_BYTES};
use crate::compare::task::{AsFio, Session, Suite, Task};
use crate::compare::under::under;
use crate::load::{Job, Pattern};
use crate::rival::Geometry;

pub(super) const SUITE: Suite = Suite {
    name: "writeboost-2013",
    summary: "random writes of 4 KiB by 1 and 4 jobs with 4 and 32 in flight, on an SSD and on a RAM disk",
    source: "Akira Hayakawa, mail to dm-devel (2013)",
    systems: &[
        under("flashfront", "flashfront"),
        under("dm-writeboost", "dm-writeboost"),
        under("bcache", "bcache"),
        under("ssd", "ssd"),
    ],
    by_iops: false,
    published: include_str!("../published/writeboost-2013.csv"),
    sessions,
};

const GIB: u64 = 1 << 30;
const TIME_NS: u64 = 15_000_000_000;
/// The RAM disk (a loop device on tmpfs): 4827.5 MB/s in requests of 512 KiB, 3187.7 in such of 4
/// KiB, both published.
const RAM: SsdSpec = SsdSpec {
    units: 32,
    read_ns: 1_000,
    program_ns: 1_000,
    read_command_ns: 1_000,
    write_command_ns: 1_000,
    link_command_ns: 416,
    link_read_bytes_per_s: 5_062_000_000,
    link_write_bytes_per_s: 5_062_000_000,
    program_bytes_per_s: 20_000_000_000,
    buffer_bytes: 1 << 30,
    flush_ns: 1_000,
    protected: true,
    fill: Fill::Clean,
    random_cost: 1.0,
    sequential_cost: 1.0,
    reserve_bytes: 0,
};

fn sessions() -> Vec<Session> {
    let origin = ModelSpec::Hdd(HddSpec::default());
    let ssd = (ModelSpec::Ssd(SsdSpec::samsung_840_pro()), SSD_BYTES);
    // A file of 16 GB on tmpfs.
    let ram = (ModelSpec::Ssd(RAM), 16_000_000_000);
    let grid = [
        ("SSD 1x4", ssd, 1, 4),
        ("SSD 1x32", ssd, 1, 32),
        ("SSD 4x4", ssd, 4, 4),
        ("SSD 4x32", ssd, 4, 32),
        ("RAM 1x32", ram, 1, 32),
        ("RAM 4x32", ram, 4, 32),
    ];
    let session = |(name, (cache, cache_bytes), jobs, depth): (&str, (ModelSpec, u64), u32, u32)| {
        let job = Job {
            name: name.to_owned(),
            pattern: Pattern::Random,
            read_percent: 0,
            // On the RAM disk more was written than it holds, at full speed: a volume so small that
            // what the ring reuses is overwritten.
            span_bytes: if cache_bytes < 64 * GIB { 4 * GIB } else { 64 * GIB },
            time_ns: TIME_NS,
            depth: jobs * depth,
            ..Job::default()
        };
        let task = Task {
            name: name.to_owned(),
            jobs: vec![job],
            idle_before_ns: 0,
            measured_since: Some(0),
            fio: AsFio { clones: jobs, norandommap: true },
        };
        Session { geometry: Geometry { origin, origin_bytes: HDD_BYTES, cache, cache_bytes }, tasks: vec![task] }
    };
    grid.into_iter().map(session).collect()
}
