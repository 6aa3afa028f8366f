// SPDX-License-Identifier: MIT OR Apache-2.0
//! Made traces are loads of kinds that no public trace shows. They are made from published
//! statistics.
//!
//! `made:NAME` is given in the place of a trace's path. A made trace is text in the format
//! `alibaba`. So the reader, its checks and its figures are the same as for any trace. Each reading
//! gives the same bytes.
//!
//! `made:NAME?seed=3` is another machine of that kind. Its choices differ, and the sizes of some
//! parts lie between half and twice the maker's numbers. Each maker names the sources of its
//! numbers, and says which of them are a guess.

use std::io::{self, Read, Write};
use std::path::Path;

mod boot;
mod ci;
mod database;
mod files;
mod log;
mod mail;
mod maker;
#[cfg(test)]
mod tests;
mod workstation;

use maker::{Asked, Made, Maker, Seed};

/// The beginning of a path that names a made trace.
const PREFIX: &str = "made:";
/// The text between a made trace's name and its seed.
const SEED: &str = "?seed=";

/// A kind of made trace.
struct Kind {
    /// The name, behind `made:`.
    name: &'static str,
    new: fn(&mut Seed) -> Box<dyn Maker>,
}

/// All kinds of made traces.
static KINDS: [Kind; 6] = [
    Kind { name: "workstation", new: |seed| Box::new(workstation::Workstation::new(seed)) },
    Kind { name: "database", new: |seed| Box::new(database::Database::new(seed)) },
    Kind { name: "mail", new: |seed| Box::new(mail::Mail::new(seed)) },
    Kind { name: "boot", new: |seed| Box::new(boot::Boot::new(seed)) },
    Kind { name: "log", new: |seed| Box::new(log::Log::new(seed)) },
    Kind { name: "ci", new: |seed| Box::new(ci::Ci::new(seed)) },
];

/// A made trace that a path names.
#[derive(Clone, Copy)]
pub struct Load {
    kind: &'static Kind,
    seed: u64,
}

impl std::fmt::Debug for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{PREFIX}{}{SEED}{}", self.kind.name, self.seed)
    }
}

impl Load {
    /// The made trace that a path names. `None` for the path of a file.
    ///
    /// # Errors
    /// If no made trace is called so.
    pub fn of(path: &Path) -> Result<Option<Self>, String> {
        let Some(asked) = path.to_str().and_then(|path| path.strip_prefix(PREFIX)) else { return Ok(None) };
        let (name, seed) = asked.split_once('?').map_or((asked, None), |(name, seed)| (name, Some(seed)));
        let names = KINDS.each_ref().map(|kind| format!("{PREFIX}{}", kind.name)).join(", ");
        let Some(kind) = KINDS.iter().find(|kind| kind.name == name) else {
            return Err(format!("no made trace is called {name}; there are {names}"));
        };
        let seed = match seed {
            None => Some(0),
            Some(seed) => seed.strip_prefix(&SEED[1..]).and_then(|number| number.parse::<u32>().ok()),
        };
        let seed = seed.ok_or(format!(
            "{PREFIX}{asked}: behind the name of a made trace only ?seed=N can stand, N from 0 to {}; \
             {PREFIX}{name}{SEED}1 is one",
            u32::MAX
        ))?;
        Ok(Some(Self { kind, seed: seed.into() }))
    }

    /// The requests as text, from the first on.
    #[must_use]
    pub fn text(&self) -> Text {
        let maker = (self.kind.new)(&mut Seed::new(self.seed));
        Text { maker, asked: Asked::default(), line: io::Cursor::default() }
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
