// SPDX-License-Identifier: MIT OR Apache-2.0
//! FIU's traces (SNIA IOTTA; "IODedup", "SyLab") are text, one line for each 4 KiB.
//!
//! `TIME PID PROCESS LBA SECTORS R|W MAJOR MINOR MD5`: nanoseconds, numbers, a name that may have
//! blanks, sectors of 512 bytes.

use super::{BLANK, Format, Item, Lines, Parser, read_or_write, record};
use crate::trace::head::Fit;
use crate::trace::report::Reason;
use crate::trace::text::{Fields, number, time as time_of};

pub(super) const FORMATS: [Format; 1] = [Format {
    name: "fiu",
    summary: "FIU (SNIA IOTTA): time pid process lba sectors R|W major minor md5",
    lookalikes: &[],
    fit: |head| Fit::shape(head.has_lines_of(Fiu)),
    parser: |_| Parser::Lines(Box::new(Fiu)),
}];

struct Fiu;

impl Lines for Fiu {
    fn line(&mut self, line: &[u8]) -> Result<Item, Reason> {
        let mut fields = Fields::blanks(line);
        let Some(time) = fields.next() else { return Ok(Item::Skipped(BLANK)) };
        let time_ns = time_of(time, 1)?;
        fields.number("pid")?;
        // From the end, as the name of the process may have blanks.
        let mut last = line.rsplit(u8::is_ascii_whitespace).filter(|it| !it.is_empty());
        let mut last = |name| last.next().ok_or(Reason::Missing(name));
        let md5 = last("MD5")?;
        let (minor, major) = (number(last("minor")?, "minor")?, number(last("major")?, "major")?);
        let op = read_or_write(last("operation")?)?;
        let (sectors, sector) = (number(last("length")?, "length")?, number(last("lba")?, "lba")?);
        last("process")?;
        if !md5.iter().all(u8::is_ascii_hexdigit) {
            return Err(Reason::Unknown("MD5"));
        }
        if major >= 1 << 12 || minor >= 1 << 20 {
            return Err(Reason::TooLarge("device"));
        }
        record(Some(time_ns), op, (major << 20 | minor) as u32, sector, sectors)
    }
}
