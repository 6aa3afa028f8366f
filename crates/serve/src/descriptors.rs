// SPDX-License-Identifier: MIT OR Apache-2.0
//! File descriptors: as many as the clients need that may come, and what is said when there are
//! none left.
//!
//! The limit of a process has two parts: a soft one, which counts, and a hard one, up to which
//! anybody may raise it. The soft one is 1024 as a rule, for old programs that can't count further.

use std::fmt::Display;
use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::{Config, Listener};
use crate::control;
use crate::frontend::nbd::NbdOptions;
use crate::http;

/// What the daemon itself needs: devices, rings, event queues, the log.
const OWN: u64 = 64;
/// Of each carrier.
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

/// Clients that could not be accepted at a socket. It is said once for each time that it comes to
/// that.
#[derive(Debug, Default)]
pub(crate) struct Unaccepted(bool);

impl Unaccepted {
    /// A client could not be accepted at `place`, and waits.
    pub(crate) fn failed(&mut self, place: impl Display, error: &io::Error) {
        if self.is_news() {
            tracing::warn!("{place}: {}; who comes now waits, and is accepted when that is over", words(error));
        }
    }

    /// Notes that a client was accepted, or none waits: there are descriptors.
    pub(crate) const fn over(&mut self) {
        self.0 = false;
    }

    const fn is_news(&mut self) -> bool {
        !std::mem::replace(&mut self.0, true)
    }
}

/// Why a client could not be accepted, and what to do.
pub(crate) fn words(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => {
            let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
            format!(
                "no file descriptor is left of the {limit} that this process may have ({error}): raise the limit, by \
                 LimitNOFILE= in the service's unit or `ulimit -n` before `serve`"
            )
        }
        Some(Errno::NFILE) => {
            format!("this machine has no file descriptor left ({error}): raise fs.file-max, or see who has them (lsof)")
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_there_are_none_left_is_said_once_a_time() {
        let mut unaccepted = Unaccepted::default();
        assert!(unaccepted.is_news() && !unaccepted.is_news());
        unaccepted.over();
        assert!(unaccepted.is_news());
    }

    #[test]
    fn it_is_said_what_to_do() {
        let words = |errno: Errno| words(&errno.into());
        assert!(words(Errno::MFILE).contains("LimitNOFILE=") && words(Errno::MFILE).contains("ulimit -n"));
        assert!(words(Errno::NFILE).contains("fs.file-max"));
        assert_eq!(words(Errno::NOMEM), io::Error::from(Errno::NOMEM).to_string());
    }
}
