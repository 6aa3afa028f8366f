// SPDX-License-Identifier: MIT OR Apache-2.0
//! RAM per cached block: the daemon's resident memory, empty and full.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use super::server::{control, fio, ours};
use super::{Found, number};
use crate::run::{Failed, flashfront, stdout_of};

/// Sparse files; this many bytes are written.
const CACHE_GIB: u64 = 16;

pub(super) fn memory(dir: &Path) -> Result<Found, Failed> {
    let (origin, cache) = (dir.join("memory-origin"), dir.join("memory-cache"));
    for (path, gib) in [(&origin, CACHE_GIB), (&cache, CACHE_GIB)] {
        let made = std::fs::File::create(path).and_then(|file| file.set_len(gib << 30));
        made.map_err(|error| Failed::File { path: path.clone(), error })?;
    }
    let server = ours(dir, &cache, &origin, &[])?;
    let mut summary = String::from(
        "| step | blocks cached | RSS | RSS / block | index / block of capacity |\n|---|--:|--:|--:|--:|\n",
    );
    let mut marks = Vec::new();
    for (step, percent) in [("empty", 0), ("a quarter", 25), ("full", 100)] {
        if percent > 0 {
            let size = format!("{}g", CACHE_GIB * percent / 100);
            fio(&server, &size, &["--rw=write", "--bs=256k", "--iodepth=8"], 48)?;
        }
        let json = stdout_of(Command::new(flashfront()?).args(["status", "--json", "--control"]).arg(control(&cache)))?;
        let [rss, blocks] = ["rss_bytes", "blocks_cached"].map(|key| number(&json, key));
        let index = number(&json, "index_bytes") / number(&json, "capacity_blocks");
        let per_block = if blocks > 0.0 { format!("{:.1} B", rss / blocks) } else { "-".into() };
        let _ = writeln!(summary, "| {step} | {blocks:.0} | {:.1} MiB | {per_block} | {index:.1} B |", rss / 1048576.0);
        marks.push((rss, blocks));
    }
    let ((empty, _), (full, blocks)) = (marks[0], marks[2]);
    let _ = writeln!(summary, "\nGrowth from empty to full: {:.1} B per cached block.", (full - empty) / blocks);
    drop(server);
    for path in [origin, cache] {
        std::fs::remove_file(&path).map_err(|error| Failed::File { path, error })?;
    }
    Ok(Found { summary, json: None })
}
