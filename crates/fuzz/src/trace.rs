// SPDX-License-Identifier: MIT OR Apache-2.0
//! Block traces, packed or not: the first byte says in which format they are read, or that it is to
//! be found out.
//!
//! Every record is one that can be simulated, and everything that was read is accounted for. A
//! short trace takes no more RAM than a long one.

use std::io::Cursor;

use flashfront_sim::trace::{Action, BAD_SHOWN, Format, Grid, Op, Options, Reader, SECTOR_MAX};

use crate::Target;

pub(crate) const TARGET: Target = Target {
    name: "trace",
    summary: "block traces in all formats, and their compression",
    input_bytes_max: 8 << 10,
    // A few bytes of xz or zstd may ask for a window of 128 MiB.
    heap_bytes_max: 300 << 20,
    body,
};

/// An input of some KiB can unpack to GiB: so many records are enough.
const RECORDS_MAX: usize = 100_000;

fn body(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else { return };
    let format = Format::all().nth(usize::from(first & 0x3f));
    let action = [Action::Queue, Action::Issue, Action::Complete, Action::Queue][usize::from(first >> 6)];
    let options = Options { format, action, strict: false };
    let mut reader = match Reader::new(Cursor::new(bytes.to_vec()), &options) {
        Ok(reader) => reader,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let mut records = 0;
    for record in reader.by_ref().take(RECORDS_MAX) {
        let record = record.expect("RAM can be read");
        let end = record.sector + u64::from(record.sectors);
        assert!(end <= SECTOR_MAX, "{record:?}");
        assert_eq!(record.sectors == 0, record.op == Op::Flush, "{record:?}");
        let grid = Grid::shifted(*first);
        let (least, most) = (u64::from(record.sectors).div_ceil(8), u64::from(record.sectors) / 8 + 2);
        assert!((least..=most).contains(&(grid.accesses(&record).len() as u64)), "{record:?}");
        records += 1;
    }
    let report = reader.report();
    assert_eq!(report.records, records);
    assert_eq!(report.first_bad.len() as u64, report.bad.min(BAD_SHOWN as u64));
    assert!(report.first_bad.iter().all(|bad| !bad.to_string().contains('\n')));
    assert!(reader.input_bytes() <= bytes.len() as u64);
}
