// SPDX-License-Identifier: MIT OR Apache-2.0
//! fio, the program: how it is called, how it ends, and what it says.
//!
//! Commands are lists of arguments; no shell reads them.

mod command;
mod log;
mod output;
mod process;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::error::BenchError;
use crate::figures::Measured;
use crate::suite::{FioJob, Site};

/// The fio that is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fio {
    /// The version, as `fio --version` prints it.
    pub version: String,
    /// Whether fio has the engine that speaks NBD.
    nbd: bool,
}

/// The place where fio runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Where {
    /// The device, file or URI.
    pub place: Site,
    /// Whether I/O goes past the page cache. NBD has none.
    pub direct: bool,
}

/// A run of fio: its arguments, and where it leaves what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The program and its arguments.
    pub command: Vec<String>,
    folder: PathBuf,
    interval: Duration,
}

/// The oldest fio that writes what is read here.
const OLDEST: (u32, u32) = (3, 16);

impl Fio {
    /// Asks fio about itself.
    ///
    /// # Errors
    /// fio is missing, or too old.
    pub fn find() -> Result<Self, BenchError> {
        let said = |argument: &str| {
            let output = Command::new("fio").arg(argument).output().ok().filter(|it| it.status.success())?;
            Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let Some(version) = said("--version") else {
            return Err(BenchError::Failed(
                "fio is not installed; bench runs it. Install it first: apt-get install fio (the package is called fio on most systems)".to_owned(),
            ));
        };
        if !is_new_enough(&version) {
            let (major, minor) = OLDEST;
            return Err(BenchError::Failed(format!(
                "the fio here is {version}, and bench needs {major}.{minor} or later; install a newer fio"
            )));
        }
        let nbd = said("--enghelp").is_some_and(|engines| engines.lines().any(|line| line.trim() == "nbd"));
        Ok(Self { version, nbd })
    }

    /// Whether fio can do I/O there.
    ///
    /// # Errors
    /// fio has no engine for NBD.
    pub fn can_reach(&self, place: &Site) -> Result<(), BenchError> {
        match place {
            Site::Nbd(uri) if !self.nbd => Err(BenchError::Failed(format!(
                "{uri}: the fio here ({}) has no engine for NBD (`fio --enghelp` lists them); Debian's has one. Or make it a file first, with `nbdfuse FILE URI`, and give that file as target",
                self.version
            ))),
            _ => Ok(()),
        }
    }
}

fn is_new_enough(version: &str) -> bool {
    let numbers = version.strip_prefix("fio-").unwrap_or(version);
    let mut numbers = numbers.split(|it: char| !it.is_ascii_digit()).map(|it| it.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= OLDEST
}

impl Prepared {
    /// Prepares fio's arguments for these jobs. It may write only if they do.
    #[must_use]
    pub fn new(jobs: &[FioJob], at: &Where, folder: &Path, expected: Duration) -> Self {
        let interval = log::interval(expected);
        Self { command: command::arguments(jobs, at, folder, interval), folder: folder.to_owned(), interval }
    }

    /// Runs fio, and reads what it says. `watch` is called several times a second, and ends the run
    /// with false.
    ///
    /// # Errors
    /// fio fails, or says something that can't be read; [`BenchError::Interrupted`].
    pub fn run(&self, watch: &mut dyn FnMut() -> bool) -> Result<Measured, BenchError> {
        process::run(&self.command, &self.folder, watch)?;
        let measured = output::read(&self.folder.join(command::OUTPUT))?;
        let series = log::read(&self.folder, self.interval)?;
        Ok(Measured { series, ..measured })
    }
}

#[cfg(test)]
mod tests;
