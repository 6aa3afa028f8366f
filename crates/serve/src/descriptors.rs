// SPDX-License-Identifier: MIT OR Apache-2.0
//! File descriptors: as many as the clients need that may come.
//!
//! The limit of a process has two parts. The soft one counts; any process may raise it up to the
//! hard one. The soft one is 1024 as a rule, for old programs that can't count further.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::{Config, Listener};
use crate::control;
use crate::frontend::nbd::NbdOptions;
use crate::http;

/// Descriptors of the daemon itself: devices, rings, event queues, the log.
const OWN: u64 = 64;
/// Descriptors of each carrier.
const CARRIER: u64 = 8;
/// A guest with as many queues as it may have, three descriptors for each, with its memory; and
/// some clients that say nothing.
const VHOST: u64 = 256;
/// The mount, and a channel for each of its threads; a device, its queue and its ring.
const FUSE_OR_UBLK: u64 = 16;
/// A client's socket, and the copy that ends its thread.
const OPERATOR: u64 = 2;

/// Descriptors that are needed if all clients are there.
fn needed(config: &Config) -> u64 {
    let listeners = config.listeners.iter().map(|it| match it {
        Listener::Nbd(_) => 1 + u64::from(NbdOptions::default().connections_max),
        Listener::VhostUserBlk { .. } => VHOST,
        Listener::Fuse(_) | Listener::Ublk(_) => FUSE_OR_UBLK,
    });
    let http = if config.http.is_some() { http::CONNECTIONS_MAX as u64 + OWN / 4 } else { 0 };
    let operators = OPERATOR * control::CONNECTIONS_MAX as u64;
    OWN + listeners.sum::<u64>() + CARRIER * config.carriers() as u64 + operators + http
}

/// Raises the soft limit if it is too low for the clients that may come, and warns if that is not
/// enough.
pub(crate) fn prepare(config: &Config) {
    let (needed, limit) = (needed(config), getrlimit(Resource::Nofile));
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= needed);
    if enough(limit.current) {
        return;
    }
    if limit.current != limit.maximum
        && let Err(errno) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
    {
        tracing::warn!("can't raise the limit of open files: {errno}");
    }
    let now = getrlimit(Resource::Nofile).current;
    if !enough(now) {
        tracing::warn!(
            "{} file descriptors are all that this process may have, and all clients that may come need {needed}: further \
             ones will wait. Raise the limit: LimitNOFILE={needed} in the service's unit, or `ulimit -n {needed}` before \
             `serve`",
            now.unwrap_or(u64::MAX)
        );
    }
}
