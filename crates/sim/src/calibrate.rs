// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs each published measurement of a bare device on the model of that device. Puts the two
//! figures side by side.
//!
//! The published figures are of three kinds:
//!
//! - The raw-device rows of the 2015 comparison of bcache, dm-cache, flashcache and gflash. They
//!   are geomflash's `test_cache` logs: WD Re 4 TB and Samsung 850 PRO 256 GB, fio 2.1.11 libaio on
//!   Linux 3.16.
//! - The baselines of the dm-writeboost mail of 2013 (Samsung 840 PRO).
//! - The one baseline with a figure of the lvmcache posts of 2017. The device is two Samsung SM863
//!   as RAID-10, and here one 850 PRO, since the cable decides.

use flashfront_device::sim::{Fill, HddSpec, ModelSpec, SsdSpec};
use flashfront_engine::Time;

use crate::load::{Job, Pattern, run};
use crate::system::Bare;

const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;
/// The time between two reports of progress, in virtual time.
const INTERVAL_NS: u64 = 1_000_000_000;
/// WD Re 4 TB.
pub const HDD_BYTES: u64 = 7_814_037_168 * 512;
/// Samsung 850 PRO 256 GB.
pub const SSD_BYTES: u64 = 500_118_192 * 512;

/// A row: a published measurement, and the figure of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The device and its state.
    pub device: &'static str,
    /// fio's job in short: pattern, block, depth, place.
    pub job: String,
    /// The published figure: KiB/s of reads and writes together.
    pub published: f64,
    /// The figure of the model.
    pub simulated: f64,
}

/// Jobs that ran one after the other on a device.
struct Series {
    device: &'static str,
    spec: ModelSpec,
    size_bytes: u64,
    jobs: Vec<(Job, f64)>,
}

#[expect(clippy::too_many_arguments, reason = "one line of the published table; a struct would hide it")]
/// A job of fio and its published figure. The arguments are percent of reads, KiB of a block,
/// depth, first and end GiB, GiB in all, KiB/s.
fn fio(random: bool, reads: u32, kib: u64, depth: u32, from: u64, to: u64, total: u64, kib_per_s: f64) -> (Job, f64) {
    let kind = match (random, reads) {
        (false, 100) => "read",
        (false, _) => "write",
        (true, 100) => "randread",
        (true, 0) => "randwrite",
        (true, _) => "randrw 67/33",
    };
    let job = Job {
        name: format!("{kind} {kib}k QD{depth} {total}g at {from}g"),
        pattern: if random { Pattern::Random } else { Pattern::Sequential },
        read_percent: reads,
        block_bytes: kib * KIB,
        offset_bytes: from * GIB,
        span_bytes: (to - from) * GIB,
        total_bytes: total * GIB,
        depth,
        ..Job::default()
    };
    (job, kib_per_s)
}

fn all() -> Vec<Series> {
    let hdd = ModelSpec::Hdd(HddSpec::default());
    let ssd = |fill| ModelSpec::Ssd(SsdSpec::samsung_850_pro(fill));
    let sequential_writes = [
        (25, 4, 173_297.0),
        (29, 64, 173_099.0),
        (93, 64, 172_130.0),
        (157, 64, 172_005.0),
        (221, 64, 171_690.0),
        (285, 64, 171_210.0),
        (349, 64, 170_620.0),
        (413, 64, 170_671.0),
        (477, 64, 170_110.0),
    ];
    let mut on_hdd = vec![
        fio(false, 100, 128, 1, 1, 9, 8, 173_630.0),
        fio(true, 100, 4, 1, 1, 9, 1, 688.6),
        fio(true, 100, 4, 32, 1, 9, 4, 1853.6),
    ];
    on_hdd.extend(sequential_writes.map(|(at, gib, kib)| fio(false, 0, 128, 1, at, at + gib, gib, kib)));
    on_hdd.extend([
        fio(true, 67, 8, 32, 1, 9, 4, 2474.5 + 1216.8),
        fio(true, 0, 4, 1, 9, 17, 1, 1964.2),
        fio(true, 0, 4, 32, 17, 25, 4, 1957.8),
    ]);
    let on_clean = vec![
        fio(false, 0, 128, 1, 1, 9, 8, 417_614.0),
        fio(true, 100, 4, 1, 1, 9, 1, 35_838.0),
        fio(true, 100, 4, 32, 1, 9, 4, 400_143.0),
        fio(false, 0, 128, 1, 25, 29, 4, 414_416.0),
        fio(false, 0, 128, 1, 29, 93, 64, 417_515.0),
        fio(true, 67, 8, 32, 1, 9, 4, 302_434.0 + 148_712.0),
        fio(true, 0, 4, 1, 9, 17, 1, 109_215.0),
        fio(true, 0, 4, 32, 17, 25, 4, 363_017.0),
    ];
    let on_full = vec![
        fio(false, 100, 128, 1, 1, 9, 8, 448_373.0),
        fio(true, 100, 4, 1, 1, 9, 1, 35_877.0),
        fio(true, 100, 4, 32, 1, 9, 4, 397_866.0),
        fio(false, 0, 128, 1, 25, 29, 4, 142_980.0),
        fio(false, 0, 128, 1, 29, 93, 64, 81_443.0),
        fio(true, 67, 8, 32, 1, 9, 4, 103_892.0 + 51_085.0),
        fio(true, 0, 4, 1, 9, 17, 1, 57_481.0),
        fio(true, 0, 4, 32, 17, 25, 4, 58_194.0),
    ];
    // The mail has MB/s of 10^6 bytes.
    let mail = |kib, mb: f64| fio(true, 0, kib, 128, 0, 16, 4, mb * 1e6 / 1024.0);
    vec![
        Series { device: "WD Re 4 TB", spec: hdd, size_bytes: HDD_BYTES, jobs: on_hdd },
        Series { device: "Samsung 850 PRO, clean", spec: ssd(Fill::Clean), size_bytes: SSD_BYTES, jobs: on_clean },
        Series { device: "Samsung 850 PRO, full", spec: ssd(Fill::Full), size_bytes: SSD_BYTES, jobs: on_full },
        Series {
            device: "Samsung 840 PRO, 3 Gbit/s",
            spec: ModelSpec::Ssd(SsdSpec::samsung_840_pro()),
            size_bytes: SSD_BYTES,
            jobs: vec![mail(4, 201.1), mail(512, 268.3)],
        },
        Series {
            device: "Samsung SM863, as one 850 PRO",
            spec: ssd(Fill::Clean),
            size_bytes: SSD_BYTES,
            jobs: vec![fio(true, 100, 4, 16, 0, 4, 4, 102_325.0 * 4.0)],
        },
    ]
}

/// Bytes that all rows ask for.
#[must_use]
pub fn total_bytes() -> u64 {
    all().iter().flat_map(|series| &series.jobs).map(|(job, _)| job.total_bytes).sum()
}

/// Runs every published row on its model. `progress` gets the number of bytes answered. Rows that
/// belong to one run of a device run one after the other, as they did.
pub fn rows(progress: &mut dyn FnMut(u64)) -> Vec<Row> {
    let mut one = |series: Series| {
        let mut bare = Bare::new(series.spec, series.size_bytes);
        let (mut now, mut number) = (Time(0), 0);
        let mut rows = Vec::new();
        for (job, published) in series.jobs {
            let mut watch = |bytes| {
                progress(bytes);
                true
            };
            let phase = run(&mut bare, &mut now, &mut number, std::slice::from_ref(&job), INTERVAL_NS, &mut watch);
            let Some(phase) = phase else { continue };
            let result = &phase.jobs[0];
            let kib = (result.read_bytes + result.write_bytes) as f64 / 1024.0;
            let simulated = kib / (phase.time_ns as f64 / 1e9);
            rows.push(Row { device: series.device, job: job.name, published, simulated });
        }
        rows
    };
    all().into_iter().flat_map(&mut one).collect()
}
