// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon beside `nbdkit file` on a file of the same size: the same fio jobs, in turns.
//!
//! The turns (A B A B) make a machine that changes its speed change both. nbdkit answers from the
//! page cache, that is from as much RAM as there is. So ours runs twice: as it is by default, and
//! with a RAM front that holds the data. It also runs beside `qemu-nbd --cache=none`, whose bytes
//! come from the device each time, as ours do by default. (nbdkit has a `cache=none`, too, but
//! reads from the page cache all the same.)
//!
//! The last one is a server with nothing behind its socket. With many requests of 4 KiB in flight,
//! the rest between that server and ours is ours to save.

use std::fmt::Write as _;
use std::path::Path;

use super::found::{Found, fill, median};
use super::server::{echo, fio, nbdkit, ours, qemu_nbd};
use crate::run::Failed;

const ROUNDS: usize = 3;
/// Bytes that the clients read and write: they fit in the cache, so that reads hit.
const DATA: &str = "512m";
/// RAM for the second of ours: room for the data, as nbdkit has it in the page cache.
const RAM_FRONT: &str = "768 MiB";
const FILE_BYTES: u64 = 1 << 30;
const CACHE_BYTES: u64 = 2 << 30;

/// The jobs of fio: name, options, and the field of their IOPS in the terse output (version 3).
///
/// Their order matters: random writes scatter the blocks in the log.
const JOBS: [(&str, &[&str], usize); 8] = [
    ("1 MiB sequential read of data written in order, 8 in flight", &["--rw=read", "--bs=1m", "--iodepth=8"], 7),
    ("4 KiB random read hits, 32 in flight", &["--rw=randread", "--bs=4k", "--iodepth=32"], 7),
    ("4 KiB random read hits, 1 in flight", &["--rw=randread", "--bs=4k", "--iodepth=1"], 7),
    (
        "4 KiB random read hits, 4 clients with 32 in flight each",
        &["--rw=randread", "--bs=4k", "--iodepth=32", "--numjobs=4"],
        7,
    ),
    ("4 KiB random write, 32 in flight", &["--rw=randwrite", "--bs=4k", "--iodepth=32"], 48),
    ("4 KiB random write, 1 in flight", &["--rw=randwrite", "--bs=4k", "--iodepth=1"], 48),
    (
        "4 KiB random write, 4 clients with 32 in flight each",
        &["--rw=randwrite", "--bs=4k", "--iodepth=32", "--numjobs=4"],
        48,
    ),
    ("1 MiB sequential read of data written at random, 8 in flight", &["--rw=read", "--bs=1m", "--iodepth=8"], 7),
];

pub(super) fn nbd(dir: &Path) -> Result<Found, Failed> {
    let names = [
        "nbd-origin",
        "nbd-cache",
        "nbd-front-origin",
        "nbd-front-cache",
        "nbdkit-file",
        "nbdkit-bare-file",
        "qemu-file",
    ];
    let paths = names.map(|name| dir.join(name));
    let sizes = [FILE_BYTES, CACHE_BYTES, FILE_BYTES, CACHE_BYTES, FILE_BYTES, FILE_BYTES, FILE_BYTES];
    for (path, bytes) in paths.iter().zip(sizes) {
        fill(path, bytes)?;
    }
    let servers = [
        ours(dir, &paths[1], &paths[0], &[])?,
        ours(dir, &paths[3], &paths[2], &["--ram-front-bytes", RAM_FRONT])?,
        nbdkit(&paths[4], &[])?,
        nbdkit(&paths[5], &["cache=none"])?,
        qemu_nbd(dir, &paths[6])?,
        echo(dir)?,
    ];
    // Everything that is read later is in the cache, and in nbdkit's page cache, and what fits in
    // the RAM front.
    for server in &servers {
        fio(server, DATA, &["--rw=write", "--bs=256k", "--iodepth=8"], 48)?;
        fio(server, DATA, &["--rw=read", "--bs=256k", "--iodepth=8"], 7)?;
    }
    let mut summary = String::from(
        "| over NBD on a unix socket | ours / nbdkit file | with RAM front / nbdkit file | ours / nbdkit file cache=none | ours / qemu-nbd cache=none | with RAM front / nothing behind the socket | IOPS of the rounds: ours/with RAM front/nbdkit/nbdkit cache=none/qemu-nbd/nothing |\n|---|--:|--:|--:|--:|--:|---|\n",
    );
    for (what, job, field) in JOBS {
        let job: Vec<&str> = job.iter().copied().chain(["--time_based", "--runtime=4"]).collect();
        let (mut ratios, mut shown) = ([const { Vec::new() }; 5], String::new());
        for _ in 0..ROUNDS {
            let mut iops = [0.0; 6];
            for (server, iops) in servers.iter().zip(&mut iops) {
                *iops = fio(server, DATA, &job, field)?;
            }
            let [ours, front, nbdkit, bare, qemu, echo] = iops;
            let now = [ours / nbdkit, front / nbdkit, ours / bare, ours / qemu, front / echo];
            for (ratios, ratio) in ratios.iter_mut().zip(now) {
                ratios.push(ratio);
            }
            let _ = write!(shown, "{ours:.0}/{front:.0}/{nbdkit:.0}/{bare:.0}/{qemu:.0}/{echo:.0} ");
        }
        let ratios = ratios.map(|of| format!("{:.2}", median(of))).join(" | ");
        let _ = writeln!(summary, "| {what} | {ratios} | {shown}|");
    }
    drop(servers);
    for path in paths {
        std::fs::remove_file(&path).map_err(|error| Failed::File { path, error })?;
    }
    Ok(Found { summary, json: None })
}
