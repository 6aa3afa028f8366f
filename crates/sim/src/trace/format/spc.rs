// SPDX-License-Identifier: MIT OR Apache-2.0
//! The format of the Storage Performance Council, SPC, is comma-separated text. UMass has its
//! traces (Financial, WebSearch) in it.
//!
//! `ASU,LBA,Size,Opcode,Timestamp`: a number of a disk, sectors of 512 bytes, bytes, r or w,
//! seconds; optional fields may follow.

use super::{Format, Item, Lines, Parser, Prelude, read_or_write, record};
use crate::trace::SECTOR_BYTES;
use crate::trace::head::Fit;
use crate::trace::report::Reason;
use crate::trace::text::{Fields, SECOND};

pub(super) const FORMATS: [Format; 1] = [Format {
    name: "spc",
    summary: "SPC, as of UMass (Financial, WebSearch): ASU,LBA,Size,Opcode,Timestamp",
    lookalikes: &[],
    fit: |head| Fit::shape(head.has_lines_of(Spc::default())),
    parser: |_| Parser::Lines(Box::new(Spc::default())),
}];

#[derive(Default)]
struct Spc {
    prelude: Prelude,
}

impl Lines for Spc {
    fn line(&mut self, line: &[u8]) -> Result<Item, Reason> {
        if let Some(skipped) = self.prelude.skips(line) {
            return Ok(skipped);
        }
        let mut fields = Fields::separated(line, b',');
        let asu = fields.number32("ASU")?;
        let sector = fields.number("LBA")?;
        let sectors = fields.number("size")?.div_ceil(SECTOR_BYTES);
        let op = read_or_write(fields.word("opcode")?)?;
        record(Some(fields.time(SECOND)?), op, asu, sector, sectors)
    }
}
