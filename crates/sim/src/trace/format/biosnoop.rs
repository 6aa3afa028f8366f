// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the output of BCC's `biosnoop`, of either version (Python, libbpf).
//!
//! A line is `TIME(s) COMM PID DISK T SECTOR BYTES [QUE(ms)] LAT(ms)`:
//!
//! - TIME: seconds since the first request, with a point.
//! - COMM and PID: a process's name, which may have blanks, and its number.
//! - DISK and T: a disk, and letters of the operation.
//! - SECTOR and BYTES: sectors of 512 bytes, and bytes.
//! - QUE and LAT: milliseconds.

use super::events::operation;
use super::{Format, Item, Lines, Parser, Prelude, record};
use crate::trace::head::Fit;
use crate::trace::names::Names;
use crate::trace::report::Reason;
use crate::trace::text::{SECOND, number, time};
use crate::trace::{Op, SECTOR_BYTES};

pub(super) const FORMATS: [Format; 1] = [Format {
    name: "biosnoop",
    summary: "BCC's biosnoop: TIME(s) COMM PID DISK T SECTOR BYTES [QUE(ms)] LAT(ms)",
    lookalikes: &[],
    fit: |head| Fit::shape(head.has_lines_of(Biosnoop::default())),
    parser: |_| Parser::Lines(Box::new(Biosnoop::default())),
}];

#[derive(Default)]
struct Biosnoop {
    prelude: Prelude,
    disks: Names,
    /// The places of a line's fields. They are kept here so that no line allocates.
    fields: Vec<(usize, usize)>,
}

/// The number of fields from the operation to the end of a line: without a time in the queue, and
/// with that time.
const BEHIND: [usize; 2] = [4, 5];

impl Lines for Biosnoop {
    fn line(&mut self, line: &[u8]) -> Result<Item, Reason> {
        if let Some(skipped) = self.prelude.skips(line) {
            return Ok(skipped);
        }
        self.fields.clear();
        let mut at = 0;
        for field in line.split(u8::is_ascii_whitespace) {
            if !field.is_empty() {
                self.fields.push((at, at + field.len()));
            }
            at += field.len() + 1;
        }
        let field = |nth: usize| &line[self.fields[nth].0..self.fields[nth].1];
        let is_operation = |word: &[u8]| word.iter().all(u8::is_ascii_uppercase);
        let count = self.fields.len();
        // Fields are counted from the end, since the name of a process may be several fields.
        let operation_at = BEHIND.into_iter().filter_map(|behind| count.checked_sub(behind)).find(|at| {
            *at >= 4 && is_operation(field(*at)) && number(field(at - 2), "PID").is_ok()
        });
        let at = operation_at.ok_or(Reason::Missing("operation"))?;
        // FIU's traces look alike, except for the points in times.
        if [0, count - 1].iter().any(|at| !field(*at).contains(&b'.')) {
            return Err(Reason::NotNumber("time"));
        }
        let time_ns = time(field(0), SECOND)?;
        let (sector, bytes) = (number(field(at + 1), "sector")?, number(field(at + 2), "bytes")?);
        let op = match operation(field(at)) {
            Some(op) => op,
            None if field(at).contains(&b'F') => Op::Flush,
            None => return Err(Reason::Unknown("operation")),
        };
        let disk = self.disks.number(field(at - 1))?;
        if op == Op::Flush {
            return record(Some(time_ns), op, disk, 0, 0);
        }
        record(Some(time_ns), op, disk, sector, bytes.div_ceil(SECTOR_BYTES))
    }
}
