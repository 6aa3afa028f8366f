// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ctrl-C, SIGTERM and SIGHUP as a value that can be waited for.
//!
//! SIGHUP is the end of the terminal, which ends a program in its foreground: cleanly, as Ctrl-C
//! does. To a daemon it says that the configuration was changed. What was ignored when the program
//! was started stays ignored (`nohup`, and Ctrl-C for a script's background jobs), but for SIGTERM.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The last signal that was heard; 0 = none.
static SIGNAL: AtomicU8 = AtomicU8::new(0);

/// A signal ended the command before its work was done; what that means for the user.
#[derive(Debug)]
pub(crate) struct Interrupted(pub(crate) &'static str);

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interrupted; {}", self.0)
    }
}

impl std::error::Error for Interrupted {}

/// The exit code of a command that failed after a signal, as shells have it: 130 after Ctrl-C, 143
/// after SIGTERM.
pub(crate) fn exit_code() -> Option<u8> {
    Some(SIGNAL.load(Ordering::Relaxed)).filter(|signal| *signal > 0).map(|signal| 128 + signal)
}

/// Calls `heard` for every such signal from now on, in a thread of its own.
pub(crate) fn on_signal(mut heard: impl FnMut() + Send + 'static) -> anyhow::Result<()> {
    listen(&unless_ignored(&[SIGINT, SIGHUP]), move |_| heard())
}

/// Calls `stop` for Ctrl-C and SIGTERM, and `hang_up` for SIGHUP, which a daemon also hears if it
/// was ignored before.
pub(crate) fn of_a_daemon(
    mut stop: impl FnMut() + Send + 'static,
    mut hang_up: impl FnMut() + Send + 'static,
) -> anyhow::Result<()> {
    let mut wanted = unless_ignored(&[SIGINT]);
    wanted.push(SIGHUP);
    listen(&wanted, move |signal| if signal == SIGHUP { hang_up() } else { stop() })
}

fn unless_ignored(signals: &[i32]) -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    signals.iter().copied().filter(|signal| !is_ignored(&status, *signal)).collect()
}

/// Listens to these signals, and to SIGTERM, in a thread that nothing holds up.
fn listen(wanted: &[i32], mut heard: impl FnMut(i32) + Send + 'static) -> anyhow::Result<()> {
    let wanted: Vec<i32> = wanted.iter().copied().chain([SIGTERM]).collect();
    let blocked: SigSet = wanted.iter().filter_map(|signal| Signal::try_from(*signal).ok()).collect();
    let mut signals = Signals::new(&wanted).context("can't listen to signals")?;
    // A daemon that starts its successor has blocked them, and programs inherit that.
    blocked.thread_unblock().context("can't listen to signals")?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                SIGNAL.store(u8::try_from(signal).unwrap_or(0), Ordering::Relaxed);
                heard(signal);
            }
        })
        .context("can't start a thread")?;
    // The kernel gives a signal to this thread if it may, and would wait for it when it sleeps
    // beside a device that hangs. Threads and programs that are started from now on take none,
    // either.
    blocked.thread_block().context("can't leave signals to another thread")
}

/// Returns a flag that the first signal sets. The second signal ends the program: a read, as from a
/// pipe, may never end.
pub(crate) fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let heard = Arc::clone(&stop);
    on_signal(move || {
        if heard.swap(true, Ordering::Relaxed) {
            std::process::exit(exit_code().map_or(1, i32::from));
        }
    })?;
    Ok(stop)
}

/// Whether /proc/PID/status says that the process ignores the signal. Where /proc is not mounted
/// none is.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// The first signal ends the waits.
pub(crate) struct Interrupt(Receiver<()>);

impl Interrupt {
    /// Takes the signals over.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let (heard, receiver) = mpsc::channel();
        on_signal(move || {
            // The waiting thread may be gone: the command is about to end.
            let _ = heard.send(());
        })?;
        Ok(Self(receiver))
    }

    /// Waits for a signal, for this time at most; true if there was one.
    pub(crate) fn wait(&self, at_most: Duration) -> bool {
        !matches!(self.0.recv_timeout(at_most), Err(RecvTimeoutError::Timeout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_seen() {
        let status = "Name:\tx\nSigBlk:\t0000000000000003\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert!(is_ignored(status, SIGHUP));
        assert!(!is_ignored(status, SIGINT) && !is_ignored("", SIGHUP));
    }
}
