// SPDX-License-Identifier: MIT OR Apache-2.0
//! RAM per cached block: the daemon's resident memory, empty, full under load, and full at rest.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::found::{Found, parse};
use super::server::{control, fio, ours};
use crate::run::{Failed, packaged, stdout_of};

/// Sparse files; this many bytes are written.
const CACHE_GIB: u64 = 16;
/// Seconds without a change that are rest: a daemon gives buffers back ten seconds after their last
/// use.
const REST_S: u32 = 15;

pub(super) fn memory(dir: &Path) -> Result<Found, Failed> {
    let (origin, cache) = (dir.join("memory-origin"), dir.join("memory-cache"));
    for (path, gib) in [(&origin, CACHE_GIB), (&cache, CACHE_GIB)] {
        let made = std::fs::File::create(path).and_then(|file| file.set_len(gib << 30));
        made.map_err(|error| Failed::File { path: path.clone(), error })?;
    }
    let binary = packaged()?;
    let server = ours(dir, &cache, &origin, &[])?;
    let mut summary = String::from(
        "| step | blocks cached | dirty | RSS | RSS / block | index / block of capacity |\n|---|--:|--:|--:|--:|--:|\n",
    );
    let mut marks = Vec::new();
    for (step, percent) in [("empty", 0), ("a quarter, under load", 25), ("full, under load", 100)] {
        if percent > 0 {
            let size = format!("{}g", CACHE_GIB * percent / 100);
            fio(&server, &size, &["--rw=write", "--bs=256k", "--iodepth=8"], 48)?;
        }
        let found = Status::ask(&binary, &cache)?;
        row(&mut summary, step, found);
        marks.push(found);
    }
    let rest = at_rest(&binary, &cache, marks[2])?;
    row(&mut summary, "full, at rest", rest);
    let growth = (rest.rss - marks[0].rss) / rest.blocks;
    let _ = writeln!(summary, "\nGrowth from empty to full, at rest: {growth:.1} B per cached block.");
    drop(server);
    for path in [origin, cache] {
        std::fs::remove_file(&path).map_err(|error| Failed::File { path, error })?;
    }
    Ok(Found { summary, json: None })
}

/// The memory of the daemon, by its own `status`.
#[derive(Clone, Copy)]
struct Status {
    rss: f64,
    blocks: f64,
    dirty: f64,
    index_per_block: f64,
}

impl Status {
    fn ask(binary: &Path, cache: &Path) -> Result<Self, Failed> {
        let json = stdout_of(Command::new(binary).args(["status", "--json", "--control"]).arg(control(cache)))?;
        let json = parse(&json)?;
        let number = |key: &str| json[key].as_f64().unwrap_or(f64::NAN);
        let [rss, blocks, dirty] = ["rss_bytes", "blocks_cached", "blocks_dirty"].map(number);
        let index_per_block = number("index_bytes") / number("capacity_blocks");
        Ok(Self { rss, blocks, dirty, index_per_block })
    }
}

fn row(summary: &mut String, step: &str, found: Status) {
    let Status { rss, blocks, dirty, index_per_block } = found;
    let per_block = if blocks > 0.0 { format!("{:.1} B", rss / blocks) } else { "-".into() };
    let mib = rss / 1048576.0;
    let _ = writeln!(
        summary,
        "| {step} | {blocks:.0} | {dirty:.0} | {mib:.1} MiB | {per_block} | {index_per_block:.1} B |"
    );
}

/// Waits until destage is over and the memory does not change any more.
fn at_rest(binary: &Path, cache: &Path, mut last: Status) -> Result<Status, Failed> {
    let mut quiet = 0;
    while quiet < REST_S {
        // pacing: what is waited for takes ten seconds by itself.
        std::thread::sleep(Duration::from_secs(1));
        let now = Status::ask(binary, cache)?;
        let same = now.dirty == 0.0 && (now.rss - last.rss).abs() < 65536.0;
        quiet = if same { quiet + 1 } else { 0 };
        last = now;
    }
    Ok(last)
}
