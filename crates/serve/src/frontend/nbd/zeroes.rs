// SPDX-License-Identifier: MIT OR Apache-2.0
//! WRITE_ZEROES: parts of sectors are written, sectors are zeroed.

use flashfront_engine::{BLOCK_BYTES, RequestOp, SECTOR_BYTES, Span};
use flashfront_nbd_proto::Request;

use super::asked::Order;
use super::range::{sectors_of, write_of};
use super::requests::Requests;
use super::wait::Wait;
use crate::frontend::Core;
use crate::frontend::piece::Piece;

const BLOCK: u32 = BLOCK_BYTES as u32;
/// The slot of the whole sectors; those in part have 0 and 1.
const SECTORS_SLOT: usize = 2;

/// Begins to zero a range, or tells what that must wait for.
pub(super) fn start(
    requests: &mut Requests,
    request: &Request,
    may_discard: bool,
    core: &mut dyn Core,
    may_alloc: bool,
) -> Option<Wait> {
    let (start, end, fua) = (request.offset, request.offset + request.len, request.fua);
    let first = start.next_multiple_of(SECTOR_BYTES).min(end);
    let last = (end / SECTOR_BYTES * SECTOR_BYTES).max(first);
    let in_part = [start..first, last..end];
    let count = in_part.iter().filter(|range| !range.is_empty()).count();
    if count > 0
        && let Some(wait) = requests.holdings.must_wait(count as u64 * BLOCK_BYTES, may_alloc)
    {
        return Some(wait);
    }
    let place = requests.insert(request);
    for (slot, range) in in_part.iter().enumerate().filter(|(_, range)| !range.is_empty()) {
        let piece = Piece { offset: range.start, len: (range.end - range.start) as u32 };
        if !requests.take_buf(place, slot, piece, requests.holdings.share_for(BLOCK_BYTES), core) {
            requests.table.remove(place);
            return Some(Wait::Room);
        }
    }
    for (slot, range) in in_part.into_iter().enumerate().filter(|(_, range)| !range.is_empty()) {
        let buf = requests.table.get_mut(place).parts[slot].map(|part| part.buf);
        if let Some(buf) = buf {
            core.memory().zero(Span::new(buf, 0, BLOCK));
        }
        let (sectors, op) = write_of(range.start, range.end);
        requests.holdings.begin_write(buf, BLOCK, core);
        requests.submit(Order { place, slot, op, sectors, buf, fua }, core);
    }
    if first < last {
        let (sectors, op) = (sectors_of(first, last), RequestOp::WriteZeroes { may_discard });
        requests.submit(Order { place, slot: SECTORS_SLOT, op, sectors, buf: None, fua }, core);
    }
    None
}
