// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals of a daemon: the first asks for a clean stop, a later one ends the process at once.
//!
//! A second signal within a second is the same stop: Ctrl-C reaches a process twice when a wrapper
//! passes it on, too. Nothing that hangs holds the process: neither a device in the kernel, nor a
//! thread, nor whoever reads the log.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::Context;
use flashfront_serve::daemon::StopHandle;

use crate::interrupt;

/// A signal that comes so soon after the first belongs to the same wish.
const SAME_STOP: Duration = Duration::from_secs(1);
/// The longest clean stop: 30 s for what is above (`daemon::above`), and 60 s for requests, a
/// checkpoint and the origin's flush. A unit's TimeoutStopSec must be longer (docs/guide/stop.md).
const STOP_MAX: Duration = Duration::from_secs(90);
/// What an end at once may take to unmount and to remove sockets, if nothing hangs.
const AT_ONCE_MAX: Duration = Duration::from_millis(1500);

/// The time that the stop waits for its first line to be in the log.
const SAID_WITHIN: Duration = Duration::from_millis(200);

/// What a signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Stop,
    SameStop,
    AtOnce,
}

/// The signals so far.
#[derive(Debug, Default)]
struct Heard {
    first: Option<Instant>,
}

impl Heard {
    fn hear(&mut self, now: Instant) -> Meaning {
        match self.first {
            None => {
                self.first = Some(now);
                Meaning::Stop
            }
            Some(first) if now.saturating_duration_since(first) < SAME_STOP => Meaning::SameStop,
            Some(_) => Meaning::AtOnce,
        }
    }
}

/// Passes signals on as wishes to stop. The process ends in bounded time after the first.
pub(crate) fn on_signals(stop: &StopHandle) -> anyhow::Result<()> {
    interrupt::on_signal(asker(stop, || {})?)
}

/// Watches the signals of a daemon that serves: `stopping` is called at the first such signal, and
/// `hang_up` for every SIGHUP.
pub(crate) fn on_signals_of_a_daemon(
    stop: &StopHandle,
    stopping: impl FnMut() + Send + 'static,
    hang_up: impl FnMut() + Send + 'static,
) -> anyhow::Result<()> {
    interrupt::of_a_daemon(asker(stop, stopping)?, hang_up)
}

/// What is to be called for every signal that asks for a stop.
fn asker(
    stop: &StopHandle,
    mut stopping: impl FnMut() + Send + 'static,
) -> anyhow::Result<impl FnMut() + Send + 'static> {
    let guarded = stop.clone();
    std::thread::Builder::new()
        .name("stop-guard".to_owned())
        .spawn(move || guard(&guarded))
        .context("can't start a thread")?;
    let (stop, mut heard) = (stop.clone(), Heard::default());
    Ok(move || match heard.hear(Instant::now()) {
        Meaning::Stop => {
            let (said, hears) = channel::<()>();
            say(move || {
                let _said = said;
                tracing::info!(
                    "asked to stop. Another signal, a second from now or later, ends at once: what was flushed is safe then, writes of the last second that nobody has flushed may be lost, and the next start replays the log"
                );
            });
            // What the stop says comes behind that, if the reader of the log doesn't hang.
            let _ = hears.recv_timeout(SAID_WITHIN);
            stop.stop();
            stopping();
        }
        Meaning::SameStop => {}
        Meaning::AtOnce => {
            stop.stop_at_once();
            say(|| tracing::warn!("asked to stop once more: ending at once"));
        }
    })
}

/// Ends the process when a stop takes too long. Where all is well it has ended before.
fn guard(stop: &StopHandle) {
    stop.wait_until_asked();
    if !stop.wait_until_at_once(STOP_MAX) {
        say(|| {
            tracing::error!(
                "not stopped within {} s: ending at once; the next start replays the log",
                STOP_MAX.as_secs()
            );
        });
        stop.stop_at_once();
    }
    std::thread::sleep(AT_ONCE_MAX);
    // Without destructors, which would wait for I/O.
    signal_hook::low_level::exit(1);
}

/// Writes to the log by another thread: the reader of the log may be what hangs.
fn say(line: impl FnOnce() + Send + 'static) {
    // Without memory for a thread the stop goes on, unsaid.
    let _ = std::thread::Builder::new().name("last-words".to_owned()).spawn(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_signal_within_a_second_is_the_same_stop() {
        let (mut heard, start) = (Heard::default(), Instant::now());
        let mut at = |ms| heard.hear(start + Duration::from_millis(ms));
        assert_eq!([at(0), at(0), at(999)], [Meaning::Stop, Meaning::SameStop, Meaning::SameStop]);
        assert_eq!([at(1000), at(1001)], [Meaning::AtOnce, Meaning::AtOnce]);
    }
}
