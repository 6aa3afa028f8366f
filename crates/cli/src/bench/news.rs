// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress of a bench: a bar with the time left, and a line for each run that has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flashfront_bench::{Measured, News, Step};
use indicatif::{ProgressBar, ProgressStyle};

use super::{human, note};

const TEMPLATE: &str = "{prefix} [{bar:30}] {percent} %  about {msg} left";

pub(super) struct Told {
    bar: ProgressBar,
    quiet: bool,
    whole: Duration,
    stop: Arc<AtomicBool>,
    /// When the run under way began, and how much was left then.
    began: (Instant, Duration),
    filled_bytes: u64,
}

impl Told {
    pub(super) fn new(whole: Duration, stop: Arc<AtomicBool>, quiet: bool) -> Self {
        let style = ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(whole.as_millis() as u64) };
        let bar = bar.with_style(style.progress_chars("#>.")).with_prefix("bench");
        Self { bar, quiet, whole, stop, began: (Instant::now(), whole), filled_bytes: 0 }
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn show(&self) {
        let left = self.began.1.saturating_sub(self.began.0.elapsed());
        // A run that takes longer than thought makes the whole longer.
        let done = self.whole.saturating_sub(left);
        self.bar.set_position(done.as_millis() as u64);
        self.bar.set_message(human::span(left.as_secs()));
    }
}

impl News for Told {
    fn stop(&self) -> bool {
        self.show();
        self.stop.load(Ordering::Relaxed)
    }

    fn filled(&mut self, bytes: u64) {
        self.filled_bytes += bytes;
        self.bar.set_prefix(format!("filling files, {}", human::bytes(self.filled_bytes)));
    }

    fn begins(&mut self, step: &Step, left: Duration) {
        self.began = (Instant::now(), left);
        self.bar.set_prefix(format!("{}: {}", step.target_name, step.job_name));
        self.show();
    }

    fn ended(&mut self, step: &Step, measured: &Measured, disturbed: &[String]) {
        let figures = if measured.both.requests == 0 {
            super::text::seconds(measured.seconds)
        } else {
            let iops = human::count(measured.both.iops.round() as u64);
            format!("{iops} I/Os a second, p99 {}", human::latency((measured.both.p99_us * 1e3) as u64))
        };
        let line = format!("turn {}  {}  {}  {figures}", step.repeat, step.target_name, step.job_name);
        let line = if disturbed.is_empty() { line } else { format!("{line}  (not quiet: {})", disturbed.join("; ")) };
        if self.bar.is_hidden() {
            note(self.quiet, &(line + "\n"));
        } else {
            self.bar.println(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_indicatifs() {
        ProgressStyle::with_template(TEMPLATE).unwrap();
    }
}
