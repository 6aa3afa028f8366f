// SPDX-License-Identifier: MIT OR Apache-2.0
//! blkreplay's loads are text between semicolons, below a preamble.
//!
//! `START ; SECTOR ; LENGTH ; R|W ; DELAY ; DURATION`: seconds, sectors of 512 bytes, sectors; the
//! operation may have blkparse's flags (`RA`). Before the line with the names of the columns stands
//! the licence.

use super::events::operation;
use super::{BLANK, Format, HEADER, Item, Lines, Parser, record};
use crate::trace::head::Fit;
use crate::trace::report::Reason;
use crate::trace::text::{Fields, SECOND};

pub(super) const FORMATS: [Format; 1] = [Format {
    name: "blkreplay",
    summary: "blkreplay's loads: start ; sector ; length ; op ; delay ; duration",
    lookalikes: &[],
    fit: |head| Fit::shape(head.has_lines_of(Blkreplay::default())),
    parser: |_| Parser::Lines(Box::new(Blkreplay::default())),
}];

#[derive(Default)]
struct Blkreplay {
    /// A request was there: the preamble is over. Loads that were joined have another one further
    /// down.
    begun: bool,
}

impl Lines for Blkreplay {
    fn line(&mut self, line: &[u8]) -> Result<Item, Reason> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(Item::Skipped(BLANK));
        }
        self.begun &= !line.starts_with(b"Copyright");
        if line.starts_with(b"start") || (!self.begun && !line.contains(&b';')) {
            return Ok(Item::Skipped(HEADER));
        }
        let mut fields = Fields::separated(line, b';');
        let time_ns = fields.time(SECOND)?;
        let (sector, sectors) = (fields.number("sector")?, fields.number("length")?);
        let flags = fields.word("operation")?;
        let op = operation(flags).filter(|_| flags.iter().all(u8::is_ascii_alphabetic));
        self.begun = true;
        record(Some(time_ns), op.ok_or(Reason::Unknown("operation"))?, 0, sector, sectors)
    }
}
