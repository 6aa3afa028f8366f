// SPDX-License-Identifier: MIT OR Apache-2.0
//! Takes the second half of a daemon's requests from its metrics.
//!
//! The moment of the half is not known before the end. So the counters are read twenty times a
//! second, and their values at the half are between two samples.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};

use crate::run::Failed;

const EVERY: Duration = Duration::from_millis(50);

/// The counters at a moment, or between two moments.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    /// Requests, and the seconds that all of them took.
    reads: (f64, f64),
    writes: (f64, f64),
    /// Blocks.
    hits: f64,
    misses: f64,
}

impl Measured {
    /// Reads the text of /metrics.
    fn of(text: &str) -> Self {
        let all = |name: &str, kinds: &[&str]| -> f64 {
            let lines = text.lines().filter_map(|line| line.strip_prefix(name));
            let ours = lines.filter(|rest| {
                let is_whole = rest.starts_with(['{', ' ']);
                is_whole && (kinds.is_empty() || kinds.iter().any(|kind| rest.contains(&format!("kind=\"{kind}\""))))
            });
            ours.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok()).sum()
        };
        let took = |kinds: &[&str]| {
            let [count, sum] =
                ["count", "sum"].map(|it| all(&format!("flashfront_request_duration_seconds_{it}"), kinds));
            (count, sum)
        };
        Self {
            reads: took(&["hit", "miss"]),
            writes: took(&["write"]),
            hits: all("flashfront_read_hits_total", &[]),
            misses: all("flashfront_read_misses_total", &[]),
        }
    }

    pub(super) fn requests(&self) -> u64 {
        (self.reads.0 + self.writes.0) as u64
    }

    pub(super) fn hit_ratio(&self) -> Option<f64> {
        ratio(self.hits, self.hits + self.misses)
    }

    /// Seconds of a request.
    pub(super) fn mean(&self) -> Option<f64> {
        ratio(self.reads.1 + self.writes.1, self.reads.0 + self.writes.0)
    }

    pub(super) fn read_mean(&self) -> Option<f64> {
        ratio(self.reads.1, self.reads.0)
    }

    pub(super) fn write_mean(&self) -> Option<f64> {
        ratio(self.writes.1, self.writes.0)
    }

    /// Joins each figure with that of the other.
    fn with(&self, other: &Self, one: impl Fn(f64, f64) -> f64) -> Self {
        let two = |a: (f64, f64), b: (f64, f64)| (one(a.0, b.0), one(a.1, b.1));
        Self {
            reads: two(self.reads, other.reads),
            writes: two(self.writes, other.writes),
            hits: one(self.hits, other.hits),
            misses: one(self.misses, other.misses),
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "requests": self.requests(), "read_hit_ratio": self.hit_ratio(), "mean_s": self.mean(),
            "read_mean_s": self.read_mean(), "write_mean_s": self.write_mean(),
        })
    }
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// Counters from time to time.
pub(super) struct Samples(Vec<Measured>);

impl Samples {
    /// Returns the counts of the second half of the requests.
    pub(super) fn second_half(&self) -> Result<Measured, Failed> {
        let Some(last) = self.0.last().filter(|last| last.requests() > 1) else {
            return Err(Failed::Usage("the daemon's metrics count no requests".into()));
        };
        let so_far = |it: &Measured| it.reads.0 + it.writes.0;
        let half = so_far(last) / 2.0;
        let at = self.0.iter().position(|it| so_far(it) >= half).unwrap_or(0);
        let (before, after) = (self.0[at.saturating_sub(1)], self.0[at]);
        let part = ratio(half - so_far(&before), so_far(&after) - so_far(&before)).unwrap_or(0.0);
        let at_half = before.with(&after, |before, after| before + (after - before) * part);
        Ok(last.with(&at_half, |all, first| all - first))
    }
}

/// Reads the counters until it is told to end.
pub(super) struct Sampler {
    end: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Measured>, Failed>>,
}

impl Sampler {
    pub(super) fn start(port: u16) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        let thread = thread::spawn(move || {
            let mut samples = vec![Measured::default()];
            loop {
                // Looked at before, so that the last sample is of the end.
                let is_last = ended.load(Ordering::Relaxed);
                samples.push(Measured::of(&get(port)?));
                if is_last {
                    return Ok(samples);
                }
                // pacing: a sample need not come at an exact time.
                thread::sleep(EVERY);
            }
        });
        Self { end, thread }
    }

    pub(super) fn end(self) -> Result<Samples, Failed> {
        self.end.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map(Samples)
    }
}

fn get(port: u16) -> Result<String, Failed> {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    ask().map_err(|error| Failed::Usage(format!("the daemon's /metrics: {error}")))
}

/// Finds a port on which no program listens.
pub(super) fn free_port() -> Result<u16, Failed> {
    let found = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
    found.map(|it| it.port()).map_err(|error| Failed::Usage(format!("no free port: {error}")))
}
