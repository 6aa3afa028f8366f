// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront top`: the volumes of a running daemon, sorted by what they do now.

use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use flashfront_serve::control::Client;
use flashfront_serve::report::StatusReport;
use serde::Serialize;

use crate::status::Socket;
use crate::terminal::{Keyboard, Paint, Screen, Tone, Window};
use crate::{human, interrupt};

mod rows;
mod table;

use rows::{Row, Sort, rows, sort};
use table::{head, lines};

/// Show the volumes of a running daemon, sorted by what they do now.
///
/// Rates are those of the last second, hits too; times are those of the last minute.
#[derive(Debug, Args)]
#[command(after_help = KEYS)]
pub(crate) struct Top {
    #[command(flatten)]
    socket: Socket,
    /// What the volumes are sorted by.
    #[arg(long, value_enum, default_value_t = Sort::Bytes, value_name = "KEY", hide_possible_values = true)]
    sort: Sort,
    /// Show one second, and end.
    #[arg(long)]
    once: bool,
    /// Print a line of JSON for each second.
    #[arg(long)]
    json: bool,
}

const KEYS: &str = "\
Keys of --sort; in a terminal their first letter sorts, and q ends:
  bytes     bytes read and written
  requests  requests
  hits      share of the reads that the cache answered alone
  slowest   the longest of the 99 percents of the last minute
  dirty     dirty data
  cached    data in the cache
  flash     bytes written to the cache device
  gain      part of the bytes that the cache served in the last hour
  name      the name";

/// A second of all volumes, for scripts.
#[derive(Debug, Serialize)]
struct Second<'a> {
    seconds: f64,
    sort: &'static str,
    all: &'a Row,
    volumes: &'a [Row],
}

/// How long a reading lasts.
const SECOND: Duration = Duration::from_secs(1);
/// How soon a window that has another size gets another picture.
const RESIZED: Duration = Duration::from_millis(100);

/// What ends a wait.
enum Heard {
    End,
    Key(u8),
}

/// Two readings, and what follows from them.
struct Readings {
    client: Client,
    before: StatusReport,
    now: StatusReport,
    taken: Instant,
    seconds: f64,
}

impl Readings {
    fn next(&mut self) -> anyhow::Result<()> {
        let next = self.client.status()?;
        self.seconds = self.taken.elapsed().as_secs_f64();
        self.taken = Instant::now();
        self.before = std::mem::replace(&mut self.now, next);
        Ok(())
    }

    /// The volumes in their order, behind a row of all of them.
    fn rows(&self, by: Sort) -> (Row, Vec<Row>) {
        let (all, mut volumes) = rows(&self.before, &self.now, self.seconds);
        sort(&mut volumes, by);
        (all, volumes)
    }
}

impl Top {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut client = Client::connect(&self.socket.path())?;
        let now = client.status()?;
        let mut readings = Readings { client, before: now.clone(), now, taken: Instant::now(), seconds: 1.0 };
        let (heard, ears) = mpsc::channel();
        let end = heard.clone();
        // The waiting thread may be gone: the command is about to end.
        interrupt::on_signal(move || drop(end.send(Heard::End)))?;
        if self.once || self.json || Window::stdout().is_none() {
            self.print(&mut readings, &ears)?;
        } else {
            let _keyboard = Keyboard::take(move |key| drop(heard.send(Heard::Key(key))));
            self.watch(&mut readings, &ears)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Prints one second below the other.
    fn print(&self, readings: &mut Readings, ears: &Receiver<Heard>) -> anyhow::Result<()> {
        while let Err(RecvTimeoutError::Timeout) = ears.recv_timeout(SECOND) {
            readings.next()?;
            let (all, volumes) = readings.rows(self.sort);
            if self.json {
                let (seconds, sort) = (readings.seconds, self.sort.name());
                human::print_json(&Second { seconds, sort, all: &all, volumes: &volumes })?;
            } else {
                human::print(&(lines(&all, &volumes, usize::MAX).join("\n") + "\n"))?;
            }
            if self.once {
                break;
            }
        }
        Ok(())
    }

    /// Shows a picture that changes. The terminal is as before when it ends.
    fn watch(&self, readings: &mut Readings, ears: &Receiver<Heard>) -> anyhow::Result<()> {
        let (screen, paint) = (Screen::enter()?, Paint::stdout());
        let (mut by, mut shown) = (self.sort, None);
        loop {
            let window = Window::stdout();
            if readings.taken.elapsed() >= SECOND {
                readings.next()?;
                shown = None;
            }
            if let Some(window) = window.filter(|_| shown != window) {
                screen.show(&picture(readings, by, window, paint))?;
                shown = Some(window);
            }
            match ears.recv_timeout(RESIZED.min(SECOND.saturating_sub(readings.taken.elapsed()))) {
                Ok(Heard::Key(b'q')) | Ok(Heard::End) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(Heard::Key(key)) => {
                    by = Sort::value_variants().iter().copied().find(|it| it.key() == key).unwrap_or(by);
                    shown = None;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// What the window has room for.
fn picture(readings: &Readings, by: Sort, window: Window, paint: Paint) -> Vec<String> {
    let (all, volumes) = readings.rows(by);
    let cut = |line: String| line.chars().take(window.columns).collect::<String>();
    let text = [head(&readings.now, by)].into_iter().chain(lines(&all, &volumes, window.columns)).map(cut);
    let tone = |(nth, line): (usize, String)| match nth {
        0 => paint.paint(Tone::Strong, &line),
        1 => paint.paint(Tone::Label, &line),
        _ => line,
    };
    text.take(window.rows).enumerate().map(tone).collect()
}

#[cfg(test)]
mod tests;
