// SPDX-License-Identifier: MIT OR Apache-2.0
//! The history between two threads: the daemon's loop records, the HTTP port reads.
//!
//! The loop never waits for a reader: if the history is being read at this moment, it records in
//! its next turn.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use flashfront_engine::Time;

use super::{History, HistoryReport, Query, Refused};
use crate::frontend::desk::Clock;

/// The history of a daemon that may not serve yet.
#[derive(Clone, Debug, Default)]
pub struct SharedHistory(Arc<Mutex<Option<Kept>>>);

/// A history, the clock, and for how long the daemon had served before that began.
type Kept = (History, Clock, u64);

impl SharedHistory {
    /// The daemon begins to serve. It had served for `before_ns` when the clock began.
    pub(crate) fn begin(&self, history: History, clock: Clock, before_ns: u64) {
        *self.lock() = Some((history, clock, before_ns));
    }

    fn lock(&self) -> MutexGuard<'_, Option<Kept>> {
        // Nothing here can panic halfway through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `record` record, unless the history is being read. Returns its result.
    pub(crate) fn record<T>(&self, record: impl FnOnce(&mut History) -> T) -> Option<T> {
        let mut history = self.0.try_lock().ok()?;
        history.as_mut().map(|(history, ..)| record(history))
    }

    /// Looks at the history, if it has begun. Waits for who reads it now.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&History) -> T) -> Option<T> {
        self.lock().as_ref().map(|(history, ..)| look(history))
    }

    /// Answers a question.
    pub(crate) fn read(&self, query: &Query) -> Result<HistoryReport, Refused> {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let kept = self.lock();
        let (history, clock, before_ns) = kept.as_ref().ok_or(Refused::Early)?;
        history.read(query, Time(clock.now().0 + before_ns), unix)
    }
}
