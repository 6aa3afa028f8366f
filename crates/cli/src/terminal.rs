// SPDX-License-Identifier: MIT OR Apache-2.0
//! The terminal: its size, whether it takes colours, and a screen of its own for a picture that
//! changes.
//!
//! Colours are for terminals. NO_COLOR switches them off, as `TERM=dumb` does; `CLICOLOR_FORCE=1`
//! has them also in files. The help texts of clap follow the same rules.

use std::io::{self, IsTerminal, Read, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Effects, Style};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// How a text stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// A name or a heading.
    Strong,
    /// A label, of which there are many.
    Label,
    Good,
    /// Something that may have to be looked after.
    Warning,
    /// Something that is wrong.
    Bad,
}

/// Colours a text, or leaves it as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    colours: bool,
}

impl Paint {
    /// For what goes to stdout.
    pub(crate) fn stdout() -> Self {
        Self { colours: AutoStream::choice(&io::stdout()) != ColorChoice::Never }
    }

    /// For what goes to stderr.
    pub(crate) fn stderr() -> Self {
        Self { colours: AutoStream::choice(&io::stderr()) != ColorChoice::Never }
    }

    /// For tests: with or without.
    #[cfg(test)]
    pub(crate) fn with(colours: bool) -> Self {
        Self { colours }
    }

    /// Whether there are colours.
    pub(crate) fn has_colours(self) -> bool {
        self.colours
    }

    /// The text in a tone.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        if !self.colours || text.is_empty() {
            return text.to_owned();
        }
        let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
        let style = match tone {
            Tone::Strong => Style::new().effects(Effects::BOLD),
            Tone::Label => colour(AnsiColor::Cyan),
            Tone::Good => colour(AnsiColor::Green),
            Tone::Warning => colour(AnsiColor::Yellow),
            Tone::Bad => colour(AnsiColor::Red).effects(Effects::BOLD),
        };
        format!("{style}{text}{style:#}")
    }
}

/// A terminal whose cursor can be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl Window {
    /// The window that stdout is, if it is one.
    pub(crate) fn stdout() -> Option<Self> {
        let stdout = io::stdout();
        if !stdout.is_terminal() || std::env::var_os("TERM").is_none_or(|it| it == "dumb") {
            return None;
        }
        // A serial line doesn't know its size, and says 0.
        let size = rustix::termios::tcgetwinsize(stdout).ok();
        let size = size.filter(|it| it.ws_row > 0 && it.ws_col > 0);
        let size = size.map(|it| Self { rows: it.ws_row.into(), columns: it.ws_col.into() });
        Some(size.unwrap_or(Self { rows: 24, columns: 80 }))
    }
}

/// The terminal's other screen. What was there before comes back when the value is dropped.
#[derive(Debug)]
pub(crate) struct Screen(());

/// The other screen, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

impl Screen {
    pub(crate) fn enter() -> anyhow::Result<Self> {
        crate::human::print(ENTER)?;
        Ok(Self(()))
    }

    /// Shows lines in place of those before, as one write, without a moment in which the screen is
    /// empty.
    pub(crate) fn show(&self, lines: &[String]) -> anyhow::Result<()> {
        crate::human::print(&frame(lines))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal has gone there is nothing to restore.
        let mut stdout = io::stdout().lock();
        let _ = stdout.write_all(LEAVE.as_bytes()).and_then(|()| stdout.flush());
    }
}

/// The keyboard of the terminal: each key is heard at once, and is not shown. The terminal is as
/// before when the value is dropped.
pub(crate) struct Keyboard(Termios);

impl Keyboard {
    /// Takes the keyboard; `heard` gets each key, in a thread of its own. `None`: stdin is no
    /// terminal, or there is no thread for it.
    pub(crate) fn take(mut heard: impl FnMut(u8) + Send + 'static) -> Option<Self> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut single = before.clone();
        single.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        tcsetattr(io::stdin(), OptionalActions::Now, &single).ok()?;
        let keyboard = Self(before);
        let read = move || {
            let mut key = [0];
            while matches!(io::stdin().read(&mut key), Ok(1)) {
                heard(key[0]);
            }
        };
        // The thread ends with the program.
        std::thread::Builder::new().name("keys".to_owned()).spawn(read).ok()?;
        Some(keyboard)
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        // If the terminal has gone there is nothing to restore.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Cursor home, each line cleared to its end, and the rest of the screen. Terminals that know the
/// mode 2026 show all of it at once.
fn frame(lines: &[String]) -> String {
    format!("\x1b[?2026h\x1b[H{}\x1b[K\x1b[J\x1b[?2026l", lines.join("\x1b[K\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_takes_colours_gets_them() {
        assert_eq!(Paint::with(true).paint(Tone::Bad, "LOST"), "\x1b[1m\x1b[31mLOST\x1b[0m");
        assert_eq!(Paint::with(false).paint(Tone::Bad, "LOST"), "LOST");
        assert_eq!(Paint::with(true).paint(Tone::Bad, ""), "");
    }

    #[test]
    fn a_frame_leaves_nothing_of_the_one_before_and_does_not_scroll() {
        let lines = ["a", "b"].map(str::to_owned);
        assert_eq!(frame(&lines), "\x1b[?2026h\x1b[Ha\x1b[K\r\nb\x1b[K\x1b[J\x1b[?2026l");
    }
}
