// SPDX-License-Identifier: MIT OR Apache-2.0
//! blktrace's own files hold `struct blk_io_trace` of linux/blktrace_api.h, version 7. Their byte
//! order is the order of the machine that traced.
//!
//! A record has 48 bytes. The fields are magic and version u32, sequence u32, time in ns u64,
//! sector u64, bytes u32 and action u32. Behind them are pid u32, device u32, cpu u32, error u16,
//! and length of the payload u16. The low half of the action is the event, the high half are
//! categories. Then comes the payload, which is skipped. blktrace writes one file per CPU;
//! `blkparse -d` merges them into one by time.

use super::events::{DATALESS, MESSAGE, PASSTHROUGH, kind_of_number, number_of};
use super::{Binary, Format, Item, Parser, record};
use crate::trace::head::Fit;
use crate::trace::report::Reason;
use crate::trace::{Action, Op, SECTOR_BYTES};

pub(super) const FORMATS: [Format; 1] = [Format {
    name: "blktrace",
    summary: "blktrace's own files, or what `blkparse -d` merges from them: binary, either byte order",
    lookalikes: &[],
    fit: |head| Fit::magic(order_of(head.bytes).is_some()),
    parser: |action| Parser::Binary(Box::new(Blktrace::new(action))),
}];

const MAGIC: u32 = 0x6561_7407;
const HEADER_BYTES: usize = 48;

/// An event's number is in the lower byte; the bit above says that the payload begins with a
/// cgroup.
const EVENT: u32 = 0xff;

// Categories, already shifted by 16.
const READ: u32 = 1 << 16;
const WRITE: u32 = 1 << 17;
const FLUSH: u32 = 1 << 18;
const PASS: u32 = 1 << 25;
const NOTIFY: u32 = 1 << 26;
const DISCARD: u32 = 1 << 29;

struct Blktrace {
    event: u32,
}

impl Blktrace {
    fn new(action: Action) -> Self {
        Self { event: number_of(action).into() }
    }

    fn read(&self, event: &Event<'_>) -> Result<Item, Reason> {
        let action = event.u32(28);
        if action & NOTIFY != 0 {
            return Ok(Item::Skipped(MESSAGE));
        }
        if action & EVENT != self.event {
            let kind = kind_of_number((action & EVENT) as u16);
            return kind.map(Item::Skipped).ok_or(Reason::Unknown("event"));
        }
        if action & PASS != 0 {
            return Ok(Item::Skipped(PASSTHROUGH));
        }
        let bytes = event.u32(24);
        // A discard is a write as well, and a flush may come with a write.
        let op = match action {
            _ if bytes == 0 && action & FLUSH != 0 => Op::Flush,
            _ if bytes == 0 => return Ok(Item::Skipped(DATALESS)),
            _ if action & DISCARD != 0 => Op::Discard,
            _ if action & WRITE != 0 => Op::Write,
            _ if action & READ != 0 => Op::Read,
            _ => return Ok(Item::Skipped(DATALESS)),
        };
        let sectors = u64::from(bytes).div_ceil(SECTOR_BYTES);
        let sector = if op == Op::Flush { 0 } else { event.u64(16) };
        record(Some(event.u64(8)), op, event.u32(36), sector, sectors)
    }
}

impl Binary for Blktrace {
    fn item(&mut self, bytes: &[u8]) -> Option<(usize, Result<Item, Reason>)> {
        let Some(little) = order_of(bytes) else {
            // Garbage goes to the next record, or to the last bytes that may begin a record.
            let next = bytes.windows(4).position(|it| order_of(it).is_some());
            let garbage = next.or_else(|| bytes.len().checked_sub(3).filter(|it| *it > 0))?;
            return Some((garbage, Err(Reason::NoRecord(garbage))));
        };
        let event = Event { bytes: bytes.get(..HEADER_BYTES)?, little };
        let length = HEADER_BYTES + usize::from(event.u16(46));
        (bytes.len() >= length).then(|| (length, self.read(&event)))
    }
}

/// Whether the magic is in little-endian order, or not there at all.
fn order_of(bytes: &[u8]) -> Option<bool> {
    let magic = bytes.first_chunk::<4>()?;
    match *magic {
        _ if *magic == MAGIC.to_le_bytes() => Some(true),
        _ if *magic == MAGIC.to_be_bytes() => Some(false),
        _ => None,
    }
}

struct Event<'a> {
    bytes: &'a [u8],
    little: bool,
}

impl Event<'_> {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.bytes[at..at + N]);
        if !self.little {
            bytes.reverse();
        }
        bytes
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }
}
