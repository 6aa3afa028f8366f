// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts a client's request into requests to the engine, or finds that it is not in order.
//!
//! Reads and writes are cut as the NBD front-end cuts them, so that each part has a buffer of at
//! most 1 MiB. A discard that must leave zeroes is a discard of the whole blocks and writes zeroes
//! to the ends (test: `a_zeroed_discard_covers_its_range`).

use flashfront_engine::{BLOCK_BYTES, REQUEST_BYTES_MAX, RequestOp};

use super::super::Export;
use super::super::piece::Piece;
use super::Want;

/// The most parts of one request.
pub(super) const PARTS_MAX: usize = 3;

/// A request to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) op: RequestOp,
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl Part {
    /// Returns the part as a piece of payload; `None` if it has none.
    pub(super) fn payload(&self) -> Option<Piece> {
        let payload = matches!(self.op, RequestOp::Read | RequestOp::Write);
        payload.then_some(Piece { offset: self.offset, len: self.len as u32 })
    }
}

/// Up to [`PARTS_MAX`] parts, without gaps and in order; `None` if the request can't be carried
/// out.
pub(super) fn parts(want: &Want, export: &Export) -> Option<Vec<Part>> {
    let Want { op, offset, len, .. } = *want;
    if op == RequestOp::Flush {
        return Some(vec![Part { op, offset: 0, len: 0 }]);
    }
    let unit = u64::from(export.block_bytes);
    let aligned = offset.is_multiple_of(unit) && len.is_multiple_of(unit) && len > 0;
    let inside = offset.checked_add(len).is_some_and(|end| end <= export.size_bytes);
    if !aligned || !inside || (export.read_only && op != RequestOp::Read) {
        return None;
    }
    let parts = match op {
        RequestOp::Read | RequestOp::Write => {
            let len = u32::try_from(len).ok().filter(|len| u64::from(*len) <= REQUEST_BYTES_MAX)?;
            let pieces = (0..Piece::count(offset, len)).map(|index| Piece::of(offset, len, index));
            pieces.map(|piece| Part { op, offset: piece.offset, len: u64::from(piece.len) }).collect()
        }
        RequestOp::Discard if want.zeroed => zeroed(offset, offset + len, export.size_bytes),
        RequestOp::Discard | RequestOp::WriteZeroes { .. } | RequestOp::Flush => vec![Part { op, offset, len }],
        // Clients of these front-ends never ask for these.
        RequestOp::WriteBytes { .. } | RequestOp::Prefetch | RequestOp::Warm { .. } | RequestOp::Map => return None,
    };
    debug_assert!(parts.len() <= PARTS_MAX, "{want:?} in {parts:?}");
    Some(parts)
}

/// A discard of the whole blocks between, and zeroes for the ends.
fn zeroed(start: u64, end: u64, size_bytes: u64) -> Vec<Part> {
    let first = start.next_multiple_of(BLOCK_BYTES).min(end);
    // A short last block of a volume counts as whole.
    let last = if end == size_bytes { end } else { (end - end % BLOCK_BYTES).max(first) };
    let zeroes = RequestOp::WriteZeroes { may_discard: true };
    let parts = [(zeroes, start, first), (RequestOp::Discard, first, last), (zeroes, last, end)];
    let parts = parts.into_iter().filter(|(_, from, to)| from < to);
    parts.map(|(op, from, to)| Part { op, offset: from, len: to - from }).collect()
}
