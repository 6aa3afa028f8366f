// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the prediction of `flashfront advise` with a real daemon, for four loads of real
//! clients.
//!
//! The daemon's devices have the pace of the models that `advise` plays to (`--emulate-*`). It
//! serves a load while `flashfront record` records the volume's requests, and `measured` samples
//! its metrics. Then `advise` is asked, with the same models and the same cache. Both are of the
//! second half of the requests. A good prediction has the hits within two points, and the mean
//! within a fifth.
//!
//! The part takes root, and four minutes. `--dir` is to be a folder in RAM (/dev/shm): a disk that
//! is slower than the models spoils the pace.

mod load;
mod measured;

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::found::{Found, parse};
use crate::run::{Failed, packaged, run, spawn, stdout_of};
use load::{LOADS, Load};
use measured::{Measured, Sampler};

/// The part's name.
pub(super) const NAME: &str = "predicted";
const CACHE_BYTES: u64 = 256 << 20;
const CACHE: &str = "samsung-850-pro";
const ORIGIN: &str = "wd-re-4tb";
/// Hits that are predicted well are no further away.
const POINTS: f64 = 2.0;
/// A mean that is predicted well is no further away, as a part of what was measured.
const MEAN: f64 = 0.2;

/// A process that is ended when it is let go.
struct Running(Child);

impl Running {
    /// Starts a program, and waits for a line on the stream that it is ready.
    fn start(command: &mut Command, says: &str) -> Result<Self, Failed> {
        let mut running = Self(spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?);
        let (stdout, stderr) = (running.0.stdout.take(), running.0.stderr.take());
        let mut found = false;
        if says == "ready " {
            for line in stdout.into_iter().flat_map(|it| BufReader::new(it).lines()) {
                found = line.is_ok_and(|line| line.starts_with(says));
                if found {
                    break;
                }
            }
            // The log goes on, and somebody must read it.
            std::thread::spawn(move || stderr.map(|mut it| std::io::copy(&mut it, &mut std::io::sink())));
        } else {
            let mut lines = BufReader::new(stderr.expect("the pipe was asked for")).lines();
            found = lines.by_ref().map_while(Result::ok).any(|line| line.contains(says));
            std::thread::spawn(move || lines.for_each(drop));
        }
        if found { Ok(running) } else { Err(Failed::Usage(format!("{command:?} did not say {says:?}"))) }
    }

    /// Ends the program as a service manager does, and waits for its end.
    fn end(&mut self) -> Result<(), Failed> {
        run(Command::new("kill").args(["-TERM", &self.0.id().to_string()]))?;
        self.0.wait().map_err(|error| Failed::Start { program: "flashfront".into(), error })?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn predicted(dir: &Path) -> Result<Found, Failed> {
    let dir = &dir.canonicalize().map_err(|error| Failed::File { path: dir.into(), error })?.join("predicted");
    let mut summary = format!(
        "Cache: {} MiB, {CACHE}. Origin: {ORIGIN}. Of the second half of the requests.\n\n| load | requests | read hits: predicted | measured | mean: predicted | measured | read: predicted | measured | write: predicted | measured | |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n",
        CACHE_BYTES >> 20
    );
    let mut all = Vec::new();
    for load in &LOADS {
        // A run that was ended early has left its files.
        let _ = fs::remove_dir_all(dir);
        fs::create_dir_all(dir).map_err(|error| Failed::File { path: dir.into(), error })?;
        eprintln!("predicted: {}", load.name);
        let (measured, recording) = measure(load, dir)?;
        let advised = ask(&recording)?;
        row(&mut summary, load.name, &measured, &advised);
        eprintln!("{}", summary.lines().next_back().unwrap_or_default());
        all.push(json!({ "load": load.name, "measured": measured.json(), "predicted": advised }));
    }
    fs::remove_dir_all(dir).map_err(|error| Failed::File { path: dir.into(), error })?;
    Ok(Found { summary, json: Some(Value::from(all).to_string()) })
}

/// Serves a load; what was measured, and the recording of it.
fn measure(load: &Load, dir: &Path) -> Result<(Measured, std::path::PathBuf), Failed> {
    let flashfront = packaged()?;
    let [cache, origin, control, recording] = ["cache", "origin", "control", "recording"].map(|name| dir.join(name));
    for (path, bytes) in [(&cache, CACHE_BYTES), (&origin, load.origin_bytes)] {
        let made = fs::File::create(path).and_then(|file| file.set_len(bytes));
        made.map_err(|error| Failed::File { path: path.clone(), error })?;
    }
    let devices = ["--cache".as_ref(), cache.as_os_str(), "--origin".as_ref(), origin.as_os_str()];
    run(Command::new(&flashfront).arg("format").args(devices).stdout(Stdio::null()))?;
    let port = measured::free_port()?;
    let folder = dir.join("volume");
    fs::create_dir(&folder).map_err(|error| Failed::File { path: folder.clone(), error })?;
    let mut serve = Command::new(&flashfront);
    serve.arg("serve").args(devices).args(["--emulate-cache", CACHE, "--emulate-origin", ORIGIN]);
    serve.arg("--control").arg(&control).arg("--state").arg(dir).arg("--fuse").arg(&folder);
    serve.args(["--http", &format!("127.0.0.1:{port}")]);
    let mut daemon = Running::start(&mut serve, "ready ")?;
    let mut record = Command::new(&flashfront);
    record.arg("record").arg("--control").arg(&control).arg("--out").arg(&recording);
    let mut recorder = Running::start(&mut record, "recording ")?;
    let sampler = Sampler::start(port);
    (load.run)(&folder.join("data"), dir)?;
    let samples = sampler.end()?;
    recorder.end()?;
    daemon.end()?;
    Ok((samples.second_half()?, recording))
}

/// Returns the figures of `advise` for the recording and that cache in writeback mode.
fn ask(recording: &Path) -> Result<Value, Failed> {
    let mut advise = Command::new(packaged()?);
    advise.arg("advise").arg(recording).args(["--origin", ORIGIN, "--cache", CACHE, "--json"]);
    let text = stdout_of(advise.args(["--cache-size", &format!("{}MiB", CACHE_BYTES >> 20)]))?;
    let all = parse(&text)?;
    let trials = all["trials"].as_array().into_iter().flatten();
    let found = trials.into_iter().find(|it| it["cache_bytes"] == CACHE_BYTES && it["mode"] == "writeback").cloned();
    found.ok_or_else(|| Failed::Usage(format!("advise has no such trial: {text}")))
}

fn row(summary: &mut String, name: &str, measured: &Measured, advised: &Value) {
    let ns = |value: &Value| value.as_f64().map(|it| it / 1e9);
    let (mean, hits) = (ns(&advised["mean_ns"]), advised["read_hit_ratio"].as_f64());
    let [read, write] = ["reads", "writes"].map(|kind| ns(&advised[kind]["mean_ns"]));
    let far_hits = hits.zip(measured.hit_ratio()).map_or(0.0, |(one, other)| (one - other).abs() * 100.0);
    let far_mean = mean.zip(measured.mean()).map_or(0.0, |(one, other)| (one - other).abs() / other);
    let verdict = match (far_hits <= POINTS, far_mean <= MEAN) {
        (true, true) => "both near",
        (true, false) => "mean far",
        (false, true) => "hits far",
        (false, false) => "both far",
    };
    let share = |it: Option<f64>| it.map_or_else(|| "-".to_owned(), |it| format!("{:.1} %", it * 100.0));
    let time = |it: Option<f64>| it.map_or_else(|| "-".to_owned(), |it| format!("{:.3} ms", it * 1e3));
    let cells = [
        measured.requests().to_string(),
        share(hits),
        share(measured.hit_ratio()),
        time(mean),
        time(measured.mean()),
        time(read),
        time(measured.read_mean()),
        time(write),
        time(measured.write_mean()),
        verdict.to_owned(),
    ];
    let _ = writeln!(summary, "| {name} | {} |", cells.join(" | "));
}
