// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront status`: what a running daemon does, once or every second.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use flashfront_serve::config::{control_path_to_ask, control_said};
use flashfront_serve::control::{Client, ClientError};
use flashfront_serve::report::StatusReport;

use crate::human;
use crate::interrupt::Interrupt;
use crate::terminal::{Paint, Screen, Window};

mod history;
mod paint;
mod table;

use history::{History, Strokes};
use paint::painted;
use table::{table, watched};

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
        self.control.as_deref().map_or_else(control_path_to_ask, control_said)
    }
}

/// Connects to a daemon. An operator who waits for its answer hears of that.
pub(crate) fn connect(path: &Path) -> Result<Client, ClientError> {
    let mut client = Client::connect(path)?;
    client.on_silence(Some(|path, waited, patience| {
        eprintln!(
            "flashfront: {}: the daemon has not answered for {} s yet; waiting for {} s",
            path.display(),
            waited.as_secs(),
            patience.as_secs()
        );
    }));
    Ok(client)
}

/// Show what a running daemon does.
#[derive(Debug, Args)]
pub(crate) struct Status {
    #[command(flatten)]
    socket: Socket,
    /// Print one line of JSON (with --watch: one per second).
    #[arg(long)]
    json: bool,
    /// Refresh every second until Ctrl-C; in a terminal with the last minute as small graphs.
    #[arg(short, long)]
    watch: bool,
}

impl Status {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut client = connect(&self.socket.path())?;
        let report = client.status()?;
        match (self.watch, Window::stdout()) {
            (false, _) => self.print(&report, None)?,
            (true, Some(_)) if !self.json => {
                // Nothing else is printed beside the picture.
                client.on_silence(None);
                Picture::new(report)?.watch(&mut client)?;
            }
            (true, _) => self.repeat(&mut client, report)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Prints one report below the other, until Ctrl-C, or until the daemon goes.
    fn repeat(&self, client: &mut Client, mut report: StatusReport) -> anyhow::Result<()> {
        let interrupt = Interrupt::new()?;
        let mut taken = Instant::now();
        self.print(&report, None)?;
        while !interrupt.wait(SECOND) {
            let next = client.status()?;
            let elapsed_s = taken.elapsed().as_secs_f64();
            taken = Instant::now();
            self.print(&next, Some((&report, elapsed_s)))?;
            report = next;
        }
        Ok(())
    }

    fn print(&self, report: &StatusReport, before: Option<(&StatusReport, f64)>) -> anyhow::Result<()> {
        if self.json {
            return human::print_json(report);
        }
        let text = painted(&table(report, before)?, Paint::stdout());
        human::print(&if self.watch { text + "\n" } else { text })
    }
}

/// Between two reports.
const SECOND: Duration = Duration::from_secs(1);

/// How soon a window that has another size gets another picture.
const RESIZED: Duration = Duration::from_millis(100);

/// A window that is watched: the newest report, and those before it.
struct Picture {
    report: StatusReport,
    taken: Instant,
    history: History,
    strokes: Strokes,
    paint: Paint,
}

impl Picture {
    fn new(report: StatusReport) -> anyhow::Result<Self> {
        let (strokes, paint) = (Strokes::of_locale(), Paint::stdout());
        Ok(Self { report, taken: Instant::now(), history: History::default(), strokes, paint })
    }

    /// Shows the picture until Ctrl-C, or until the daemon goes. The terminal is as before then.
    fn watch(&mut self, client: &mut Client) -> anyhow::Result<()> {
        let interrupt = Interrupt::new()?;
        let screen = Screen::enter()?;
        let mut shown = None;
        loop {
            let window = Window::stdout();
            if self.taken.elapsed() >= SECOND {
                let next = client.status()?;
                self.history.add(&self.report, &next, self.taken.elapsed().as_secs_f64());
                (self.report, self.taken, shown) = (next, Instant::now(), None);
            }
            if let Some(window) = window.filter(|_| shown != window) {
                screen.show(&self.lines(window)?)?;
                shown = Some(window);
            }
            if interrupt.wait(RESIZED.min(SECOND.saturating_sub(self.taken.elapsed()))) {
                return Ok(());
            }
        }
    }

    /// What the window has room for.
    fn lines(&self, window: Window) -> anyhow::Result<Vec<String>> {
        let text = watched(&self.report, &self.history.lines(window.columns, self.strokes))?;
        let fitted = fitted(&text, window).join("\n");
        Ok(painted(&fitted, self.paint).lines().map(str::to_owned).collect())
    }
}

/// Returns lines that fit into the window. The last one says how many are left out.
fn fitted(text: &str, Window { rows, columns }: Window) -> Vec<String> {
    let cut = |line: &str| match line.char_indices().nth(columns) {
        Some(_) => line.chars().take(columns.saturating_sub(1)).chain(['…']).collect(),
        None => line.to_owned(),
    };
    let mut lines: Vec<String> = text.lines().map(cut).collect();
    if lines.len() > rows {
        let more = human::counted((lines.len() - rows + 1) as u64, "more line");
        lines.truncate(rows.saturating_sub(1));
        lines.push(cut(&format!("({more} in a taller window)")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use flashfront_engine::Status as EngineStatus;
    use flashfront_serve::report::Facts;

    use super::*;

    #[test]
    fn a_window_shows_what_it_has_room_for() {
        let window = |rows, columns| Window { rows, columns };
        assert_eq!(fitted("a\nb\n", window(2, 80)), ["a", "b"]);
        assert_eq!(fitted("a\nb\nc\nd", window(3, 80)), ["a", "b", "(2 more lines in a taller window)"]);
        assert_eq!(fitted("wider\nb\nc", window(2, 4)), ["wid…", "(2 …"]);
    }

    #[test]
    fn a_picture_fills_no_more_than_its_window() {
        let report = StatusReport::new(&EngineStatus::default(), &Facts::default());
        let mut picture = Picture::new(report.clone()).unwrap();
        (picture.strokes, picture.paint) = (Strokes::Blocks, Paint::with(true));
        for _ in 0..300 {
            picture.history.add(&report, &report, 1.0);
        }
        for (rows, columns) in [(24, 80), (10, 40), (60, 200), (1, 1)] {
            let lines = picture.lines(Window { rows, columns }).unwrap();
            assert!(lines.len() <= rows, "{lines:?}");
            let plain = lines.iter().map(|line| anstream::adapter::strip_str(line).to_string());
            assert!(plain.clone().all(|line| line.chars().count() <= columns), "{lines:?}");
            let text: Vec<String> = plain.collect();
            assert!(rows < 24 || text.iter().any(|line| line.starts_with("reads ") && line.contains('▁')), "{text:?}");
        }
    }
}
