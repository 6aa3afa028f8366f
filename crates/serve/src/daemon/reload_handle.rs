// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes a changed configuration to a running daemon.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::stop::StopHandle;
use crate::config::Config;

/// Passes a new configuration to a running daemon, from any thread.
#[derive(Clone, Debug, Default)]
pub struct ReloadHandle(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_asked: AtomicBool,
    asked: Mutex<Option<Reload>>,
}

/// A configuration to be taken over.
pub struct Reload {
    /// The configuration as it is now; none: only the certificates are read anew.
    pub config: Option<Config>,
    /// Called when the configuration has been taken, so that the program takes over its own
    /// settings.
    pub taken: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reload").field("config", &self.config).finish_non_exhaustive()
    }
}

impl ReloadHandle {
    /// Asks the daemon that `stop` stops; of several asks that come together the last one counts.
    pub fn ask(&self, reload: Reload, stop: &StopHandle) {
        *self.0.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(reload);
        self.0.is_asked.store(true, Ordering::Release);
        stop.wake();
    }

    /// Takes the configuration that was handed over since the last call.
    pub(super) fn take(&self) -> Option<Reload> {
        if !self.0.is_asked.load(Ordering::Relaxed) || !self.0.is_asked.swap(false, Ordering::Acquire) {
            return None;
        }
        self.0.asked.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
