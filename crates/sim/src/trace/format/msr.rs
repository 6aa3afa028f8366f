// SPDX-License-Identifier: MIT OR Apache-2.0
//! The traces of MSR Cambridge (SNIA IOTTA) are comma-separated text.
//!
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`: 100 ns since 1601, a name, a
//! number, Read or Write, bytes, bytes, 100 ns.

use super::{Format, Item, Lines, Parser, Prelude, read_or_write, record_of_bytes};
use crate::trace::head::Fit;
use crate::trace::names::Names;
use crate::trace::report::Reason;
use crate::trace::text::Fields;

pub(super) const FORMATS: [Format; 1] = [Format {
    name: "msr",
    summary: "MSR Cambridge: Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
    lookalikes: &[],
    fit: |head| Fit::shape(head.has_lines_of(Msr::default())),
    parser: |_| Parser::Lines(Box::new(Msr::default())),
}];

/// The clock of Windows ticks every 100 ns.
const TICK_NS: u64 = 100;

#[derive(Default)]
struct Msr {
    prelude: Prelude,
    disks: Names,
    /// Host and number, as one name.
    disk: Vec<u8>,
}

impl Lines for Msr {
    fn line(&mut self, line: &[u8]) -> Result<Item, Reason> {
        if let Some(skipped) = self.prelude.skips(line) {
            return Ok(skipped);
        }
        let mut fields = Fields::separated(line, b',');
        let time_ns = fields.time(TICK_NS)?;
        let (host, disk) = (fields.word("host")?, fields.word("disk")?);
        let op = read_or_write(fields.word("operation")?)?;
        let (offset, bytes) = (fields.number("offset")?, fields.number("length")?);
        // Some copies lack the response time.
        if fields.next().is_some() {
            fields.end()?;
        }
        self.disk.clear();
        self.disk.extend_from_slice(host);
        self.disk.push(b',');
        self.disk.extend_from_slice(disk);
        record_of_bytes(Some(time_ns), op, self.disks.number(&self.disk)?, offset, bytes)
    }
}
