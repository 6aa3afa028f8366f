// SPDX-License-Identifier: MIT OR Apache-2.0
//! The history between two threads: the daemon's loop records, the HTTP port reads.
//!
//! The loop never waits for a reader: if the history is being read at this moment, it records in
//! its next turn.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{History, HistoryReport, Query, Refused};
use crate::frontend::desk::Clock;

/// The history of a daemon that may not serve yet.
#[derive(Clone, Debug, Default)]
pub struct SharedHistory(Arc<Mutex<Option<(History, Clock)>>>);

impl SharedHistory {
    /// The daemon begins to serve.
    pub(crate) fn begin(&self, history: History, clock: Clock) {
        *self.lock() = Some((history, clock));
    }

    fn lock(&self) -> MutexGuard<'_, Option<(History, Clock)>> {
        // Nothing here can panic halfway through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `record` record, unless the history is being read. Returns its result.
    pub(crate) fn record<T>(&self, record: impl FnOnce(&mut History) -> T) -> Option<T> {
        let mut history = self.0.try_lock().ok()?;
        history.as_mut().map(|(history, _)| record(history))
    }

    /// Answers a question.
    pub(crate) fn read(&self, query: &Query) -> Result<HistoryReport, Refused> {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let kept = self.lock();
        let (history, clock) = kept.as_ref().ok_or(Refused::Early)?;
        history.read(query, clock.now(), unix)
    }
}
