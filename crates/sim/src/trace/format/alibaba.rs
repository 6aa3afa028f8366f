// SPDX-License-Identifier: MIT OR Apache-2.0
//! Alibaba's block traces of 2020 are comma-separated text.
//!
//! `device_id,opcode,offset,length,timestamp`: a number, R or W, bytes, bytes, microseconds since
//! 1970.

use super::{Format, Item, Lines, Parser, Prelude, read_or_write, record_of_bytes};
use crate::trace::head::Fit;
use crate::trace::report::Reason;
use crate::trace::text::{Fields, MICROSECOND};

pub(super) const FORMATS: [Format; 1] = [Format {
    name: "alibaba",
    summary: "Alibaba's cloud disks: device_id,opcode,offset,length,timestamp",
    lookalikes: &[],
    fit: |head| Fit::shape(head.has_lines_of(Alibaba::default())),
    parser: |_| Parser::Lines(Box::new(Alibaba::default())),
}];

#[derive(Default)]
struct Alibaba {
    prelude: Prelude,
}

impl Lines for Alibaba {
    fn line(&mut self, line: &[u8]) -> Result<Item, Reason> {
        if let Some(skipped) = self.prelude.skips(line) {
            return Ok(skipped);
        }
        let mut fields = Fields::separated(line, b',');
        let device = fields.number32("device")?;
        let op = read_or_write(fields.word("opcode")?)?;
        let (offset, bytes) = (fields.number("offset")?, fields.number("length")?);
        let time_ns = fields.time(MICROSECOND)?;
        fields.end()?;
        record_of_bytes(Some(time_ns), op, device, offset, bytes)
    }
}
