// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log's waiters: who waits for which commit, and who goes on without the cache device.
//!
//! The log calls none of them: it returns them, and [`crate::turn`] knows what each does next.

use alloc::vec::Vec;

use super::log::Log;
use crate::cx::Cx;
use crate::fact::canary::Canary;
use crate::fact::io::RequestError;
use crate::format::Stream;
use crate::organ::members::FailureRecord;
use crate::organ::waiter::{Wait, Waiter, Woken};

impl Log {
    /// Waits until everything appended so far is durable, on a cache device that has not failed.
    pub(crate) fn await_durable(&mut self, waiter: Waiter, cx: &Cx<'_>) -> Wait {
        let clients = matches!(waiter, Waiter::Request(_) | Waiter::Piece(_));
        if clients && cx.facts.planted(Canary::AcknowledgedEarly) {
            return Wait::Durable;
        }
        if self.tails[Stream::Writes as usize].open.is_some() || !self.notes.is_empty() {
            self.unsealed_waiters.push(waiter);
        } else if self.last_sealed() > self.durable_seq {
            self.set_aside(waiter, self.last_sealed());
        } else {
            return Wait::Durable;
        }
        Wait::Later
    }

    /// Commits up to this one are durable: those who waited for them.
    pub(crate) fn flushed(&mut self, seq: u64) -> Woken {
        self.durable_seq = self.durable_seq.max(seq);
        let durable = self.durable_seq;
        while self.cleaned_sealed.pop_front_if(|it| it.0 <= durable).is_some() {}
        let mut woken = Vec::new();
        while let Some(entry) = self.waiters.first_entry().filter(|entry| *entry.key() <= durable) {
            woken.append(&mut entry.remove());
        }
        Woken(woken)
    }

    /// The cache device failed, and nothing will become durable on it any more: all who wait.
    pub(crate) fn leave(&mut self) -> Woken {
        self.notes.clear();
        self.cleaned.clear();
        self.cleaned_since = None;
        let unsealed = core::mem::take(&mut self.unsealed_waiters);
        let sealed = core::mem::take(&mut self.waiters);
        Woken(sealed.into_values().flatten().chain(unsealed).collect())
    }

    /// Wakes the waiters for the record that this cache must not be replayed.
    pub(crate) fn leave_record(&mut self) -> Woken {
        Woken(core::mem::take(&mut self.awaiting_record))
    }

    /// What becomes of a waiter that is neither a client's FLUSH nor a client's write.
    ///
    /// What should be forgotten durably is, once it is recorded that this cache must not be
    /// replayed.
    pub(crate) fn without_cache(&mut self, waiter: Waiter, failure: FailureRecord) -> Wait {
        match waiter {
            Waiter::Run(_) | Waiter::Sent(_) => Wait::Over(Ok(())),
            Waiter::Request(_) | Waiter::Piece(_) | Waiter::Freed(_) => Wait::Later,
            Waiter::Invalidated(_) | Waiter::Replaced(_) | Waiter::Dropped(_) => match failure {
                FailureRecord::Unknown => {
                    self.awaiting_record.push(waiter);
                    Wait::Later
                }
                FailureRecord::Durable => Wait::Over(Ok(())),
                FailureRecord::Impossible => Wait::Over(Err(RequestError::Io)),
            },
        }
    }
}
