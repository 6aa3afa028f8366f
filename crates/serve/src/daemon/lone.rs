// SPDX-License-Identifier: MIT OR Apache-2.0
//! A life of the daemon in a thread of its own, which ends with it.
//!
//! The driver of ublk takes the thread that served a device for the device's daemon. If that thread
//! is there when another one takes over, Linux 6.12 warns of a fault of its own (seen by `cargo x
//! vm ublk`).

use std::panic::resume_unwind;
use std::thread;

use super::error::{ServeError, failed};
use crate::config::{Config, Listener};

/// Lives once; where there are devices of ublk, in another thread.
pub(super) fn live_once<T: Send>(
    config: &Config,
    live: impl FnOnce() -> Result<T, ServeError> + Send,
) -> Result<T, ServeError> {
    if !config.listeners.iter().any(|listener| matches!(listener, Listener::Ublk(_))) {
        return live();
    }
    let log = tracing::dispatcher::get_default(Clone::clone);
    thread::scope(|scope| {
        let named = thread::Builder::new().name("pump".to_owned());
        let started = named.spawn_scoped(scope, || tracing::dispatcher::with_default(&log, live));
        started.map_err(failed("starting a thread"))?.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}
