// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon beside `nbdkit file` on a file of the same size: the same fio jobs, in turns (A B A B), so that
//! a machine that changes its speed changes both.
//!
//! And beside `qemu-nbd --cache=none`, because nbdkit answers from the page cache, that is from as much RAM as
//! there is: with qemu-nbd each byte comes from the device, as ours does.

use std::fmt::Write as _;
use std::path::Path;

use super::server::{fio, nbdkit, ours, qemu_nbd};
use super::{Found, fill};
use crate::run::Failed;

const ROUNDS: usize = 3;
/// Bytes that the clients read and write: they fit in the cache, so that reads hit.
const DATA: &str = "512m";
const FILE_BYTES: u64 = 1 << 30;
const CACHE_BYTES: u64 = 2 << 30;

/// What fio is asked for: name, options, and where its IOPS are in the terse output (version 3). In this order:
/// random writes scatter the blocks in the log.
const JOBS: [(&str, &[&str], usize); 6] = [
    ("1 MiB sequential read of data written in order, 8 in flight", &["--rw=read", "--bs=1m", "--iodepth=8"], 7),
    ("4 KiB random read hits, 32 in flight", &["--rw=randread", "--bs=4k", "--iodepth=32"], 7),
    ("4 KiB random read hits, 1 in flight", &["--rw=randread", "--bs=4k", "--iodepth=1"], 7),
    ("4 KiB random write, 32 in flight", &["--rw=randwrite", "--bs=4k", "--iodepth=32"], 48),
    ("4 KiB random write, 1 in flight", &["--rw=randwrite", "--bs=4k", "--iodepth=1"], 48),
    ("1 MiB sequential read of data written at random, 8 in flight", &["--rw=read", "--bs=1m", "--iodepth=8"], 7),
];

pub(super) fn nbd(dir: &Path) -> Result<Found, Failed> {
    let paths = ["nbd-origin", "nbd-cache", "nbdkit-file", "qemu-file"].map(|name| dir.join(name));
    for (path, bytes) in paths.iter().zip([FILE_BYTES, CACHE_BYTES, FILE_BYTES, FILE_BYTES]) {
        fill(path, bytes)?;
    }
    let ours = ours(dir, &paths[1], &paths[0])?;
    let theirs = [nbdkit(dir, &paths[2])?, qemu_nbd(dir, &paths[3])?];
    // Everything that is read later is in the cache, and in nbdkit's page cache.
    for server in [&ours, &theirs[0], &theirs[1]] {
        fio(server, DATA, &["--rw=write", "--bs=256k", "--iodepth=8"], 48)?;
    }
    let mut summary = String::from(
        "| over NBD on a unix socket | ours / nbdkit file | ours / qemu-nbd cache=none | IOPS of the rounds: ours/nbdkit/qemu-nbd |\n|---|--:|--:|---|\n",
    );
    for (what, job, field) in JOBS {
        let job: Vec<&str> = job.iter().copied().chain(["--time_based", "--runtime=4"]).collect();
        let (mut ratios, mut shown) = ([Vec::new(), Vec::new()], String::new());
        for _ in 0..ROUNDS {
            let us = fio(&ours, DATA, &job, field)?;
            let _ = write!(shown, "{us:.0}");
            for (theirs, ratios) in theirs.iter().zip(&mut ratios) {
                let them = fio(theirs, DATA, &job, field)?;
                ratios.push(us / them);
                let _ = write!(shown, "/{them:.0}");
            }
            shown.push(' ');
        }
        let medians = ratios.map(|mut ratios| {
            ratios.sort_by(f64::total_cmp);
            ratios[ratios.len() / 2]
        });
        let _ = writeln!(summary, "| {what} | {:.2} | {:.2} | {shown}|", medians[0], medians[1]);
    }
    drop((ours, theirs));
    for path in paths {
        std::fs::remove_file(&path).map_err(|error| Failed::File { path, error })?;
    }
    Ok(Found { summary, json: None })
}
