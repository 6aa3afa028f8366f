// SPDX-License-Identifier: MIT OR Apache-2.0
//! An operator's order to upgrade, or to go on without a cache, or with another or one of another
//! size. It is on its way from the control socket to the daemon.
//!
//! The operator's connection comes along. The control socket changes hands before there is an
//! answer, and the threads that serve it end.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

/// How long an operator may take to read the answer.
const ANSWER_READ_WITHIN: Duration = Duration::from_secs(1);

/// An order to upgrade.
#[derive(Debug)]
pub(crate) struct UpgradeOrder {
    pub(crate) wish: Wish,
    /// The operator's connection.
    pub(crate) operator: Operator,
}

/// What is to serve the clients from now on.
#[derive(Debug)]
pub(crate) enum Wish {
    Program {
        /// The new program; the one that was started, if there is none.
        program: Option<PathBuf>,
        /// Close connections that can't be handed over.
        disconnect: bool,
    },
    /// This process, without its cache.
    Detach,
    /// This process, with the cache on this device.
    Attach {
        device: PathBuf,
        /// Destroy what is on it.
        force: bool,
    },
    /// This process, with the cache as large as its device is now.
    Grow,
    /// This process, with a cache of that size.
    Shrink { bytes: u64 },
}

/// The operator who waits for the end of an upgrade.
#[derive(Debug)]
pub(crate) struct Operator(UnixStream);

impl Operator {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self(stream)
    }

    /// Answers. An operator that has gone is no error.
    pub(crate) fn answer(mut self, response: &impl Serialize) {
        let Ok(mut line) = serde_json::to_vec(response) else { return };
        line.push(b'\n');
        let told = self.0.set_write_timeout(Some(ANSWER_READ_WITHIN)).and_then(|()| self.0.write_all(&line));
        if let Err(error) = told {
            tracing::debug!("upgrade: the operator can't be told: {error}");
        }
    }
}

/// Passes orders to the daemon, from any thread. One is taken at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpgradeHandle(Arc<Mutex<Option<UpgradeOrder>>>);

impl UpgradeHandle {
    /// Leaves an order for the daemon, which is to be woken then. The connection of an operator
    /// whose order has not been taken until then is closed.
    pub(crate) fn ask(&self, order: UpgradeOrder) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(order);
    }

    /// Takes the order that was left since the last call.
    pub(crate) fn take(&self) -> Option<UpgradeOrder> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
