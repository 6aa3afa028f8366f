// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a daemon is asked to stop, from any thread: cleanly, or at once.
//!
//! Asking is all that happens here, and never waits. What a stop does is in `leave`, and how
//! signals ask is the program's affair.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mio::Waker;

/// Asks a daemon to stop, from any thread.
#[derive(Clone, Debug, Default)]
pub struct StopHandle(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// An [`Asked`], or 0; it only grows.
    asked: AtomicU8,
    /// Held while `asked` grows, for threads that wait for that.
    lock: Mutex<()>,
    grown: Condvar,
    waker: Mutex<Option<Arc<Waker>>>,
}

/// The ways to stop a daemon; 0 is no stop.
#[derive(Clone, Copy, Debug)]
enum Asked {
    CleanStop = 1,
    AtOnce = 2,
}

impl StopHandle {
    /// Asks for a clean stop. Asked for again, nothing changes.
    pub fn stop(&self) {
        self.ask(Asked::CleanStop);
    }

    /// Asks for an end at once, as a crash would leave the cache.
    pub fn stop_at_once(&self) {
        self.ask(Asked::AtOnce);
    }

    /// Waits until any stop is asked for.
    pub fn wait_until_asked(&self) {
        self.wait(Asked::CleanStop, None);
    }

    /// Waits until an end at once is asked for; returns false if that does not happen within
    /// `at_most`.
    #[must_use]
    pub fn wait_until_at_once(&self, at_most: Duration) -> bool {
        self.wait(Asked::AtOnce, Some(at_most))
    }

    pub(super) fn is_asked(&self) -> bool {
        self.asked() >= Asked::CleanStop as u8
    }

    /// Whether an end at once was asked for.
    #[must_use]
    pub fn is_at_once(&self) -> bool {
        self.asked() >= Asked::AtOnce as u8
    }

    /// Sets the waker that a stop wakes, in place of that of an earlier life of the daemon. A stop
    /// that was asked for before shows in [`Self::is_asked`].
    pub(super) fn wakes(&self, waker: &Arc<Waker>) {
        *self.0.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(waker));
    }

    /// Wakes the daemon's loop.
    pub(super) fn wake(&self) {
        if let Some(waker) = &*self.0.waker.lock().unwrap_or_else(PoisonError::into_inner)
            && let Err(error) = waker.wake()
        {
            tracing::error!("can't wake the daemon: {error}");
        }
    }

    fn asked(&self) -> u8 {
        self.0.asked.load(Ordering::SeqCst)
    }

    fn ask(&self, for_what: Asked) {
        {
            let _held = self.0.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.0.asked.fetch_max(for_what as u8, Ordering::SeqCst);
            self.0.grown.notify_all();
        }
        self.wake();
    }

    fn wait(&self, for_what: Asked, at_most: Option<Duration>) -> bool {
        let deadline = at_most.map(|at_most| Instant::now() + at_most);
        let mut held = self.0.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while self.asked() < for_what as u8 {
            held = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => self.0.grown.wait(held).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return false,
                Some(left) => self.0.grown.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clean_stop_asked_for_twice_is_one_stop() {
        let stop = StopHandle::default();
        assert!(!stop.is_asked());
        stop.stop();
        stop.stop();
        stop.wait_until_asked();
        assert!(stop.is_asked() && !stop.is_at_once());
        assert!(!stop.wait_until_at_once(Duration::ZERO));
        let other = stop.clone();
        let waiting = std::thread::spawn(move || other.wait_until_at_once(Duration::from_secs(3600)));
        stop.stop_at_once();
        stop.stop();
        assert!(waiting.join().unwrap() && stop.is_at_once());
    }
}
