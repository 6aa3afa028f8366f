// SPDX-License-Identifier: MIT OR Apache-2.0
//! What idle volumes cost: the time that a start takes and the daemon's memory, with one volume and
//! with a thousand more. A start after a clean stop, and one after a kill.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::found::{Found, median};
use crate::run::{Failed, packaged, read, run, spawn, stdout_of};

/// Volumes beside the first.
const MORE: u64 = 1000;
/// Bytes of an origin, and of a cache: sparse files.
const ORIGIN_BYTES: u64 = 64 << 20;
const CACHE_BYTES: u64 = 2 << 30;
/// Starts of each kind.
const ROUNDS: usize = 5;

/// A cache with its volumes, in a folder of its own.
struct Cache {
    binary: PathBuf,
    dir: PathBuf,
}

impl Cache {
    fn make(binary: &Path, dir: PathBuf, more: u64) -> Result<Self, Failed> {
        let cache = Self { binary: binary.to_owned(), dir };
        std::fs::create_dir_all(&cache.dir).map_err(cache.failed())?;
        cache.sparse("cache", CACHE_BYTES)?;
        for nth in 0..=more {
            let (name, origin) = (format!("v{nth}"), cache.sparse(&format!("origin{nth}"), ORIGIN_BYTES)?);
            let mut command = Command::new(&cache.binary);
            match nth {
                0 => command.args(["format", "--force"]),
                _ => command.args(["volume", "add"]),
            };
            command.arg("--cache").arg(cache.dir.join("cache")).arg("--origin").arg(origin).args(["--name", &name]);
            run(command.stdout(Stdio::null()))?;
        }
        Ok(cache)
    }

    fn sparse(&self, name: &str, bytes: u64) -> Result<PathBuf, Failed> {
        let path = self.dir.join(name);
        File::create(&path).and_then(|file| file.set_len(bytes)).map_err(self.failed())?;
        Ok(path)
    }

    fn failed(&self) -> impl Fn(std::io::Error) -> Failed {
        let path = self.dir.clone();
        move |error| Failed::File { path: path.clone(), error }
    }

    /// Starts a daemon; the seconds until it is ready, its memory then in bytes, and its process.
    fn start(&self) -> Result<(f64, f64, Child), Failed> {
        let (begun, control) = (Instant::now(), self.dir.join("control"));
        let mut serve = Command::new(&self.binary);
        serve.arg("serve").arg("--cache").arg(self.dir.join("cache")).arg("--state").arg(self.dir.join("state"));
        serve.arg("--control").arg(&control).arg(format!("--nbd=unix:{}", self.dir.join("nbd").display()));
        let mut child = spawn(serve.stdout(Stdio::piped()).stderr(Stdio::null()))?;
        let mut ready = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut ready).map_err(self.failed())?;
        }
        let seconds = begun.elapsed().as_secs_f64();
        if !ready.starts_with("ready") {
            return Err(Failed::Usage(format!("{}: the daemon does not serve", self.dir.display())));
        }
        // The daemon's memory holds an answer only until it is sent. So it is looked at afterwards.
        stdout_of(Command::new(&self.binary).args(["status", "--json", "--control"]).arg(&control))?;
        Ok((seconds, rss(&child)?, child))
    }

    /// Starts and stops, or kills; the seconds and the memory of the start.
    fn round(&self, kills: bool) -> Result<(f64, f64), Failed> {
        let (seconds, bytes, mut child) = self.start()?;
        if kills {
            child.kill().map_err(self.failed())?;
        } else {
            run(Command::new("kill").arg(child.id().to_string()))?;
        }
        child.wait().map_err(self.failed())?;
        Ok((seconds, bytes))
    }
}

/// The resident memory of a process, in bytes.
fn rss(process: &Child) -> Result<f64, Failed> {
    let text = read(&PathBuf::from(format!("/proc/{}/status", process.id())))?;
    let kib =
        text.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    Ok(kib.map_or(f64::NAN, |kib| kib * 1024.0))
}

pub(super) fn volumes(dir: &Path) -> Result<Found, Failed> {
    let binary = packaged()?;
    let caches = [0, MORE].map(|more| Cache::make(&binary, dir.join(format!("volumes-{more}")), more));
    let [one, all] = caches;
    let caches = [one?, all?];
    let mut summary = format!(
        "| a start after | one volume | {} volumes | more | RSS more, per volume |\n|---|--:|--:|--:|--:|\n",
        MORE + 1
    );
    for (what, kills) in [("a clean stop", false), ("a kill", true)] {
        // What a start finds is what the round before it has left.
        for cache in &caches {
            cache.round(kills)?;
        }
        let mut found = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
        for _ in 0..ROUNDS {
            for (cache, (seconds, bytes)) in caches.iter().zip(&mut found) {
                let (took, rss) = cache.round(kills)?;
                seconds.push(took);
                bytes.push(rss);
            }
        }
        let [(one, small), (all, large)] = found.map(|(seconds, bytes)| (median(seconds), median(bytes)));
        summary.push_str(&format!(
            "| {what} | {one:.3} s | {all:.3} s | {:.3} s | {:.1} KiB |\n",
            all - one,
            (large - small) / MORE as f64 / 1024.0
        ));
    }
    for cache in &caches {
        std::fs::remove_dir_all(&cache.dir).map_err(cache.failed())?;
    }
    Ok(Found { summary, json: None })
}
