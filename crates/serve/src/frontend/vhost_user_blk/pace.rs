// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long rings are looked at before the pump sleeps until it is kicked.
//!
//! A kick costs the guest an exit, the pump a wakeup, and both the time until the other one runs.
//! So rings are polled for a while after each request, for at most [`AWAKE_MAX_NS`]. Where requests
//! come with longer pauses they are not polled, so that a slow load costs no processor time. The
//! length follows the pauses that were slept through, as KVM's halt polling does
//! (Documentation/virt/kvm/halt-polling.rst of Linux).

use flashfront_engine::Time;

/// A wakeup takes about as long.
const AWAKE_MAX_NS: u64 = 50_000;
const AWAKE_MIN_NS: u64 = 10_000;

/// When to sleep.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When there was a request.
    last: Time,
    awake_ns: u64,
    asleep: bool,
}

impl Pace {
    /// Notes that there are new requests.
    pub(super) fn found(&mut self, now: Time) {
        if std::mem::take(&mut self.asleep) {
            let worth_it = now.since_ns(self.last) <= AWAKE_MAX_NS;
            self.awake_ns = if worth_it { (self.awake_ns * 2).clamp(AWAKE_MIN_NS, AWAKE_MAX_NS) } else { 0 };
        }
        self.last = now;
    }

    /// Whether to look again at once.
    pub(super) fn is_awake(&self, now: Time) -> bool {
        now.since_ns(self.last) < self.awake_ns
    }

    /// Notes that there is nothing to do, and that it is not worth waiting for.
    pub(super) fn rest(&mut self) {
        self.asleep = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests with pauses of this length; the time awake without finding one, for each.
    fn wasted_ns(pause_ns: u64) -> u64 {
        let (mut pace, mut now, mut wasted) = (Pace::default(), Time(0), 0);
        for _ in 0..1000 {
            let next = now.plus_ns(pause_ns);
            while now < next && pace.is_awake(now) {
                now = now.plus_ns(1000);
                wasted += 1000;
            }
            if now < next {
                pace.rest();
                now = next;
            }
            pace.found(now);
        }
        wasted / 1000
    }

    #[test]
    fn quick_requests_are_waited_for_and_slow_ones_are_not() {
        assert!((15_000..=20_000).contains(&wasted_ns(20_000)), "always awake");
        assert_eq!(wasted_ns(60_000), 0, "asleep between them");
        assert_eq!(wasted_ns(1_000_000), 0);
    }
}
