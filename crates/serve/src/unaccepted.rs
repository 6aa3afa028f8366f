// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that could not be accepted, for want of file descriptors as a rule.

use std::fmt::Display;
use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

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
