// SPDX-License-Identifier: MIT OR Apache-2.0
//! fio's JSON (`json+`): rates, and times as bins.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::error::BenchError;
use crate::figures::{Direction, Figures, Measured};

#[derive(Deserialize)]
struct Output {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    jobname: String,
    #[serde(default)]
    error: i32,
    /// How long the job ran, in ms.
    #[serde(default)]
    job_runtime: u64,
    read: Requests,
    write: Requests,
    #[serde(default)]
    trim: Requests,
    #[serde(default)]
    sync: Requests,
}

#[derive(Default, Deserialize)]
struct Requests {
    #[serde(default)]
    io_bytes: u64,
    #[serde(default)]
    total_ios: u64,
    #[serde(default)]
    runtime: u64,
    #[serde(default)]
    lat_ns: Times,
}

#[derive(Default, Deserialize)]
struct Times {
    #[serde(default)]
    max: f64,
    #[serde(default)]
    bins: BTreeMap<u64, u64>,
}

pub(super) fn read(path: &Path) -> Result<Measured, BenchError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| BenchError::Failed(format!("{}: can't be read: {error}", path.display())))?;
    parse(&text).map_err(|why| BenchError::Failed(format!("{}: not what fio writes: {why}", path.display())))
}

/// Jobs ran at the same time: their requests are one run's.
pub(super) fn parse(text: &str) -> Result<Measured, String> {
    // Before the JSON fio may print notes.
    let json = text.find('{').map_or("", |at| &text[at..]);
    let output: Output = serde_json::from_str(json).map_err(|error| error.to_string())?;
    if let Some(job) = output.jobs.iter().find(|job| job.error != 0) {
        let error = std::io::Error::from_raw_os_error(job.error);
        return Err(format!("the job {} failed: {error}", job.jobname));
    }
    let runtime = |job: &Job| job.job_runtime.max(job.read.runtime).max(job.write.runtime);
    let seconds = output.jobs.iter().map(runtime).max().unwrap_or(0) as f64 / 1e3;
    let mut directions = BTreeMap::new();
    for direction in [Direction::Read, Direction::Write, Direction::Trim, Direction::Sync] {
        let of = |job| requests(job, direction);
        let parts: Vec<Figures> = output.jobs.iter().map(of).filter(|it| it.total_ios > 0).map(figures).collect();
        if !parts.is_empty() {
            directions.insert(direction, Figures::merged(&parts, seconds));
        }
    }
    Ok(Measured::new(seconds, directions, Vec::new()))
}

fn requests(job: &Job, direction: Direction) -> &Requests {
    match direction {
        Direction::Read => &job.read,
        Direction::Write => &job.write,
        Direction::Trim => &job.trim,
        Direction::Sync => &job.sync,
    }
}

fn figures(requests: &Requests) -> Figures {
    Figures {
        requests: requests.total_ios,
        bytes: requests.io_bytes,
        max_us: requests.lat_ns.max / 1e3,
        bins: requests.lat_ns.bins.clone(),
        ..Figures::default()
    }
}
