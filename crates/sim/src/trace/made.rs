// SPDX-License-Identifier: MIT OR Apache-2.0
//! Made traces: loads of kinds that no public trace shows, made from published statistics.
//!
//! `made:NAME` is given where the path of a trace is. A made trace is text in the format
//! `alibaba`, so that the reader, its checks and its figures are those of any trace. The seed is
//! fixed: each reading gives the same bytes. Each maker names what its numbers are taken from, and
//! which of them are a guess.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::path::Path;

mod database;
mod workstation;

/// What a path begins with that names a made trace.
const PREFIX: &str = "made:";

/// A request of a made trace, in blocks of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    time_us: u64,
    write: bool,
    block: u64,
    blocks: u64,
}

/// What the requests of an activity are put into.
#[derive(Default)]
struct Asked {
    time_us: u64,
    requests: VecDeque<Made>,
}

impl Asked {
    fn read(&mut self, block: u64, blocks: u64) {
        self.requests.push_back(Made { time_us: self.time_us, write: false, block, blocks });
    }

    fn write(&mut self, block: u64, blocks: u64) {
        self.requests.push_back(Made { time_us: self.time_us, write: true, block, blocks });
    }
}

/// A machine that asks its disk for blocks.
trait Maker: Send {
    /// Does what it does next, and adds what that asks of the disk, possibly nothing; false if its
    /// time is over.
    fn act(&mut self, asked: &mut Asked) -> bool;
}

/// A kind of made trace.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Its name, behind `made:`.
    pub name: &'static str,
    /// What it is.
    pub summary: &'static str,
    new: fn() -> Box<dyn Maker>,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 2] = [
        Self {
            name: "workstation",
            summary: "a week of a workstation's disk, two thirds writes",
            new: || Box::new(workstation::Workstation::new()),
        },
        Self {
            name: "database",
            summary: "an order database with a log that is written ahead, and checkpoints",
            new: || Box::new(database::Database::new()),
        },
    ];

    /// The one that a path names: nothing for the path of a file.
    ///
    /// # Errors
    /// If no made trace is called so.
    pub fn of(path: &Path) -> Result<Option<&'static Self>, String> {
        let Some(name) = path.to_str().and_then(|path| path.strip_prefix(PREFIX)) else { return Ok(None) };
        let names = Self::ALL.map(|kind| format!("{PREFIX}{}", kind.name)).join(", ");
        let kind = Self::ALL.iter().find(|kind| kind.name == name);
        kind.map(Some).ok_or(format!("no made trace is called {name}; there are {names}"))
    }

    /// Its requests as text, from the first on.
    #[must_use]
    pub fn text(&self) -> Text {
        Text { maker: (self.new)(), asked: Asked::default(), line: io::Cursor::default() }
    }

    /// The format of that text.
    pub const FORMAT: &'static str = "alibaba";
}

/// A made trace as the bytes of a file.
pub struct Text {
    maker: Box<dyn Maker>,
    asked: Asked,
    line: io::Cursor<Vec<u8>>,
}

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Text")
    }
}

impl Text {
    fn next(&mut self) -> Option<Made> {
        while self.asked.requests.is_empty() {
            if !self.maker.act(&mut self.asked) {
                return None;
            }
        }
        self.asked.requests.pop_front()
    }
}

impl Read for Text {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.line.position() == self.line.get_ref().len() as u64 {
            let Some(Made { time_us, write, block, blocks }) = self.next() else { return Ok(0) };
            self.line.set_position(0);
            let line = self.line.get_mut();
            line.clear();
            let op = if write { 'W' } else { 'R' };
            writeln!(line, "0,{op},{},{},{time_us}", block * 4096, blocks * 4096)?;
        }
        self.line.read(into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reading_of_a_made_trace_is_the_same() {
        for kind in Kind::ALL {
            let head = || {
                let mut head = vec![0; 100_000];
                kind.text().read_exact(&mut head).map(|()| head).ok()
            };
            assert!(head().is_some() && head() == head(), "{}", kind.name);
        }
    }

    #[test]
    fn the_kinds_are_what_their_summaries_say() {
        for (name, writes_percent) in [("workstation", 60..=73), ("database", 45..=80)] {
            let kind = Kind::of(Path::new(&format!("made:{name}"))).ok().flatten().expect("there is one");
            let (mut text, mut written, mut blocks, mut last_us) = (kind.text(), 0, 0, 0);
            while let Some(made) = text.next() {
                assert!(made.time_us >= last_us && made.blocks > 0, "{name}: {made:?}");
                last_us = made.time_us;
                blocks += made.blocks;
                written += u64::from(made.write) * made.blocks;
            }
            let percent = written * 100 / blocks;
            assert!(writes_percent.contains(&percent), "{name}: {percent} % of {blocks} blocks are written");
            assert!((500_000..3_000_000).contains(&blocks), "{name}: {blocks} blocks");
        }
    }

    #[test]
    fn a_name_that_nobody_has_is_told_with_those_there_are() {
        assert!(Kind::of(Path::new("trace.gz")).is_ok_and(|kind| kind.is_none()));
        let told = Kind::of(Path::new("made:nobody")).expect_err("nobody");
        assert!(told.contains("nobody") && told.contains("made:workstation"), "{told}");
    }
}
