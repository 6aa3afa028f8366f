// SPDX-License-Identifier: MIT OR Apache-2.0
//! libCacheSim's oracleGeneral is binary, little-endian, with 24 bytes a request: time in s u32,
//! object u64, bytes u32, next access i64.
//!
//! An object is whatever was traced: a block, a file, a hash of a key. It is read as one block of 4
//! KiB. Of numbers above 2^59 the lower 59 bits count, so that hashes stay apart. If objects are
//! sectors, and sizes bytes, `oracle-general-lba` reads them so. Nothing in the file tells the two
//! apart. There is no direction: all requests are reads.

use super::{Binary, Format, Item, Parser, le, named};
use crate::trace::head::{Fit, LINES_PER_BAD};
use crate::trace::report::Reason;
use crate::trace::text::SECOND;
use crate::trace::{Op, SECTOR_BYTES};

/// Only the looks of their contents tell these formats apart.
const LOOKALIKES: [&str; 2] = ["oracle-general", "oracle-general-lba"];

pub(super) const FORMATS: [Format; 2] = [
    Format {
        name: "oracle-general",
        summary: "libCacheSim's oracleGeneral: binary, each object one block of 4 KiB",
        lookalikes: &LOOKALIKES,
        fit: |head| {
            Fit::shape(are_in_order(head.bytes) && head.has_records_of(OracleGeneral { objects: Objects::Blocks }))
        },
        parser: |_| Parser::Binary(Box::new(OracleGeneral { objects: Objects::Blocks })),
    },
    Format {
        name: "oracle-general-lba",
        summary: "the same, objects are sectors of 512 bytes, sizes count",
        lookalikes: &LOOKALIKES,
        fit: |_| Fit::No,
        parser: |_| Parser::Binary(Box::new(OracleGeneral { objects: Objects::Sectors })),
    },
];

const RECORD_BYTES: usize = 24;
const BLOCK_SECTORS: u64 = 8;
const BLOCK_MASK: u64 = (1 << 59) - 1;

/// No trace has more requests than this. A next access that is no number of a request is garbage.
const REQUESTS_MAX: i64 = 1 << 40;

enum Objects {
    Blocks,
    Sectors,
}

struct OracleGeneral {
    objects: Objects,
}

impl Binary for OracleGeneral {
    fn item(&mut self, bytes: &[u8]) -> Option<(usize, Result<Item, Reason>)> {
        let bytes = bytes.get(..RECORD_BYTES)?;
        Some((RECORD_BYTES, self.read(bytes)))
    }
}

impl OracleGeneral {
    fn read(&self, bytes: &[u8]) -> Result<Item, Reason> {
        let (time, object, size) = (le::<4>(bytes, 0), le::<8>(bytes, 4), le::<4>(bytes, 12));
        let next = le::<8>(bytes, 16) as i64;
        // -1, -2 and the largest number mean "never".
        if next < -2 || (next > REQUESTS_MAX && next != i64::MAX) {
            return Err(Reason::Unknown("next access"));
        }
        let (sector, sectors) = match self.objects {
            Objects::Blocks => ((object & BLOCK_MASK) * BLOCK_SECTORS, BLOCK_SECTORS),
            Objects::Sectors => (object, size.div_ceil(SECTOR_BYTES)),
        };
        named(Some(time * SECOND), Op::Read, 0, sector, sectors)
    }
}

/// Whether the first records look like records. Their times don't fall, with one exception in ten.
/// At least one record in ten has the size of a block or request, as objects may be empty or huge.
/// Random bytes and zeros aren't like that. A single record must be all that the file has: the only
/// record of a VSCSI trace looks like this format, but more bytes follow.
fn are_in_order(bytes: &[u8]) -> bool {
    let records: Vec<&[u8]> = bytes.chunks_exact(RECORD_BYTES).collect();
    let falls = records.windows(2).filter(|it| le::<4>(it[1], 0) < le::<4>(it[0], 0)).count();
    let usual = records.iter().filter(|it| (1..1 << 30).contains(&le::<4>(it, 12))).count();
    let alone = records.len() == 1 && bytes.len() > RECORD_BYTES;
    falls * LINES_PER_BAD <= records.len() && usual * LINES_PER_BAD >= records.len() && !alone
}
