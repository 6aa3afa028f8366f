// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replays traces one after the other while a bar shows how far they are, and stops when it is to.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Instant;

use flashfront_engine::policy::Spec;
use flashfront_sim::policy::Build;
use flashfront_sim::replay::{Progress, Replayed, Size, Source, SourceError, replay};
use indicatif::ProgressBar;

use crate::progress::LOOK_EVERY;
use crate::{human, progress};

/// A policy that needs more RAM than this for its foresight is worth a warning.
const FORESIGHT_BYTES: u64 = 1 << 30;

/// Traces, and how fast those before were read.
pub(in crate::sim) struct Watched {
    /// 0 for pipes.
    file_bytes: Vec<u64>,
    pace: Pace,
    stop: Arc<AtomicBool>,
}

/// How fast traces are read.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// When their blocks are counted; this says nothing of the second reading, which takes many
    /// times as long.
    counting: Leg,
    replaying: Leg,
}

#[derive(Clone, Copy, Debug, Default)]
struct Leg {
    bytes: u64,
    seconds: f64,
}

impl Leg {
    fn and(self, bytes: u64, seconds: f64) -> Self {
        Self { bytes: self.bytes + bytes, seconds: self.seconds + seconds }
    }

    /// Returns the seconds for this many bytes, if a second of it was seen: less tells little.
    fn seconds(self, bytes: u64) -> Option<f64> {
        match bytes {
            0 => Some(0.0),
            _ if self.bytes == 0 || self.seconds < 1.0 => None,
            _ => Some(bytes as f64 * self.seconds / self.bytes as f64),
        }
    }
}

impl Pace {
    /// Returns the time until all is done, as soon as both kinds of reading are known.
    fn left(&self, counting: u64, replaying: u64) -> Option<u64> {
        Some((self.counting.seconds(counting)? + self.replaying.seconds(replaying)?).ceil() as u64)
    }
}

impl Watched {
    pub(in crate::sim) fn new(traces: &[PathBuf], stop: Arc<AtomicBool>) -> Self {
        let bytes = |trace: &PathBuf| fs::metadata(trace).map_or(0, |file| file.len());
        Self { file_bytes: traces.iter().map(bytes).collect(), pace: Pace::default(), stop }
    }

    /// Replays the trace of that number.
    pub(in crate::sim) fn replay(
        &mut self,
        nth: usize,
        source: &Source,
        policies: &[&'static Spec<Build>],
        sizes: &[Size],
        budget: &dyn Fn(u64) -> Option<u64>,
        occupancy: bool,
    ) -> Result<Replayed, SourceError> {
        let progress = Progress { stop: Arc::clone(&self.stop), ..Progress::default() };
        let (done, ended) = channel::<()>();
        let (replayed, pace) = thread::scope(|scope| {
            let bar = scope.spawn(|| self.show(nth, source, &progress, ended));
            let replayed = replay(source, policies, sizes, budget, occupancy, &progress);
            drop(done);
            (replayed, bar.join())
        });
        self.pace = pace.unwrap_or_default();
        replayed
    }

    /// Draws the bar until the trace is replayed; the pace then.
    #[expect(clippy::needless_pass_by_value, reason = "a receiver can't be shared with a thread")]
    fn show(&self, nth: usize, source: &Source, progress: &Progress, ended: Receiver<()>) -> Pace {
        let (file_bytes, traces) = (self.file_bytes[nth], self.file_bytes.len());
        let later: u64 = self.file_bytes[nth + 1..].iter().sum();
        let bar = bar(file_bytes);
        let name = source.path.file_name().unwrap_or(source.path.as_os_str()).to_string_lossy().into_owned();
        let name = if traces > 1 { format!("{name} ({} of {traces})", nth + 1) } else { name };
        let (mut began, mut reading, mut before, mut pace, mut warned) =
            (Instant::now(), 0, self.pace, self.pace, false);
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(LOOK_EVERY) {
            let readings = progress.readings.load(Ordering::Relaxed).max(1);
            let bytes = progress.bytes.load(Ordering::Relaxed);
            let now = bytes.checked_div(file_bytes).unwrap_or(0).min(readings - 1);
            if now > reading {
                (before, reading, began) = (pace, now, Instant::now());
            }
            let read = bytes - reading * file_bytes;
            pace = before;
            let leg = if reading + 1 < readings { &mut pace.counting } else { &mut pace.replaying };
            *leg = leg.and(read, began.elapsed().as_secs_f64());
            let to_read = file_bytes.saturating_sub(read);
            let (to_count, to_replay) = match readings {
                1 => (0, to_read + later),
                _ if reading == 0 => (to_read + later, file_bytes + later),
                _ => (later, to_read + later),
            };
            let left = pace.left(to_count, to_replay).map(|seconds| format!("  {} left", human::span(seconds)));
            let what = if reading + 1 < readings { "counting" } else { "replaying" };
            bar.set_message(format!("{what} {name}"));
            bar.set_prefix(if file_bytes > 0 { left.unwrap_or_default() } else { String::new() });
            bar.set_position(read);
            let foresight_bytes = progress.foresight_bytes.load(Ordering::Relaxed);
            if foresight_bytes > FORESIGHT_BYTES && !std::mem::replace(&mut warned, true) {
                bar.suspend(|| tracing::warn!("{name}: what belady foresees takes {} of RAM by now, and grows with the trace; leave it out of --policy if that is too much", human::bytes(foresight_bytes)));
            }
        }
        bar.finish_and_clear();
        pace
    }
}

fn bar(file_bytes: u64) -> ProgressBar {
    let template = match file_bytes {
        0 => "{msg} {binary_bytes}  {binary_bytes_per_sec}",
        _ => "{msg} [{bar:30}] {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}{prefix}",
    };
    progress::bar(template, file_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_when_both_readings_are_known() {
        let mut pace = Pace::default();
        assert_eq!(pace.left(10, 20), None);
        pace.counting = pace.counting.and(100, 2.0);
        assert_eq!(pace.left(50, 100), None, "counting says nothing of replaying");
        pace.replaying = pace.replaying.and(1, 0.25);
        assert_eq!(pace.left(0, 100), None, "too soon");
        pace.replaying = pace.replaying.and(9, 1.75);
        assert_eq!(pace.left(50, 100), Some(1 + 20));
        assert_eq!(pace.left(0, 0), Some(0));
    }
}
