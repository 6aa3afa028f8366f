// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront status`: what a running daemon does, once or every second.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use flashfront_serve::config::control_path_to_ask;
use flashfront_serve::control::Client;
use flashfront_serve::report::StatusReport;

use crate::human;
use crate::interrupt::Interrupt;

mod table;

use table::table;

/// How to reach a daemon.
#[derive(Debug, Args)]
pub(crate) struct Socket {
    /// The daemon's control socket [default: $XDG_RUNTIME_DIR/flashfront.sock if it is there, else
    /// /run/flashfront.sock].
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

impl Socket {
    pub(crate) fn path(&self) -> PathBuf {
        self.control.clone().unwrap_or_else(control_path_to_ask)
    }
}

/// Show what a running daemon does.
#[derive(Debug, Args)]
pub(crate) struct Status {
    #[command(flatten)]
    socket: Socket,
    /// Print one line of JSON (with --watch: one per second).
    #[arg(long)]
    json: bool,
    /// Refresh every second until Ctrl-C.
    #[arg(short, long)]
    watch: bool,
}

impl Status {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut client = Client::connect(&self.socket.path())?;
        let report = client.status()?;
        if !self.watch {
            self.show(&report, None)?;
            return Ok(ExitCode::SUCCESS);
        }
        let watched = self.watch(&mut client, report);
        if !self.json && window().is_some() {
            // Below the picture, which has no end of its last line.
            human::print("\n")?;
        }
        watched.map(|()| ExitCode::SUCCESS)
    }

    /// Until Ctrl-C, or until the daemon goes.
    fn watch(&self, client: &mut Client, mut report: StatusReport) -> anyhow::Result<()> {
        let interrupt = Interrupt::new()?;
        let mut taken = Instant::now();
        self.show(&report, None)?;
        while !interrupt.wait(Duration::from_secs(1)) {
            let next = client.status()?;
            let elapsed_s = taken.elapsed().as_secs_f64();
            taken = Instant::now();
            self.show(&next, Some((&report, elapsed_s)))?;
            report = next;
        }
        Ok(())
    }

    fn show(&self, report: &StatusReport, before: Option<(&StatusReport, f64)>) -> anyhow::Result<()> {
        if self.json {
            return human::print_json(report);
        }
        let text = table(report, before)?;
        if !self.watch {
            return human::print(&text);
        }
        human::print(&next_picture(&text, window()))
    }
}

/// A terminal whose cursor can be moved.
#[derive(Clone, Copy, Debug)]
struct Window {
    rows: usize,
    columns: usize,
}

/// The one that stdout is, if it is one.
fn window() -> Option<Window> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() || std::env::var_os("TERM").is_none_or(|it| it == "dumb") {
        return None;
    }
    // A serial line doesn't know its size, and says 0.
    let size = rustix::termios::tcgetwinsize(stdout).ok().filter(|it| it.ws_row > 0 && it.ws_col > 0);
    Some(
        size.map_or(Window { rows: 24, columns: 80 }, |it| Window {
            rows: it.ws_row.into(),
            columns: it.ws_col.into(),
        }),
    )
}

/// A picture in place of the one before, as much of it as the window has room for; below it where
/// the cursor can't be moved.
fn next_picture(text: &str, window: Option<Window>) -> String {
    let Some(Window { rows, columns }) = window else { return format!("{text}\n") };
    let mut lines: Vec<&str> = text.lines().collect();
    let all = lines.len();
    let taken = |lines: &[&str]| lines.iter().map(|line| line.chars().count().div_ceil(columns).max(1)).sum::<usize>();
    // A row too many, and the terminal would scroll the first one away.
    while taken(&lines) > rows - usize::from(lines.len() < all) {
        lines.pop();
    }
    let more = human::counted((all - lines.len()) as u64, "more line");
    let more: String = format!("({more} in a taller window)").chars().take(columns).collect();
    if lines.len() < all {
        lines.push(&more);
    }
    // Cursor home, each line cleared to its end, and the rest of the screen: no flicker.
    format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_terminal_is_told_to_move_its_cursor() {
        let window = Some(Window { rows: 2, columns: 80 });
        assert_eq!(next_picture("a\nb\n", window), "\x1b[Ha\x1b[K\nb\x1b[K\x1b[J");
        assert_eq!(next_picture("a\nb\n", None), "a\nb\n\n");
    }

    #[test]
    fn the_first_lines_stay_in_a_low_window() {
        let picture = |text: &str, columns| next_picture(text, Some(Window { rows: 3, columns })).replace("\x1b[K", "");
        assert_eq!(picture("a\nb\nc\nd", 80), "\x1b[Ha\nb\n(2 more lines in a taller window)\x1b[J");
        assert_eq!(picture("wider\nb\nc", 4), "\x1b[Hwider\n(2 m\x1b[J");
    }
}
