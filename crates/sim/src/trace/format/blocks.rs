// SPDX-License-Identifier: MIT OR Apache-2.0
//! A plain list of blocks has the number of one 4 KiB block a line, as the LIRS paper's traces do.
//! A `*` separates phases there, and is skipped, as is a comment that begins with `#`.

use super::{BLANK, COMMENT, Format, Item, Lines, Parser, named};
use crate::trace::Op;
use crate::trace::head::Fit;
use crate::trace::report::Reason;
use crate::trace::text::{Fields, number};

pub(super) const FORMATS: [Format; 1] = [Format {
    name: "blocks",
    summary: "a plain list: one number of a 4 KiB block a line",
    lookalikes: &[],
    fit: |head| Fit::shape(head.has_lines_of(Blocks)),
    parser: |_| Parser::Lines(Box::new(Blocks)),
}];

struct Blocks;

const BLOCK_SECTORS: u64 = 8;

impl Lines for Blocks {
    fn line(&mut self, line: &[u8]) -> Result<Item, Reason> {
        let mut fields = Fields::blanks(line);
        let word = match fields.next() {
            None => return Ok(Item::Skipped(BLANK)),
            Some(b"*") => return Ok(Item::Skipped("separators")),
            Some([b'#', ..]) => return Ok(Item::Skipped(COMMENT)),
            Some(word) => word,
        };
        let sector = number(word, "block")?.checked_mul(BLOCK_SECTORS).ok_or(Reason::TooLarge("block"))?;
        fields.end()?;
        named(None, Op::Read, 0, sector, BLOCK_SECTORS)
    }
}
