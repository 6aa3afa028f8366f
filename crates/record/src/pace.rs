// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often a recording looks for new requests, and what it takes of a processor.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Between two looks, if they cost little: the kernel's buffers of some MiB hold what comes in that
/// time.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A look is followed by a pause of at least this many times its length. So a recording takes at
/// most a quarter of a processor. Events that don't fit the buffers meanwhile are counted as lost.
const PAUSE: u32 = 3;

/// When the next look is due.
pub(crate) struct Pace {
    began: Instant,
    limit: Option<Duration>,
    looked: Instant,
    processor: Duration,
}

impl Pace {
    /// Begins a recording of that length.
    pub(crate) fn start(limit: Option<Duration>) -> Self {
        let now = Instant::now();
        Self { began: now, limit, looked: now, processor: processor() }
    }

    /// Whether the time is over.
    pub(crate) fn is_over(&self) -> bool {
        self.limit.is_some_and(|limit| self.began.elapsed() >= limit)
    }

    /// A look begins.
    pub(crate) fn look(&mut self) {
        self.looked = Instant::now();
    }

    /// Waits until the next look; not beyond the end.
    pub(crate) fn wait(&self) {
        let pause = pause(self.looked.elapsed());
        let left = self.limit.map_or(Duration::MAX, |limit| limit.saturating_sub(self.began.elapsed()));
        std::thread::sleep(pause.min(left)); // pacing: nothing wakes a reader of these buffers in time
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Time that this process has spent on a processor since the beginning.
    pub(crate) fn processor(&self) -> Duration {
        processor().saturating_sub(self.processor)
    }
}

/// How long to wait after a look of this length.
fn pause(look: Duration) -> Duration {
    LOOK_EVERY.saturating_sub(look).max(look * PAUSE)
}

/// Returns the present time of the clock of the kernel's events.
pub(crate) fn monotonic_ns() -> u64 {
    duration(clock_gettime(ClockId::Monotonic)).as_nanos() as u64
}

/// Time that this process has spent on a processor.
#[must_use]
pub fn processor() -> Duration {
    duration(clock_gettime(ClockId::ProcessCPUTime))
}

fn duration(time: Timespec) -> Duration {
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_take_at_most_a_quarter_of_the_time() {
        for look_ms in [0, 1, 25, 80, 1000] {
            let look = Duration::from_millis(look_ms);
            let pause = pause(look);
            assert!(look * 4 <= look + pause && look + pause >= LOOK_EVERY, "{look:?} {pause:?}");
        }
    }
}
