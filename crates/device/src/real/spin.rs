// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a thread looks out for work before it sleeps.
//!
//! To sleep and to be woken is half of the time of a client that waits for each answer (ADR 0016).
//! So a wait that is likely to be short is spent looking out, and other threads may run meanwhile
//! (`sched_yield`). The time adapts as KVM's halt polling does (`halt_poll_ns` in Linux). It grows
//! while waits end soon, and is given up when they don't, so an idle daemon takes no processor
//! time.

use std::time::{Duration, Instant};

/// The longest time of a look-out, and the shortest that is worth it. A read of a fast SSD takes
/// longer than that: no thread looks out for it.
const MOST: Duration = Duration::from_micros(50);
const LEAST: Duration = Duration::from_micros(10);

/// The memory of one thread about its waits.
///
/// The thread calls [`Spin::waited`] after each wait, and before a wait that [`Spin::is_worth_it`]
/// [`Spin::look_out`].
#[derive(Debug, Default)]
pub struct Spin {
    allowed: Duration,
}

impl Spin {
    /// Looks out for something to do; says whether there is.
    pub fn look_out(&self, began: Instant, mut ready: impl FnMut() -> bool) -> bool {
        while began.elapsed() < self.allowed {
            if ready() {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    /// Whether the next wait should begin by looking out.
    #[must_use]
    pub fn is_worth_it(&self) -> bool {
        !self.allowed.is_zero()
    }

    /// Notes that a wait, all of it, took this long.
    pub fn waited(&mut self, took: Duration) {
        if took > MOST {
            self.allowed /= 2;
            if self.allowed < LEAST {
                self.allowed = Duration::ZERO;
            }
        } else if took > self.allowed {
            self.allowed = (self.allowed * 2).clamp(LEAST, MOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_waits_are_looked_out_for_and_long_ones_are_not() {
        let mut spin = Spin::default();
        assert!(!spin.is_worth_it());
        (0..4).for_each(|_| spin.waited(Duration::from_micros(30)));
        assert_eq!(spin.allowed, Duration::from_micros(40));
        assert!(spin.look_out(Instant::now(), || true));
        (0..3).for_each(|_| spin.waited(Duration::from_millis(1)));
        assert!(!spin.is_worth_it());
        assert!(!spin.look_out(Instant::now(), || true));
    }

    #[test]
    fn it_ends_without_anything_to_do() {
        let spin = Spin { allowed: LEAST };
        assert!(!spin.look_out(Instant::now(), || false));
    }
}
