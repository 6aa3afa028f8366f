// SPDX-License-Identifier: MIT OR Apache-2.0
//! The traces of the ARC paper (FAST '03), `.lis`, have four numbers a line: `FIRST COUNT IGNORED
//! NUMBER`.
//!
//! The unit is 512 bytes in the traces of workstations (P1 to P14), and 4 KiB in OLTP. In OLTP all
//! counts are 1, which no disk's trace in sectors has. This tells the two apart. The number of the
//! request rises (P1 to P14) or stays the same (OLTP). In other formats of four numbers, such as
//! `TIME LBA SIZE OPERATION`, the last number goes up and down.

use super::{BLANK, COMMENT, Format, Item, Lines, Parser, record};
use crate::trace::Op;
use crate::trace::head::{Fit, Head, LINES_PER_BAD};
use crate::trace::report::Reason;
use crate::trace::text::{Fields, number};

/// Only the looks of their contents tell these formats apart.
const LOOKALIKES: [&str; 2] = ["arc", "arc-4k"];

pub(super) const FORMATS: [Format; 2] = [
    Format {
        name: "arc",
        summary: "traces of the ARC paper (.lis) in units of 512 bytes (P1 to P14)",
        lookalikes: &LOOKALIKES,
        fit: |head| Fit::shape(!are_single(head) && are_in_order(head) && head.has_lines_of(Arc { unit: 1 })),
        parser: |_| Parser::Lines(Box::new(Arc { unit: 1 })),
    },
    Format {
        name: "arc-4k",
        summary: "the same in units of 4 KiB (OLTP)",
        lookalikes: &LOOKALIKES,
        fit: |head| Fit::shape(are_single(head) && are_in_order(head) && head.has_lines_of(Arc { unit: 8 })),
        parser: |_| Parser::Lines(Box::new(Arc { unit: 8 })),
    },
];

struct Arc {
    /// The unit, in sectors.
    unit: u64,
}

impl Lines for Arc {
    fn line(&mut self, line: &[u8]) -> Result<Item, Reason> {
        let mut fields = Fields::blanks(line);
        let first = match fields.next() {
            None => return Ok(Item::Skipped(BLANK)),
            Some([b'#', ..]) => return Ok(Item::Skipped(COMMENT)),
            Some(first) => first,
        };
        let first = number(first, "block")?.checked_mul(self.unit).ok_or(Reason::TooLarge("block"))?;
        let count = fields.number("count")?.checked_mul(self.unit).ok_or(Reason::TooLarge("count"))?;
        fields.number("third field")?;
        fields.number("number of the request")?;
        fields.end()?;
        record(None, Op::Read, 0, first, count)
    }
}

/// Whether all counts are 1.
fn are_single(head: &Head<'_>) -> bool {
    column(head, 1).all(|it| it == b"1")
}

/// Whether the numbers of the requests never fall. As many lines as may be bad are excepted, since
/// files may be joined.
fn are_in_order(head: &Head<'_>) -> bool {
    let numbers: Vec<u64> = column(head, 3).filter_map(|it| number(it, "number of the request").ok()).collect();
    let falls = numbers.windows(2).filter(|it| it[1] < it[0]).count();
    falls * LINES_PER_BAD <= numbers.len()
}

/// This column of the lines that can be read. Other lines say nothing. The beginning of a cut file
/// would make another format of all the lines.
fn column<'a>(head: &Head<'a>, column: usize) -> impl Iterator<Item = &'a [u8]> {
    let good = head.lines().filter(|line| Arc { unit: 1 }.line(line).is_ok());
    good.filter_map(move |line| line.split(u8::is_ascii_whitespace).filter(|it| !it.is_empty()).nth(column))
}
