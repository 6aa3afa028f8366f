// SPDX-License-Identifier: MIT OR Apache-2.0
//! A report counts what a reader did with every line or record of its trace: read, left out on
//! purpose, or not understood.

use std::fmt::{self, Display};

/// The number of bad lines that are kept. Others are only counted.
pub const BAD_SHOWN: usize = 5;

/// The bytes of a bad line that are kept.
const TEXT_BYTES: usize = 80;

/// A place in a trace, after decompression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The line of that number; the first is 1.
    Line(u64),
    /// The place begins at that byte.
    Byte(u64),
}

impl Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Byte(byte) => write!(f, "byte {byte}"),
        }
    }
}

/// Why a line or record is bad.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// This field is missing.
    Missing(&'static str),
    /// This field is no number.
    NotNumber(&'static str),
    /// This field is larger than can be.
    TooLarge(&'static str),
    /// The time is far from those before and behind, which are near to each other.
    TimeOff,
    /// This field has none of the known values.
    Unknown(&'static str),
    /// There are more fields than the format has.
    Extra,
    /// There are more different names than a trace can have.
    TooManyNames,
    /// The line has more bytes than any format allows.
    LineTooLong,
    /// No record begins in this many bytes.
    NoRecord(usize),
    /// The trace ends this many bytes after the beginning of a record.
    Cut(usize),
    /// The compressed data ends early, or is no such data.
    Damaged(String),
}

impl Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(field) => write!(f, "no {field}"),
            Self::NotNumber(field) => write!(f, "the {field} is no number"),
            Self::TooLarge(field) => write!(f, "the {field} is too large"),
            Self::TimeOff => write!(f, "the time is far from those before and behind"),
            Self::Unknown(field) => write!(f, "unknown {field}"),
            Self::Extra => write!(f, "more fields than the format has"),
            Self::TooManyNames => write!(f, "more different names of disks than a trace can have"),
            Self::LineTooLong => write!(f, "longer than any line of a trace"),
            Self::NoRecord(bytes) => write!(f, "no record begins in these {bytes} bytes"),
            Self::Cut(bytes) => {
                write!(f, "the trace ends in the middle of a record, {bytes} bytes after its beginning")
            }
            Self::Damaged(why) => write!(f, "compressed data is cut or damaged, the rest can't be read: {why}"),
        }
    }
}

/// A line or record that was not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// The place of the line or record.
    pub place: Position,
    /// The reason why it is bad.
    pub reason: Reason,
    /// The beginning of the line; empty for binary formats.
    pub text: String,
}

impl Bad {
    pub(super) fn new(place: Position, reason: Reason, line: &[u8]) -> Self {
        let shown = String::from_utf8_lossy(&line[..line.len().min(TEXT_BYTES)]);
        let text = shown.trim().chars().map(|it| if it.is_control() { '\u{fffd}' } else { it }).collect();
        Self { place, reason, text }
    }
}

impl Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)?;
        if self.text.is_empty() { Ok(()) } else { write!(f, ": `{}`", self.text) }
    }
}

/// The counts of a trace so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Requests that were read.
    pub records: u64,
    /// Lines, records or stretches of garbage that were not understood.
    pub bad: u64,
    /// The first [`BAD_SHOWN`] bad lines or records.
    pub first_bad: Vec<Bad>,
    /// The place where compressed data turned out to be cut or damaged. It is told however many bad
    /// lines came before: with a wrong checksum no unpacked data can be trusted.
    pub damage: Option<Bad>,
    /// The counts of skipped items, by kind, in order of appearance: comments, completions,
    /// requests without data.
    pub skipped: Vec<(&'static str, u64)>,
}

impl Report {
    /// The number of all items that were left out on purpose.
    #[must_use]
    pub fn skipped_total(&self) -> u64 {
        self.skipped.iter().map(|(_, count)| count).sum()
    }

    /// Whether more was bad than was read. Then the records may well be chance.
    #[must_use]
    pub fn is_mostly_bad(&self) -> bool {
        self.bad > self.records
    }

    /// The name of a single item of a kind that was left out.
    #[must_use]
    pub fn one_of(kind: &str) -> String {
        let many = ["lines", "comments", "requests", "events", "separators", "commands"];
        let many = many.into_iter().find(|it| kind.split(' ').any(|word| word == *it));
        many.map_or(kind.to_owned(), |many| kind.replacen(many, &many[..many.len() - 1], 1))
    }

    pub(super) fn skip(&mut self, kind: &'static str) {
        match self.skipped.iter_mut().find(|(it, _)| *it == kind) {
            Some((_, count)) => *count += 1,
            None => self.skipped.push((kind, 1)),
        }
    }

    pub(super) fn add_bad(&mut self, bad: Bad) {
        self.bad += 1;
        if matches!(bad.reason, Reason::Damaged(_)) {
            self.damage = Some(bad.clone());
        }
        if self.first_bad.len() < BAD_SHOWN {
            self.first_bad.push(bad);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Report;

    #[test]
    fn one_is_not_many() {
        assert_eq!(Report::one_of("blank lines"), "blank line");
        assert_eq!(Report::one_of("events C (completed)"), "event C (completed)");
        assert_eq!(Report::one_of("requests of no length"), "request of no length");
        assert_eq!(Report::one_of("blkparse's summary"), "blkparse's summary");
    }
}
