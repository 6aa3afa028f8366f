// SPDX-License-Identifier: MIT OR Apache-2.0
//! fio's I/O logs (`write_iolog`) are of version 2 or 3. The first line says which.
//!
//! Version 2: `FILE ACTION [OFFSET LENGTH]`, in bytes; `FILE wait US 0` passes time. Version 3:
//! `TIME FILE ACTION [OFFSET LENGTH]`. Time is in microseconds in what fio 3.33 writes (with
//! `thinktime=5000` it counts 5000 further).

use super::{BLANK, Format, HEADER, Item, Lines, Parser, record_of_bytes};
use crate::trace::Op;
use crate::trace::head::Fit;
use crate::trace::names::Names;
use crate::trace::report::Reason;
use crate::trace::text::{Fields, MICROSECOND};

pub(super) const FORMATS: [Format; 2] = [
    Format {
        name: "fio2",
        summary: "fio's I/O log, version 2: no times",
        lookalikes: &[],
        fit: |head| Fit::magic(head.bytes.starts_with(b"fio version 2 iolog")),
        parser: |_| Parser::Lines(Box::new(Fio::default())),
    },
    Format {
        name: "fio3",
        summary: "fio's I/O log, version 3 (what write_iolog writes since fio 3.33)",
        lookalikes: &[],
        fit: |head| Fit::magic(head.bytes.starts_with(b"fio version 3 iolog")),
        parser: |_| Parser::Lines(Box::new(Fio { times: true, ..Fio::default() })),
    },
];

#[derive(Default)]
struct Fio {
    times: bool,
    files: Names,
    /// The time that version 2 has waited.
    waited_ns: Option<u64>,
}

impl Lines for Fio {
    fn line(&mut self, line: &[u8]) -> Result<Item, Reason> {
        if line.starts_with(b"fio version ") {
            return Ok(Item::Skipped(HEADER));
        }
        if line.trim_ascii().is_empty() {
            return Ok(Item::Skipped(BLANK));
        }
        let mut fields = Fields::blanks(line);
        let time_ns = if self.times { Some(fields.time(MICROSECOND)?) } else { self.waited_ns };
        let file = fields.word("file")?;
        let action = fields.word("action")?;
        let op = match action {
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"trim" => Op::Discard,
            b"sync" | b"datasync" => Op::Flush,
            b"add" | b"open" | b"close" => return Ok(Item::Skipped("files added, opened, closed")),
            b"wait" => {
                let wait_ns = fields.number("wait")?.checked_mul(MICROSECOND);
                let waited_ns = wait_ns.and_then(|it| it.checked_add(self.waited_ns.unwrap_or(0)));
                self.waited_ns = Some(waited_ns.ok_or(Reason::TooLarge("wait"))?);
                return Ok(Item::Skipped("waits"));
            }
            _ => return Err(Reason::Unknown("action")),
        };
        let (offset, bytes) = match op {
            Op::Flush => (0, 0),
            _ => (fields.number("offset")?, fields.number("length")?),
        };
        record_of_bytes(time_ns, op, self.files.number(file)?, offset, bytes)
    }
}
