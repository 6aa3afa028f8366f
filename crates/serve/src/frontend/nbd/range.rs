// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes that a client asks for, as the engine's sectors.

use std::ops::Range;

use flashfront_engine::{RequestOp, SECTOR_BYTES};

/// The sectors that these bytes are in.
pub(super) fn sectors_of(start: u64, end: u64) -> Range<u64> {
    start / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES)
}

/// The sectors that a write of these bytes touches, and the operation that writes no others.
pub(super) fn write_of(start: u64, end: u64) -> (Range<u64>, RequestOp) {
    let sectors = sectors_of(start, end);
    let (head, tail) = (start - sectors.start * SECTOR_BYTES, sectors.end * SECTOR_BYTES - end);
    let whole = head == 0 && tail == 0;
    let in_part = RequestOp::WriteBytes { head: head as u16, tail: tail as u16 };
    (sectors, if whole { RequestOp::Write } else { in_part })
}
