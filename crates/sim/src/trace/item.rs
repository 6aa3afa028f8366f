// SPDX-License-Identifier: MIT OR Apache-2.0
//! An item of a trace is a line of text or a binary record. A parser reads it.

use super::record::Record;
use super::report::Reason;

/// The parser of a format.
pub(super) enum Parser {
    Lines(Box<dyn Lines + Send>),
    Binary(Box<dyn Binary + Send>),
}

/// The meaning of one line or binary record.
#[derive(Debug, PartialEq)]
pub(super) enum Item {
    Record(Record),
    /// Left out on purpose, and counted by this word.
    Skipped(&'static str),
}

/// Reads text, line by line.
pub(super) trait Lines {
    /// Reads a line, which comes without its end.
    fn line(&mut self, line: &[u8]) -> Result<Item, Reason>;
}

/// Reads binary records.
pub(super) trait Binary {
    /// Reads the first record, and says how many bytes it has (above 0); nothing if it isn't there
    /// in full. Never more than [`RECORD_BYTES_MAX`].
    fn item(&mut self, bytes: &[u8]) -> Option<(usize, Result<Item, Reason>)>;
}

/// The longest record of a binary format: blktrace's, with its payload.
pub(super) const RECORD_BYTES_MAX: usize = 48 + u16::MAX as usize;
