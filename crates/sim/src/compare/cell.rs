// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell is one figure of a task on a system, beside what was published.

use crate::load::PhaseResult;

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The task that it is of.
    pub task: String,
    /// The system, by its name in the suite.
    pub system: &'static str,
    /// `kbps` (KiB/s: of reads where there are any, else of writes), `kbps_write`, `cache_read_kb`,
    /// `cache_write_kb`, `data_read_kb`, `data_write_kb`, `dirty_mb`, `hit_ratio` or `iops`.
    pub metric: &'static str,
    /// The figure of the source, if it has one.
    pub published: Option<f64>,
    /// The figure of the models.
    pub simulated: f64,
}

/// The figures of phases that count as one. `by_iops`: requests a second are told.
pub(super) fn figures(
    by_iops: bool,
    first: &PhaseResult,
    last: &PhaseResult,
    all: &[&PhaseResult],
    bare: bool,
) -> Vec<(&'static str, f64)> {
    let (before, after) = (&first.before, &last.after);
    let seconds = all.iter().map(|phase| phase.time_ns).sum::<u64>() as f64 / 1e9;
    let jobs = || all.iter().flat_map(|phase| &phase.jobs);
    let (read, written) =
        (jobs().map(|job| job.read_bytes).sum::<u64>(), jobs().map(|job| job.write_bytes).sum::<u64>());
    let kib = |bytes: u64| bytes as f64 / 1024.0;
    let mut figures = Vec::new();
    if by_iops {
        // With what wasn't simulated because nothing changed any more.
        let both = all.iter().map(|phase| phase.bytes_and_ns());
        let (bytes, ns) = both.fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        figures.push(("iops", bytes / f64::from(1 << 12) * 1e9 / ns));
    } else {
        figures.push(("kbps", kib(if read > 0 { read } else { written }) / seconds));
        if read > 0 && written > 0 {
            figures.push(("kbps_write", kib(written) / seconds));
        }
    }
    if bare {
        return figures;
    }
    let blocks = after.read_blocks - before.read_blocks;
    if blocks > 0 {
        figures.push(("hit_ratio", (after.read_hit_blocks - before.read_hit_blocks) as f64 / blocks as f64));
    }
    figures.extend([
        ("cache_read_kb", kib(after.cache_read_bytes - before.cache_read_bytes)),
        ("cache_write_kb", kib(after.cache_write_bytes - before.cache_write_bytes)),
        ("data_read_kb", kib(after.origin_read_bytes - before.origin_read_bytes)),
        ("data_write_kb", kib(after.origin_write_bytes - before.origin_write_bytes)),
        ("dirty_mb", kib(after.dirty_bytes) / 1024.0),
    ]);
    figures
}
