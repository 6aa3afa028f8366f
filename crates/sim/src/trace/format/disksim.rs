// SPDX-License-Identifier: MIT OR Apache-2.0
//! DiskSim's ascii has five columns between blanks: `TIME DEVICE PLACE LENGTH FLAGS`. Other
//! programs made variants of it. Bit 0 of the flags stands for a read.
//!
//! The variants differ in units alone. Their looks tell them apart:
//!
//! - Places and lengths that are all multiples of 512 are bytes.
//! - Otherwise, times that are whole numbers are SSDSim's nanoseconds.
//! - The tool that cut UMass's traces to pages has tabs between columns, and six digits behind the
//!   point. If all lengths are multiples of 8, they are whole pages in sectors, and the file is not
//!   from that tool.
//! - Everything else is DiskSim itself.
//!
//! A guess that is wrong is corrected with `--format`.

use super::{BLANK, COMMENT, Format, Item, Lines, Parser, record, record_of_bytes};
use crate::trace::Op;
use crate::trace::head::{Fit, Head};
use crate::trace::report::Reason;
use crate::trace::text::{Fields, MILLISECOND, time as time_of};

/// Only the looks of their contents tell these formats apart.
const LOOKALIKES: [&str; 4] = ["disksim", "ssdsim", "disksim-bytes", "disksim-4k"];

pub(super) const FORMATS: [Format; 4] = [
    Format {
        name: "disksim",
        summary: "DiskSim ascii: ms, device, sector, sectors, flags (1: read)",
        lookalikes: &LOOKALIKES,
        fit: |head| fit(head, &DISKSIM),
        parser: |_| Parser::Lines(Box::new(DISKSIM)),
    },
    Format {
        name: "ssdsim",
        summary: "SSDSim: the same columns, time in whole ns",
        lookalikes: &LOOKALIKES,
        fit: |head| fit(head, &SSDSIM),
        parser: |_| Parser::Lines(Box::new(SSDSIM)),
    },
    Format {
        name: "disksim-bytes",
        summary: "the same columns, place and length in bytes (cuts of MSR Cambridge, as Heimdall has them)",
        lookalikes: &LOOKALIKES,
        fit: |head| fit(head, &BYTES),
        parser: |_| Parser::Lines(Box::new(BYTES)),
    },
    Format {
        name: "disksim-4k",
        summary: "the same columns between tabs, sector and length in pages of 4 KiB (cuts of UMass's traces)",
        lookalikes: &LOOKALIKES,
        fit: |head| fit(head, &PAGES),
        parser: |_| Parser::Lines(Box::new(PAGES)),
    },
];

#[derive(Clone, Copy, PartialEq)]
struct Disksim {
    time_unit_ns: u64,
    /// The unit of lengths, in sectors. `None` if places and lengths are in bytes.
    length_unit: Option<u64>,
}

const DISKSIM: Disksim = Disksim { time_unit_ns: MILLISECOND, length_unit: Some(1) };
const SSDSIM: Disksim = Disksim { time_unit_ns: 1, ..DISKSIM };
const BYTES: Disksim = Disksim { length_unit: None, ..DISKSIM };
const PAGES: Disksim = Disksim { length_unit: Some(8), ..DISKSIM };

impl Lines for Disksim {
    fn line(&mut self, line: &[u8]) -> Result<Item, Reason> {
        let mut fields = Fields::blanks(line);
        let time = match fields.next() {
            None => return Ok(Item::Skipped(BLANK)),
            Some([b'#', ..]) => return Ok(Item::Skipped(COMMENT)),
            Some(time) => time,
        };
        let time_ns = time_of(time, self.time_unit_ns)?;
        let device = fields.number32("device")?;
        let (place, length) = (fields.number("place")?, fields.number("length")?);
        let op = direction(fields.word(FLAGS)?)?;
        fields.end()?;
        match self.length_unit {
            None => record_of_bytes(Some(time_ns), op, device, place, length),
            Some(unit) => {
                let sectors = length.checked_mul(unit).ok_or(Reason::TooLarge("length"))?;
                record(Some(time_ns), op, device, place, sectors)
            }
        }
    }
}

const FLAGS: &str = "flags";

/// The direction that the flags stand for. DiskSim reads them as a hexadecimal number.
fn direction(flags: &[u8]) -> Result<Op, Reason> {
    let digits = flags.strip_prefix(b"0x").unwrap_or(flags);
    let last = digits.last().filter(|_| digits.iter().all(u8::is_ascii_hexdigit));
    let last = last.and_then(|it| char::from(*it).to_digit(16)).ok_or(Reason::NotNumber(FLAGS))?;
    Ok(if last & 1 == 1 { Op::Read } else { Op::Write })
}

fn fit(head: &Head<'_>, variant: &Disksim) -> Fit {
    Fit::shape(looks(head) == *variant && head.has_lines_of(*variant))
}

/// The variant that the columns look like, if these are the columns of DiskSim at all.
fn looks(head: &Head<'_>) -> Disksim {
    let (mut whole, mut bytes, mut tabs, mut eights) = (true, true, true, true);
    for line in head.lines() {
        let Some((time, place, length)) = columns(line) else { continue };
        let point = time.iter().position(|it| *it == b'.');
        whole &= point.is_none();
        bytes &= place % 512 == 0 && length % 512 == 0;
        eights &= length % 8 == 0;
        tabs &= line.contains(&b'\t') && point.is_some_and(|at| time.len() - at == 7);
    }
    match (bytes, whole, tabs) {
        (true, ..) => BYTES,
        (_, true, _) => SSDSIM,
        (.., true) if !eights => PAGES,
        _ => DISKSIM,
    }
}

/// Time, place and length of a line that has all five columns, whatever their units. Other lines
/// say nothing. A header or half a line would make another format of all lines that follow.
fn columns(line: &[u8]) -> Option<(&[u8], u64, u64)> {
    let mut fields = Fields::blanks(line);
    let time = fields.next().filter(|it| time_of(it, 1).is_ok())?;
    fields.number32("device").ok()?;
    let (place, length) = (fields.number("place").ok()?, fields.number("length").ok()?);
    direction(fields.word(FLAGS).ok()?).ok()?;
    fields.end().ok().map(|()| (time, place, length))
}
