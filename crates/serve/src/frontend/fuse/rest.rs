// SPDX-License-Identifier: MIT OR Apache-2.0
//! The place where fuser's thread rests between two requests, while clients are held.
//!
//! The thread takes one request after the other. While it rests the kernel keeps what comes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(super) struct Rest {
    wanted: AtomicBool,
    rests: Mutex<bool>,
    ended: Condvar,
}

impl Rest {
    /// The thread is to rest when it passes here next.
    pub(super) fn begin(&self) {
        self.wanted.store(true, Ordering::SeqCst);
    }

    /// The thread goes on.
    pub(super) fn end(&self) {
        let _rests = self.rests();
        self.wanted.store(false, Ordering::SeqCst);
        self.ended.notify_all();
    }

    /// Whether the thread rests, and has taken no request that the pump does not have.
    pub(super) fn is_kept(&self) -> bool {
        *self.rests()
    }

    /// Rests if that is wanted, and `tell`s first that it does. For fuser's thread.
    pub(super) fn pass(&self, tell: impl FnOnce()) {
        if !self.wanted.load(Ordering::SeqCst) {
            return;
        }
        let mut rests = self.rests();
        *rests = true;
        tell();
        while self.wanted.load(Ordering::SeqCst) {
            rests = self.ended.wait(rests).unwrap_or_else(PoisonError::into_inner);
        }
        *rests = false;
    }

    fn rests(&self) -> MutexGuard<'_, bool> {
        // Nothing here can panic halfway through a change.
        self.rests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn the_thread_rests_from_the_order_to_the_end() {
        let rest = Rest::default();
        rest.pass(|| panic!("nobody wants that"));
        rest.begin();
        assert!(!rest.is_kept());
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            let passing = scope.spawn(|| rest.pass(|| tell.send(()).unwrap()));
            told.recv().unwrap();
            assert!(rest.is_kept() && !passing.is_finished());
            rest.end();
        });
        assert!(!rest.is_kept());
    }
}
