// SPDX-License-Identifier: MIT OR Apache-2.0
//! The traces of Tencent's cloud block storage (SNIA IOTTA, ATC '20) are comma-separated text.
//!
//! `Timestamp,Offset,Size,IOType,VolumeID`: seconds since 1970, sectors of 512 bytes, sectors, 0
//! for read or 1 for write, a number.

use super::{Format, Item, Lines, Parser, Prelude, record};
use crate::trace::Op;
use crate::trace::head::Fit;
use crate::trace::report::Reason;
use crate::trace::text::{Fields, SECOND};

pub(super) const FORMATS: [Format; 1] = [Format {
    name: "tencent",
    summary: "Tencent's cloud disks: Timestamp,Offset,Size,IOType,VolumeID",
    lookalikes: &[],
    fit: |head| Fit::shape(head.has_lines_of(Tencent::default())),
    parser: |_| Parser::Lines(Box::new(Tencent::default())),
}];

#[derive(Default)]
struct Tencent {
    prelude: Prelude,
}

impl Lines for Tencent {
    fn line(&mut self, line: &[u8]) -> Result<Item, Reason> {
        if let Some(skipped) = self.prelude.skips(line) {
            return Ok(skipped);
        }
        let mut fields = Fields::separated(line, b',');
        let time_ns = fields.time(SECOND)?;
        let (sector, sectors) = (fields.number("offset")?, fields.number("size")?);
        let op = match fields.word("operation")? {
            b"0" => Op::Read,
            b"1" => Op::Write,
            _ => return Err(Reason::Unknown("operation")),
        };
        let volume = fields.number32("volume")?;
        fields.end()?;
        record(Some(time_ns), op, volume, sector, sectors)
    }
}
