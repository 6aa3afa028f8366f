// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts long requests into pieces, and gives the pieces their ids.
//!
//! A request is cut at multiples of 1 MiB from the start of its first block. So each piece has a
//! buffer of at most 1 MiB, and no block is in two pieces. An id is the piece's connection, its
//! request's place there, and its number; [`super::Core::submit`] leaves it 32 bits.

use flashfront_engine::{BLOCK_BYTES, REQUEST_BYTES_MAX, RequestId};

const PIECE_BITS: u32 = 6;
const PLACE_BITS: u32 = 10;
/// Pieces that a request may have.
pub(in crate::frontend) const PIECES_MAX: usize = 1 << PIECE_BITS;
/// Requests that a connection may have.
pub(in crate::frontend) const PLACES_MAX: usize = 1 << PLACE_BITS;

/// The parts of a piece's id: the connection, the place of the request there, the number of the
/// piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::frontend) struct PieceId {
    pub(in crate::frontend) connection: u16,
    pub(in crate::frontend) place: u16,
    pub(in crate::frontend) piece: u16,
}

impl PieceId {
    pub(in crate::frontend) fn encode(self) -> RequestId {
        let low = u64::from(self.place) << PIECE_BITS | u64::from(self.piece);
        RequestId(u64::from(self.connection) << (PIECE_BITS + PLACE_BITS) | low)
    }

    pub(in crate::frontend) fn decode(id: RequestId) -> Self {
        let field = |shift: u32, bits: u32| ((id.0 >> shift) & ((1 << bits) - 1)) as u16;
        Self {
            connection: field(PIECE_BITS + PLACE_BITS, 16),
            place: field(PIECE_BITS, PLACE_BITS),
            piece: field(0, PIECE_BITS),
        }
    }
}

/// A part of a read or write that is one request to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::frontend) struct Piece {
    /// First byte on the export.
    pub(in crate::frontend) offset: u64,
    /// Length in bytes, at most 1 MiB.
    pub(in crate::frontend) len: u32,
}

impl Piece {
    /// The piece `index` of the range; the range has `index` of them or more.
    pub(in crate::frontend) fn of(offset: u64, len: u32, index: u16) -> Self {
        let first_block = offset - offset % BLOCK_BYTES;
        let start = first_block + u64::from(index) * REQUEST_BYTES_MAX;
        let end = (start + REQUEST_BYTES_MAX).min(offset + u64::from(len));
        let start = start.max(offset);
        Self { offset: start, len: (end - start) as u32 }
    }

    /// How many pieces a range of `len` bytes has at most.
    pub(in crate::frontend) const fn count_max(len: u32) -> usize {
        ((BLOCK_BYTES - 1 + len as u64).div_ceil(REQUEST_BYTES_MAX)) as usize
    }

    /// How many pieces the range has.
    pub(in crate::frontend) fn count(offset: u64, len: u32) -> u16 {
        (offset % BLOCK_BYTES + u64::from(len)).div_ceil(REQUEST_BYTES_MAX) as u16
    }

    /// The place in its buffer where the payload starts.
    pub(in crate::frontend) fn buf_offset(self) -> u32 {
        (self.offset % BLOCK_BYTES) as u32
    }

    /// Bytes of its buffer, which holds all blocks that it touches.
    pub(in crate::frontend) fn buf_bytes(self) -> u32 {
        (self.buf_offset() + self.len).next_multiple_of(BLOCK_BYTES as u32)
    }
}
