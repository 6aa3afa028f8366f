// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who waits for a commit to be durable, and what they do when it is, or when it never will be.

use super::Waiter;
use crate::canary::Canary;
use crate::cx::Cx;
use crate::format::Stream;
use crate::index::Flat;
use crate::io::{DeviceError, RequestError};
use crate::lane::Lane;
use crate::organ::flush::FlushWaiter;
use crate::shared::{FailureRecord, Up};

impl Lane {
    /// Waits until everything appended so far is durable; false if it is already.
    pub(crate) fn await_durable(&mut self, waiter: Waiter, cx: &mut Cx<'_>) -> bool {
        if cx.shared.cache_failed {
            self.without_cache(waiter, cx);
            return true;
        }
        let clients = matches!(waiter, Waiter::Request(_) | Waiter::Piece(_));
        if clients && cx.shared.planted(Canary::AcknowledgedEarly) {
            return false;
        }
        let log = &mut self.log;
        if log.tails[Stream::Writes as usize].open.is_some() || !log.notes.is_empty() {
            log.unsealed_waiters.push(waiter);
        } else if log.last_sealed() > log.durable_seq {
            let seq = log.last_sealed();
            log.set_aside(waiter, seq);
        } else {
            return false;
        }
        true
    }

    /// The flush of the cache device in flight is over.
    pub(crate) fn flushed(&mut self, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
        if result.is_err() {
            return;
        }
        self.log.durable_seq = self.log.durable_seq.max(self.log.flushing_seq);
        let durable = self.log.durable_seq;
        while self.log.cleaned_sealed.pop_front_if(|it| it.0 <= durable).is_some() {}
        while let Some(entry) = self.log.waiters.first_entry().filter(|entry| *entry.key() <= self.log.durable_seq) {
            for waiter in entry.remove() {
                self.durable(waiter, Ok(()), cx);
            }
        }
    }

    /// The cache device failed: nothing will become durable on it any more.
    pub(crate) fn leave_cache(&mut self, cx: &mut Cx<'_>) {
        self.log.notes.clear();
        self.log.cleaned.clear();
        self.log.cleaned_since = None;
        let unsealed = core::mem::take(&mut self.log.unsealed_waiters);
        let sealed = core::mem::take(&mut self.log.waiters);
        for waiter in sealed.into_values().flatten().chain(unsealed) {
            self.without_cache(waiter, cx);
        }
        if cx.shared.failure != FailureRecord::Unknown {
            for waiter in core::mem::take(&mut self.awaiting_record) {
                self.without_cache(waiter, cx);
            }
        }
    }

    /// Finds another way for one who waits for a commit. What should be durable has to be on the origin;
    /// what should be forgotten durably is, once it is recorded that this cache must not be replayed.
    fn without_cache(&mut self, waiter: Waiter, cx: &mut Cx<'_>) {
        match waiter {
            Waiter::Request(request) => {
                cx.shared.up.push(Up::UntilDrained { waiter: FlushWaiter::Request(request) });
            }
            Waiter::Piece(at) => cx.shared.up.push(Up::UntilDrained { waiter: FlushWaiter::Piece(self.id, at) }),
            Waiter::Run(_) => self.durable(waiter, Ok(()), cx),
            Waiter::Freed(_) => {}
            Waiter::Invalidated(_) | Waiter::Replaced(_) | Waiter::Dropped(_) => match cx.shared.failure {
                FailureRecord::Unknown => self.awaiting_record.push(waiter),
                FailureRecord::Durable => self.durable(waiter, Ok(()), cx),
                FailureRecord::Impossible => self.durable(waiter, Err(RequestError::Io), cx),
            },
        }
    }

    fn durable(&mut self, waiter: Waiter, result: Result<(), RequestError>, cx: &mut Cx<'_>) {
        match waiter {
            Waiter::Request(request) => {
                cx.shared.up.push(Up::PieceDone { request, error: result.err(), from_origin: false });
            }
            Waiter::Piece(at) => {
                self.pieces[at].error = result.err();
                self.finish(at, cx);
            }
            Waiter::Invalidated(at) | Waiter::Replaced(at) => match result {
                Ok(()) if waiter == Waiter::Invalidated(at) => self.write_origin(at, cx),
                Ok(()) => self.direct_written(at, cx),
                Err(error) => {
                    let range = self.pieces[at].first.0..self.pieces[at].end().0;
                    range.for_each(|flat| *self.unrecorded.entry(Flat(flat)).or_default() += 1);
                    self.fail(at, error, cx);
                }
            },
            Waiter::Freed(segment) => {
                if result.is_ok() {
                    self.freed_durable(segment, cx);
                }
            }
            Waiter::Run(run) => self.write_run(run, cx),
            Waiter::Dropped(flat) => {
                // Another time it may have been dropped since, and that is not said yet.
                if result.is_ok()
                    && let Some(times) = self.unrecorded.get_mut(&flat)
                {
                    *times -= 1;
                    if *times == 0 {
                        self.unrecorded.remove(&flat);
                    }
                }
            }
        }
    }
}
