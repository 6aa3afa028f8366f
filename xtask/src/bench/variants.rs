// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures options of the daemon: threads for clients, and huge pages.
//!
//! The same daemon runs with and without the option, with the same fio jobs, in turns. With few
//! processors clients and daemon share them, and little can be gained. So the processor time that a
//! request costs the engine's thread is measured, too. Its inverse is the speed of that thread with
//! processors enough.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::found::{Found, fill, median};
use super::server::{fio, ours};
use crate::run::Failed;

const ROUNDS: usize = 7;
const THREADS: [(&str, &[&str]); 3] =
    [("1 thread", &["--threads=1"]), ("2 threads", &["--threads=2"]), ("3 threads", &["--threads=3"])];
const PAGES: [(&str, &[&str]); 2] = [("small pages", &[]), ("huge pages", &["--huge-pages"])];
const DATA: &str = "128m";
const FILE_BYTES: u64 = 1 << 30;
const CACHE_BYTES: u64 = 2 << 30;
const SECONDS: f64 = 4.0;

/// Name, fio's options, and where its IOPS are in the terse output (version 3).
const JOBS: [(&str, &[&str], usize); 3] = [
    ("4 KiB random reads from the RAM front, 4 clients with 32 in flight", &["--rw=randread", "--numjobs=4"], 7),
    ("4 KiB random writes, 4 clients with 32 in flight", &["--rw=randwrite", "--numjobs=4"], 48),
    ("4 KiB random reads from the RAM front, 1 client with 32 in flight", &["--rw=randread"], 7),
];

pub(super) fn threads(dir: &Path) -> Result<Found, Failed> {
    beside("threads", &THREADS, dir)
}

pub(super) fn huge_pages(dir: &Path) -> Result<Found, Failed> {
    beside("pages", &PAGES, dir)
}

/// Daemons with these options, each beside the first.
fn beside(part: &str, variants: &[(&str, &[&str])], dir: &Path) -> Result<Found, Failed> {
    let mut servers = Vec::new();
    let mut files: Vec<PathBuf> = Vec::new();
    for (nth, (_, options)) in variants.iter().enumerate() {
        let [origin, cache] = ["origin", "cache"].map(|what| dir.join(format!("{part}-{nth}-{what}")));
        fill(&origin, FILE_BYTES)?;
        fill(&cache, CACHE_BYTES)?;
        let server = ours(dir, &cache, &origin, &[&["--ram-front-bytes", "256MiB"], *options].concat())?;
        fio(&server, DATA, &["--rw=write", "--bs=256k", "--iodepth=8"], 48)?;
        fio(&server, DATA, &["--rw=read", "--bs=256k", "--iodepth=8"], 7)?;
        servers.push(server);
        files.extend([origin, cache]);
    }
    let (first, others) = (variants[0].0, &variants[1..]);
    let names: Vec<&str> = variants.iter().map(|variant| variant.0).collect();
    let names = names.join(" / ");
    let mut summary = String::from("| over NBD on a unix socket |");
    others.iter().for_each(|other| summary += &format!(" {} / {first} |", other.0));
    summary +=
        &format!(" processor time of the engine's thread per request, {names} | IOPS of the rounds: {names} |\n|---|");
    summary += &format!("{}---|\n", "--:|".repeat(variants.len()));
    for (what, job, field) in JOBS {
        let more = ["--bs=4k", "--iodepth=32", "--time_based", "--runtime=4"];
        let job: Vec<&str> = job.iter().copied().chain(more).collect();
        let (mut ratios, mut costs) = (vec![Vec::new(); others.len()], vec![Vec::new(); variants.len()]);
        let mut shown = String::new();
        for _ in 0..ROUNDS {
            let mut all = Vec::new();
            for (server, costs) in servers.iter().zip(&mut costs) {
                let before = server.first_thread_us()?;
                let iops = fio(server, DATA, &job, field)?;
                costs.push((server.first_thread_us()? - before) / (iops * SECONDS));
                all.push(iops);
            }
            ratios.iter_mut().zip(&all[1..]).for_each(|(ratios, iops)| ratios.push(iops / all[0]));
            shown += &joined(&all, "/", 0);
            shown.push(' ');
        }
        let ratios: Vec<f64> = ratios.into_iter().map(median).collect();
        let costs: Vec<f64> = costs.into_iter().map(median).collect();
        let _ =
            writeln!(summary, "| {what} | {} | {} us | {shown}|", joined(&ratios, " | ", 2), joined(&costs, " / ", 1));
    }
    drop(servers);
    for path in files {
        std::fs::remove_file(&path).map_err(|error| Failed::File { path, error })?;
    }
    Ok(Found { summary, json: None })
}

fn joined(figures: &[f64], between: &str, digits: usize) -> String {
    figures.iter().map(|figure| format!("{figure:.digits$}")).collect::<Vec<_>>().join(between)
}
