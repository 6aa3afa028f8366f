// SPDX-License-Identifier: MIT OR Apache-2.0
//! The head is the first bytes of a trace. They tell its format.
//!
//! A format fits if its own parser reads these bytes: nothing is known twice.

use super::item::{Binary, Item, Lines};

/// The most lines or records that are tried.
const TRIED: usize = 1000;

/// The number of lines of which one may be bad. Cut downloads begin in the middle of a line, and
/// archives with a header.
pub(super) const LINES_PER_BAD: usize = 10;

/// How well a format fits. The best fit counts, if only one format has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    /// The file has another format.
    No,
    /// All lines or records can be read, and make sense.
    Shape,
    /// The trace says what it is.
    Magic,
}

impl Fit {
    pub(super) fn shape(fits: bool) -> Self {
        if fits { Self::Shape } else { Self::No }
    }

    pub(super) fn magic(fits: bool) -> Self {
        if fits { Self::Magic } else { Self::No }
    }
}

/// The first bytes.
pub(super) struct Head<'a> {
    pub(super) bytes: &'a [u8],
    /// Whether `bytes` is the whole trace.
    pub(super) whole: bool,
}

impl<'a> Head<'a> {
    /// The lines that are complete.
    pub(super) fn lines(&self) -> impl Iterator<Item = &'a [u8]> {
        let end = self.bytes.iter().rposition(|it| *it == b'\n');
        let end = if self.whole { self.bytes.len() } else { end.map_or(0, |at| at + 1) };
        self.bytes[..end].split(|it| *it == b'\n').take(TRIED)
    }

    /// Whether this parser reads the lines and finds requests in them. One line in ten may be bad.
    /// If there are fewer lines, one may be bad if the parser reads two.
    pub(super) fn has_lines_of(&self, mut parser: impl Lines) -> bool {
        let (mut records, mut bad) = (0, 0);
        for line in self.lines() {
            match parser.line(line) {
                Ok(Item::Record(_)) => records += 1,
                Ok(Item::Skipped(_)) => {}
                Err(_) => bad += 1,
            }
        }
        records > 0 && (bad * LINES_PER_BAD <= records || bad == 1 && records > 1)
    }

    /// Whether this parser reads all records, and finds requests in them.
    pub(super) fn has_records_of(&self, mut parser: impl Binary) -> bool {
        let (mut records, mut rest) = (0, self.bytes);
        for _ in 0..TRIED {
            match parser.item(rest) {
                None => break,
                Some((_, Err(_))) => return false,
                Some((bytes, item)) => {
                    rest = &rest[bytes..];
                    records += usize::from(matches!(item, Ok(Item::Record(_))));
                }
            }
        }
        records > 0
    }
}
