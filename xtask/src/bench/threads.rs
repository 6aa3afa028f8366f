// SPDX-License-Identifier: MIT OR Apache-2.0
//! What threads for clients bring: the same daemon with one, two and three threads, the same fio jobs, in turns.
//!
//! With few processors clients and daemon share them, and little can be gained. So it is measured, too, how much
//! processor time a request costs the engine's thread: its inverse is what that thread could do with processors enough.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::server::{Server, fio, ours};
use super::{Found, fill, median};
use crate::run::Failed;

const ROUNDS: usize = 7;
const THREADS: [&str; 3] = ["1", "2", "3"];
const DATA: &str = "128m";
const FILE_BYTES: u64 = 1 << 30;
const CACHE_BYTES: u64 = 2 << 30;
const SECONDS: f64 = 4.0;
/// Linux counts processor time in hundredths of a second (USER_HZ) on all that Flashfront runs on.
const US_PER_TICK: f64 = 10_000.0;

/// Name, fio's options, and where its IOPS are in the terse output (version 3).
const JOBS: [(&str, &[&str], usize); 3] = [
    ("4 KiB random reads from the RAM front, 4 clients with 32 in flight", &["--rw=randread", "--numjobs=4"], 7),
    ("4 KiB random writes, 4 clients with 32 in flight", &["--rw=randwrite", "--numjobs=4"], 48),
    ("4 KiB random reads from the RAM front, 1 client with 32 in flight", &["--rw=randread"], 7),
];

pub(super) fn threads(dir: &Path) -> Result<Found, Failed> {
    let mut servers = Vec::new();
    let mut files: Vec<PathBuf> = Vec::new();
    for threads in THREADS {
        let [origin, cache] = ["origin", "cache"].map(|what| dir.join(format!("threads-{threads}-{what}")));
        fill(&origin, FILE_BYTES)?;
        fill(&cache, CACHE_BYTES)?;
        let server = ours(dir, &cache, &origin, &["--ram-front-bytes", "256MiB", "--threads", threads])?;
        fio(&server, DATA, &["--rw=write", "--bs=256k", "--iodepth=8"], 48)?;
        fio(&server, DATA, &["--rw=read", "--bs=256k", "--iodepth=8"], 7)?;
        servers.push(server);
        files.extend([origin, cache]);
    }
    let mut summary = String::from(
        "| over NBD on a unix socket | 2 threads / 1 | 3 threads / 1 | processor time of the engine's thread per request, 1 / 2 / 3 threads | IOPS of the rounds: 1/2/3 threads |\n|---|--:|--:|--:|---|\n",
    );
    for (what, job, field) in JOBS {
        let more = ["--bs=4k", "--iodepth=32", "--time_based", "--runtime=4"];
        let job: Vec<&str> = job.iter().copied().chain(more).collect();
        let (mut ratios, mut costs, mut shown) = ([Vec::new(), Vec::new()], [const { Vec::new() }; 3], String::new());
        for _ in 0..ROUNDS {
            let mut iops = [0.0; 3];
            for ((server, iops), costs) in servers.iter().zip(&mut iops).zip(&mut costs) {
                let before = engine_ticks(server)?;
                *iops = fio(server, DATA, &job, field)?;
                costs.push((engine_ticks(server)? - before) * US_PER_TICK / (*iops * SECONDS));
            }
            let [one, two, three] = iops;
            ratios[0].push(two / one);
            ratios[1].push(three / one);
            let _ = write!(shown, "{one:.0}/{two:.0}/{three:.0} ");
        }
        let ([two, three], [a, b, c]) = (ratios.map(median), costs.map(median));
        let _ = writeln!(summary, "| {what} | {two:.2} | {three:.2} | {a:.1} / {b:.1} / {c:.1} us | {shown}|");
    }
    drop(servers);
    for path in files {
        std::fs::remove_file(&path).map_err(|error| Failed::File { path, error })?;
    }
    Ok(Found { summary, json: None })
}

/// Processor time of the daemon's first thread, which is the engine's: user and system.
fn engine_ticks(server: &Server) -> Result<f64, Failed> {
    let path = PathBuf::from(format!("/proc/{0}/task/{0}/stat", server.id()));
    let stat = std::fs::read_to_string(&path).map_err(|error| Failed::File { path, error })?;
    // The name is in brackets, and may hold anything; after it utime and stime are the 12th and 13th field (proc(5)).
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    Ok(fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum())
}
