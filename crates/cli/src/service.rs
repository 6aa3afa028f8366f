// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells a service manager the daemon's state: sd_notify(3), for units of `Type=notify`.
//!
//! Without a manager (no NOTIFY_SOCKET) nothing happens. A manager that can't be told does not stop
//! the daemon. It would take the unit for one that never became ready, and the log says why.

use sd_notify::NotifyState;

/// Clients may connect there.
pub(crate) fn ready(uris: &[String]) {
    tell(&[NotifyState::Ready, NotifyState::Status(&format!("serving at {}", uris.join(" ")))]);
}

/// A stop was asked for: requests are finished, and a checkpoint is written.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

/// Another process serves from now on. It is the service's main process, so that the end of this
/// one is no end of the service.
pub(crate) fn succeeded(pid: u32) {
    tell(&[NotifyState::MainPid(pid)]);
}

/// Whether a service manager knows by [`succeeded`] which process serves. The first process of a
/// container is known to its starter by number, whatever else is told.
pub(crate) fn is_told() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some() && std::process::id() != 1
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("the service manager can't be told (NOTIFY_SOCKET): {error}");
    }
}
