// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operator's log on stderr: a line per event, nothing on the path of an I/O.
//!
//! Warnings and errors that repeat are left out and counted (`repeats`). A cache device that has
//! rotted has as many corrupt blocks as it has blocks. With `-v` nothing is left out. Two lines are
//! of one kind if the same place in the program writes them, about the same thing. That is the text
//! before the first `: `, as a path or `volume NAME`.

use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use flashfront_serve::config::LogLevel;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

mod repeats;
mod stamps;

use crate::human::one_line;

use repeats::{LeftOut, Repeats};
use stamps::{Stamps, stderr_is_the_journal};

/// Lines that say how many were left out, which are never left out.
const LEFT_OUT: &str = "left_out";

/// Returns the level for a number of `-v`: -1 = errors, 0 = warnings, 1 = news, 2 and more =
/// details.
pub(crate) fn level_of(level: i8) -> LogLevel {
    match level {
        ..0 => LogLevel::Error,
        0 => LogLevel::Warn,
        1 => LogLevel::Info,
        2 => LogLevel::Debug,
        _ => LogLevel::Trace,
    }
}

/// Starts it. What is returned tells of the lines left out when it is dropped. `stamped`: lines
/// begin with the time, unless the journal adds it.
pub(crate) fn start(level: i8, stamped: bool) -> Log {
    let shared = Arc::<Shared>::default();
    shared.max.store(level_of(level) as u8, Ordering::Relaxed);
    let lines = fmt::layer()
        .with_target(level > 1)
        .with_ansi(crate::terminal::Paint::stderr().has_colours())
        .with_writer(std::io::stderr)
        // A line is a line, whatever paths and names are in it.
        .fmt_fields(fmt::format::debug_fn(|out, _, value| out.write_str(&one_line(&format!("{value:?}")))))
        // It would say so on stderr, which panics: a daemon outlives the reader of its log.
        .log_internal_errors(false);
    let lines = if stamped && !stderr_is_the_journal() {
        lines.with_timer(Stamps).boxed()
    } else {
        lines.without_time().boxed()
    };
    tracing_subscriber::registry().with(lines.with_filter(Sparing { shared: Arc::clone(&shared) })).init();
    Log(shared)
}

/// The log of this process.
#[derive(Debug)]
pub(crate) struct Log(Arc<Shared>);

impl Log {
    /// Returns the dial that changes the level.
    pub(crate) fn dial(&self) -> Dial {
        Dial(Arc::clone(&self.0))
    }
}

/// Changes what the log tells.
#[derive(Clone, Debug)]
pub(crate) struct Dial(Arc<Shared>);

impl Dial {
    /// Tells messages up to this level from now on.
    pub(crate) fn set(&self, level: LogLevel) {
        self.0.max.store(level as u8, Ordering::Relaxed);
        // Each place in the program remembers whether it is heard.
        tracing::callsite::rebuild_interest_cache();
    }

    /// Changes the level of a running daemon, and says so by the level that tells more.
    pub(crate) fn change(&self, level: LogLevel) {
        let told = || tracing::info!("reload: log_level is {}", level.name());
        match (level as u8).cmp(&self.0.max.load(Ordering::Relaxed)) {
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Less => {
                told();
                self.set(level);
            }
            std::cmp::Ordering::Greater => {
                self.set(level);
                told();
            }
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.lock().end(Instant::now()).into_iter().for_each(tell);
    }
}

/// A line of which others like it may have been left out.
#[derive(Debug)]
struct Line {
    is_error: bool,
    text: String,
}

/// Which place in the program says it, of what.
type Kind = (Identifier, String);

#[derive(Debug, Default)]
struct Shared {
    /// What is told, a [`LogLevel`].
    max: AtomicU8,
    repeats: Mutex<Repeats<Kind, Line>>,
    /// There is something to be told in time.
    left_out: Condvar,
    teller: OnceLock<()>,
}

impl Shared {
    fn max(&self) -> Level {
        const ALL: [Level; 5] = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
        ALL[usize::from(self.max.load(Ordering::Relaxed)).min(ALL.len() - 1)]
    }

    fn lock(&self) -> MutexGuard<'_, Repeats<Kind, Line>> {
        // Nothing here can panic halfway through a change.
        self.repeats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a line is to be written now.
    fn take(self: &Arc<Self>, kind: Kind, line: Line) -> bool {
        if self.lock().take(kind, line, Instant::now()) {
            return true;
        }
        self.teller.get_or_init(|| {
            let shared = Arc::clone(self);
            // Without that thread it is told at the end.
            let _ = std::thread::Builder::new().name("log".to_owned()).spawn(move || shared.tell_in_time());
        });
        self.left_out.notify_one();
        false
    }

    /// Tells of what is left out, in each window once, as long as the process lives.
    fn tell_in_time(&self) {
        let mut repeats = self.lock();
        loop {
            let now = Instant::now();
            // With the lock, so that the process does not end before it is told. The lines
            // themselves need none.
            repeats.over(now).into_iter().for_each(tell);
            repeats = match repeats.next() {
                Some(at) => {
                    let wait = self.left_out.wait_timeout(repeats, at.saturating_duration_since(now));
                    wait.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.left_out.wait(repeats).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

fn tell(left_out: LeftOut<Line>) {
    let Line { is_error, text } = &left_out.last;
    let text = summary(left_out.lines, left_out.seconds, text);
    if *is_error {
        tracing::error!(target: LEFT_OUT, "{text}");
    } else {
        tracing::warn!(target: LEFT_OUT, "{text}");
    }
}

fn summary(lines: u64, seconds: u64, last: &str) -> String {
    let lines = crate::human::count(lines);
    let within = if seconds == 1 { "second".to_owned() } else { format!("{seconds} s") };
    format!("...and {lines} more of this in the last {within} (-v shows all); the last one: {last}")
}

/// Lets through what is of the level, and of what repeats itself little.
#[derive(Debug)]
struct Sparing {
    shared: Arc<Shared>,
}

impl<S: Subscriber> Filter<S> for Sparing {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        *metadata.level() <= self.shared.max()
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        let is_news = *metadata.level() > Level::WARN;
        if is_news || self.shared.max() > Level::INFO || metadata.target() == LEFT_OUT {
            return true;
        }
        let mut message = Message::default();
        event.record(&mut message);
        let kind = (metadata.callsite(), subject(&message.0).to_owned());
        self.shared.take(kind, Line { is_error: *metadata.level() == Level::ERROR, text: message.0 })
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.shared.max().into())
    }
}

/// What a line is about.
fn subject(line: &str) -> &str {
    line.split_once(": ").map_or("", |(subject, _)| subject)
}

#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            // Writing to a String does not fail.
            let _ = write!(self.0, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_can_be_read() {
        assert_eq!(
            summary(4711, 10, "volume data: sector 8 was corrupt"),
            "...and 4,711 more of this in the last 10 s (-v shows all); the last one: volume data: sector 8 was corrupt"
        );
        assert!(summary(1, 1, "x").starts_with("...and 1 more of this in the last second"));
    }

    #[test]
    fn lines_are_told_apart_by_what_they_are_about() {
        assert_eq!(subject("volume data: sector 8: corrupt"), "volume data");
        assert_eq!(subject("stopping at once"), "");
    }
}
