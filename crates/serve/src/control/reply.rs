// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answer to a command, and who decides that the command is too late.
//!
//! The client's thread waits for a while. A command that has not begun by then is withdrawn, and
//! never begins. So an operator who hears "nothing was changed" can rely on that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, Sender, channel};
use std::time::Duration;

/// Stages of a command.
const WAITS: u8 = 0;
const BEGUN: u8 = 1;
const WITHDRAWN: u8 = 2;

/// The daemon's end: where the answer goes.
#[derive(Debug)]
pub struct Reply<T> {
    answer: Sender<T>,
    stage: Arc<AtomicU8>,
}

impl<T> Clone for Reply<T> {
    fn clone(&self) -> Self {
        Self { answer: self.answer.clone(), stage: Arc::clone(&self.stage) }
    }
}

impl<T> From<Sender<T>> for Reply<T> {
    /// An answer that is waited for without an end.
    fn from(answer: Sender<T>) -> Self {
        Self { answer, stage: Arc::default() }
    }
}

impl<T> Reply<T> {
    /// The command begins. Returns false if it was withdrawn: then it must not begin.
    #[must_use]
    pub(crate) fn begin(&self) -> bool {
        let stage = self.stage.compare_exchange(WAITS, BEGUN, Ordering::AcqRel, Ordering::Acquire);
        stage != Err(WITHDRAWN)
    }

    /// Sends the answer.
    ///
    /// # Errors
    /// When the client has gone, which is no error.
    pub fn send(&self, answer: T) -> Result<(), SendError<T>> {
        self.answer.send(answer)
    }
}

/// The client's end.
#[derive(Debug)]
pub(super) struct Answer<T> {
    answer: Receiver<T>,
    stage: Arc<AtomicU8>,
}

/// Both ends.
pub(super) fn reply<T>() -> (Reply<T>, Answer<T>) {
    let (sender, answer) = channel();
    let reply = Reply::from(sender);
    let stage = Arc::clone(&reply.stage);
    (reply, Answer { answer, stage })
}

impl<T> Answer<T> {
    /// Waits for the answer, and withdraws the command if it takes too long to begin. Returns why
    /// there is no answer.
    pub(super) fn wait(self, patience: Duration) -> Result<T, String> {
        match self.answer.recv_timeout(patience) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Disconnected) => Err("the daemon is stopping".to_owned()),
            Err(RecvTimeoutError::Timeout) => {
                let withdrawn = self.stage.compare_exchange(WAITS, WITHDRAWN, Ordering::AcqRel, Ordering::Acquire);
                let waited = patience.as_secs();
                Err(if withdrawn.is_ok() {
                    format!(
                        "nothing was changed: the command had not begun after {waited} s, and was withdrawn; another change is under way, or the daemon hangs: see its log"
                    )
                } else {
                    format!(
                        "the command has begun, and had no end after {waited} s: it goes on; `flashfront status`, `flashfront volume list` and the daemon's log tell what becomes of it"
                    )
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_has_not_begun_in_time_never_begins() {
        let (reply, answer) = reply::<()>();
        let message = answer.wait(Duration::ZERO).expect_err("nobody answers");
        assert!(message.contains("nothing was changed"), "{message}");
        assert!(!reply.begin() && !reply.clone().begin());
    }

    #[test]
    fn a_command_that_has_begun_goes_on() {
        let (reply, answer) = reply::<()>();
        assert!(reply.begin() && reply.clone().begin());
        let message = answer.wait(Duration::ZERO).expect_err("nobody answers");
        assert!(message.contains("it goes on"), "{message}");
        assert!(reply.begin());
    }
}
