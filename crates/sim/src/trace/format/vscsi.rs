// SPDX-License-Identifier: MIT OR Apache-2.0
//! VMware's tracer and CloudPhysics wrote VSCSI, which is read as libCacheSim does. It is binary,
//! little-endian.
//!
//! Version 1: number u32, bytes u32, scatter-gather entries u32, command u16, version u16, sector
//! u64, time in us u64. Version 2: command u16, version u16, number u32, bytes u32, entries u32,
//! sector u64, time in us u64, response time u64. The high byte of the version is 1 or 2 in every
//! record.

use super::{Binary, Format, Item, Parser, le, record};
use crate::trace::head::Fit;
use crate::trace::report::Reason;
use crate::trace::text::MICROSECOND;
use crate::trace::{Op, SECTOR_BYTES};

pub(super) const FORMATS: [Format; 2] = [
    Format {
        name: "vscsi1",
        summary: "VSCSI version 1 (CloudPhysics, libCacheSim): binary, 32 bytes a request",
        lookalikes: &[],
        fit: |head| Fit::shape(head.has_records_of(ONE)),
        parser: |_| Parser::Binary(Box::new(ONE)),
    },
    Format {
        name: "vscsi2",
        summary: "VSCSI version 2: binary, 40 bytes a request",
        lookalikes: &[],
        fit: |head| Fit::shape(head.has_records_of(TWO)),
        parser: |_| Parser::Binary(Box::new(TWO)),
    },
];

/// The places of the fields.
struct Vscsi {
    version: u64,
    record_bytes: usize,
    command: usize,
    length: usize,
}

const ONE: Vscsi = Vscsi { version: 1, record_bytes: 32, command: 12, length: 4 };
const TWO: Vscsi = Vscsi { version: 2, record_bytes: 40, command: 0, length: 8 };

/// Sector and time are at the same place in both.
const SECTOR: usize = 16;
const TIME: usize = 24;

impl Binary for Vscsi {
    fn item(&mut self, bytes: &[u8]) -> Option<(usize, Result<Item, Reason>)> {
        let bytes = bytes.get(..self.record_bytes)?;
        Some((self.record_bytes, self.read(bytes)))
    }
}

impl Vscsi {
    fn read(&self, bytes: &[u8]) -> Result<Item, Reason> {
        if le::<2>(bytes, self.command + 2) >> 8 != self.version {
            return Err(Reason::Unknown("version"));
        }
        // The operation codes of SCSI, with 6, 10, 12 and 16 bytes.
        let op = match le::<2>(bytes, self.command) {
            0x08 | 0x28 | 0xa8 | 0x88 => Op::Read,
            0x0a | 0x2a | 0xaa | 0x8a => Op::Write,
            0x35 | 0x91 => Op::Flush,
            0x00..=0xff => return Ok(Item::Skipped("commands other than read, write and flush")),
            _ => return Err(Reason::Unknown("operation")),
        };
        let time_ns = le::<8>(bytes, TIME).checked_mul(MICROSECOND).ok_or(Reason::TooLarge("time"))?;
        let (sector, length) = if op == Op::Flush {
            (0, 0)
        } else {
            (le::<8>(bytes, SECTOR), le::<4>(bytes, self.length).div_ceil(SECTOR_BYTES))
        };
        record(Some(time_ns), op, 0, sector, length)
    }
}
