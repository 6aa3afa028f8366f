// SPDX-License-Identifier: MIT OR Apache-2.0
//! A record is one request of a trace.

/// Bytes of a sector, whatever unit a trace counts in.
pub const SECTOR_BYTES: u64 = 512;

/// Reads and writes longer than this are no requests but garbage: 1 GiB. The block layer's longest
/// is some MiB.
pub const DATA_SECTORS_MAX: u64 = 1 << 21;

/// No request of a disk ends behind this sector: no disk has more than 128 TiB. Objects have names
/// in place of places, and these may be as large as [`SECTOR_MAX`].
pub const PLACE_SECTORS_MAX: u64 = 1 << 38;

/// No record ends behind this sector, so that sums of places don't overflow.
pub const SECTOR_MAX: u64 = 1 << 62;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// A read; also where a trace doesn't tell.
    Read,
    /// A write.
    Write,
    /// A discard, for which others say trim.
    Discard,
    /// A flush: what was written before becomes durable. It has no place.
    Flush,
}

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The time by the trace's own clock: from boot, 1970, 1601 or the start of the trace.
    pub time_ns: Option<u64>,
    /// The kind of the request.
    pub op: Op,
    /// The disk of the trace: its number there (`major << 20 | minor` for those of Linux), or
    /// else the how-manieth name it was.
    pub device: u32,
    /// The first sector of 512 bytes.
    pub sector: u64,
    /// The number of sectors; above 0 but for [`Op::Flush`].
    pub sectors: u32,
}
