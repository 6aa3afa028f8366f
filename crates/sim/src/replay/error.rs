// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors say why a trace can't be replayed, in the words of the command line.

use std::fmt::{self, Display};
use std::io;
use std::path::PathBuf;

use super::key::STRETCHES_MAX;
use crate::trace::{self, Bad, OpenError, ReadError, Report};

/// A trace can't be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum SourceError {
    /// No made trace is called so.
    Made {
        /// The names that there are.
        why: String,
    },
    /// The file can't be opened.
    Open {
        /// The file of the trace.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file is no trace that we know.
    Format {
        /// The file of the trace.
        path: PathBuf,
        /// Why.
        error: OpenError,
    },
    /// The trace ends too early.
    Read {
        /// The file of the trace.
        path: PathBuf,
        /// Why.
        error: ReadError,
    },
    /// The trace can be read only once, but must be read twice.
    Once {
        /// The file of the trace.
        path: PathBuf,
    },
    /// The trace asks for no block.
    Empty {
        /// The file of the trace.
        path: PathBuf,
        /// Lines that could not be read.
        bad: u64,
        /// The first of them.
        first_bad: Option<Bad>,
        /// What was left out on purpose, by kind.
        skipped: Vec<(&'static str, u64)>,
    },
    /// The replay was to be stopped.
    Stopped {
        /// The file of the trace.
        path: PathBuf,
    },
    /// Its disks, or places on them, are more than there can be.
    Far {
        /// The file of the trace.
        path: PathBuf,
        /// The format as which it is read.
        format: &'static str,
    },
    /// The trace has more disks than keys can tell apart.
    Disks {
        /// The file of the trace.
        path: PathBuf,
    },
}

impl Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Made { why } => f.write_str(why),
            Self::Open { path, error } => {
                write!(f, "{}: can't be opened: {error}", path.display())?;
                if path.as_os_str() == "-" {
                    write!(f, "; for what comes through a pipe say /dev/stdin")
                } else {
                    Ok(())
                }
            }
            Self::Format { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Read { path, error } => {
                write!(f, "{}: {error}", path.display())?;
                match error {
                    ReadError::Bad(_) => write!(
                        f,
                        "; mend or delete it, or say which format it is with --format; without --strict such lines are counted and left out"
                    ),
                    ReadError::Io(_) => Ok(()),
                }
            }
            Self::Stopped { path } => write!(f, "{}: interrupted", path.display()),
            Self::Once { path } => {
                write!(f, "{}: not a regular file, and it would have to be read more than once", path.display())
            }
            Self::Far { path, format } => write!(
                f,
                "{}: read as {format} it asks for places of more than 128 TiB of disks; is it of another format (--format)? Of a trace of many disks take those of one machine",
                path.display()
            ),
            Self::Empty { path, bad, first_bad, skipped } => {
                write!(f, "{}: the trace has no reads and writes", path.display())?;
                for (nth, (kind, count)) in skipped.iter().enumerate() {
                    let kind = if *count == 1 { Report::one_of(kind) } else { (*kind).to_owned() };
                    write!(f, "{} {count} {kind}", if nth == 0 { "; left out:" } else { "," })?;
                }
                if skipped.iter().any(|(kind, _)| trace::is_event(kind)) {
                    write!(f, " (other events than Q count with --action)")?;
                }
                match first_bad {
                    Some(first) => {
                        let lines = if *bad == 1 { "line" } else { "lines" };
                        write!(f, ", but {bad} bad {lines} (is it another format?); the first: {first}")
                    }
                    None => Ok(()),
                }
            }
            Self::Disks { path } => write!(
                f,
                "{}: more than {STRETCHES_MAX} disks, or parts of 64 PiB of them: not a block trace in the format that it is read as",
                path.display()
            ),
        }
    }
}

impl std::error::Error for SourceError {}
