// SPDX-License-Identifier: MIT OR Apache-2.0
//! The SYSTOR '17 traces are comma-separated text (SNIA IOTTA; C. Lee et al., Understanding Storage
//! Traffic Characteristics on Enterprise Virtual Desktop Infrastructure, SYSTOR 2017).
//!
//! `Timestamp,Response,IOType,LUN,Offset,Size`: seconds since 1970, seconds (empty if there was no
//! answer), R or W, a number, bytes, bytes.

use super::{Format, Item, Lines, Parser, Prelude, read_or_write, record_of_bytes};
use crate::trace::head::Fit;
use crate::trace::report::Reason;
use crate::trace::text::{Fields, SECOND};

pub(super) const FORMATS: [Format; 1] = [Format {
    name: "systor",
    summary: "SYSTOR '17: Timestamp,Response,IOType,LUN,Offset,Size",
    lookalikes: &[],
    fit: |head| Fit::shape(head.has_lines_of(Systor::default())),
    parser: |_| Parser::Lines(Box::new(Systor::default())),
}];

#[derive(Default)]
struct Systor {
    prelude: Prelude,
}

impl Lines for Systor {
    fn line(&mut self, line: &[u8]) -> Result<Item, Reason> {
        if let Some(skipped) = self.prelude.skips(line) {
            return Ok(skipped);
        }
        let mut fields = Fields::separated(line, b',');
        let time_ns = fields.time(SECOND)?;
        if fields.next().is_some_and(|response| response.iter().any(u8::is_ascii_alphabetic)) {
            return Err(Reason::NotNumber("response"));
        }
        let op = read_or_write(fields.word("operation")?)?;
        let lun = fields.number32("LUN")?;
        let (offset, bytes) = (fields.number("offset")?, fields.number("size")?);
        fields.end()?;
        record_of_bytes(Some(time_ns), op, lun, offset, bytes)
    }
}
