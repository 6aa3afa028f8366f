// SPDX-License-Identifier: MIT OR Apache-2.0
//! The payload of requests is what clients of a world write, and what comes back to them.

use flashfront_engine::{BLOCK_BYTES, BLOCK_SECTORS, MAP_BYTES, Request, RequestOp, SECTOR_BYTES};

use crate::stamp::{SECTOR, stamp};

/// Bytes of a block.
pub(super) const BLOCK: u32 = BLOCK_BYTES as u32;

/// Blocks of the buffer that a request needs.
pub(super) fn blocks(op: RequestOp, lba: u64, sectors: u64) -> u32 {
    match op {
        RequestOp::Map => MAP_BYTES / BLOCK,
        _ if op.has_payload() => (lba % BLOCK_SECTORS + sectors).div_ceil(BLOCK_SECTORS) as u32,
        _ => 0,
    }
}

/// Fills the buffer of a request. A write is stamped with `write`, or zeroes for `None`; a write in
/// bytes has that number in each byte.
pub(super) fn fill(bytes: &mut [u8], op: RequestOp, origin: usize, lba: u64, sectors: u64, write: Option<u32>) {
    // What is around the payload is garbage, as in a daemon.
    bytes.fill(0xa5);
    let from = (lba % BLOCK_SECTORS) as usize * SECTOR;
    if let RequestOp::WriteBytes { head, tail } = op {
        let end = from + sectors as usize * SECTOR - usize::from(tail);
        bytes[from + usize::from(head)..end].fill(write.unwrap_or_default() as u8);
    }
    if op == RequestOp::Write {
        let payload = &mut bytes[from..from + sectors as usize * SECTOR];
        for (sector, bytes) in (lba..).zip(payload.chunks_exact_mut(SECTOR)) {
            match write {
                Some(write) => stamp(origin, sector, write, bytes),
                None => bytes.fill(0),
            }
        }
    }
}

/// Where the answer to a request lies in its buffer, and how long it is.
pub(super) fn answer(request: &Request) -> Option<(u32, u32)> {
    match request.op {
        RequestOp::Map => Some((0, MAP_BYTES)),
        RequestOp::Read => {
            let from = (request.lba.0 % BLOCK_SECTORS * SECTOR_BYTES) as u32;
            Some((from, (request.sectors * SECTOR_BYTES) as u32))
        }
        _ => None,
    }
}
