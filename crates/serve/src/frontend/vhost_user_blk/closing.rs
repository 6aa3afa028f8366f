// SPDX-License-Identifier: MIT OR Apache-2.0
//! Closes the files that clients have sent, where that keeps nobody waiting.
//!
//! close(2) asks the file system to write back. A file system of the client's own making (FUSE)
//! need never answer. A socket may have such files in it that were never looked at. So each closing
//! has a thread of its own, which is gone in microseconds as a rule. Up to [`CLOSINGS_MAX`]
//! closings of a front-end may hang; then it accepts no client (test:
//! `what_hangs_at_its_closing_keeps_nobody_waiting`).

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::limits::CONNECTIONS_MAX;

/// Closings of one front-end at a time: all its clients may leave at once.
pub(super) const CLOSINGS_MAX: usize = 2 * CONNECTIONS_MAX;

/// The closings of one front-end.
#[derive(Clone, Debug, Default)]
pub(super) struct Closing(Arc<AtomicUsize>);

impl Closing {
    /// Whether the most closings hang that there should be.
    pub(super) fn is_stuck(&self) -> bool {
        self.0.load(Ordering::Acquire) >= CLOSINGS_MAX
    }

    /// Drops it elsewhere.
    pub(super) fn close<T: Send + 'static>(&self, what: T) {
        let (what, count) = (ManuallyDrop::new(what), Arc::clone(&self.0));
        count.fetch_add(1, Ordering::AcqRel);
        let close = move || {
            drop(ManuallyDrop::into_inner(what));
            count.fetch_sub(1, Ordering::AcqRel);
        };
        // Without a thread the file stays open, and counts as a closing that hangs.
        let _ = std::thread::Builder::new().name("flashfront-close".to_owned()).spawn(close);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    /// A file whose owner answers when it wants to.
    struct Slow(Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.recv().unwrap();
        }
    }

    #[test]
    fn what_hangs_at_its_closing_keeps_nobody_waiting() {
        let closing = Closing::default();
        let answers: Vec<_> = (0..CLOSINGS_MAX)
            .map(|_| {
                assert!(!closing.is_stuck());
                let (answer, waits) = channel();
                closing.close(Slow(waits));
                answer
            })
            .collect();
        assert!(closing.is_stuck());
        answers[3].send(()).unwrap();
        while closing.is_stuck() {
            std::thread::yield_now();
        }
        for answer in answers {
            // The fourth is gone.
            let _ = answer.send(());
        }
    }
}
