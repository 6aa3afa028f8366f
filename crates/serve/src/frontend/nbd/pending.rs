// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests of one connection that are not answered completely, and how long ones are cut.
//!
//! A request is cut at multiples of 1 MiB from the start of its first block, so that each piece
//! has a buffer of at most 1 MiB and no block is in two pieces. A place in the table names the
//! request in the engine's ids; it is reused only when the engine owes nothing for it and the reply
//! is sent, so an id needs no generation.

use flashfront_engine::{BLOCK_BYTES, Buf, REQUEST_BYTES_MAX, RequestId};

use super::wire::Errno;
use super::{PAYLOAD_BYTES_MAX, REQUESTS_MAX};

const PIECE_BITS: u32 = 6;
const PLACE_BITS: u32 = 10;
const _: () = assert!(PAYLOAD_BYTES_MAX as u64 / REQUEST_BYTES_MAX < 1 << PIECE_BITS);
const _: () = assert!(REQUESTS_MAX <= 1 << PLACE_BITS);

/// What a request name is made of: which connection, which of its requests, which piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PieceId {
    pub(super) connection: u16,
    pub(super) place: u16,
    pub(super) piece: u16,
}

impl PieceId {
    pub(super) fn encode(self) -> RequestId {
        let low = u64::from(self.place) << PIECE_BITS | u64::from(self.piece);
        RequestId(u64::from(self.connection) << (PIECE_BITS + PLACE_BITS) | low)
    }

    pub(super) fn decode(id: RequestId) -> Self {
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
pub(super) struct Piece {
    /// First byte on the export.
    pub(super) offset: u64,
    /// Length in bytes, at most 1 MiB.
    pub(super) len: u32,
}

impl Piece {
    /// The piece `index` of the range; the range has `index` of them or more.
    pub(super) fn of(offset: u64, len: u32, index: u16) -> Self {
        let first_block = offset - offset % BLOCK_BYTES;
        let start = first_block + u64::from(index) * REQUEST_BYTES_MAX;
        let end = (start + REQUEST_BYTES_MAX).min(offset + u64::from(len));
        let start = start.max(offset);
        Self { offset: start, len: (end - start) as u32 }
    }

    /// How many pieces the range has.
    pub(super) fn count(offset: u64, len: u32) -> u16 {
        (offset % BLOCK_BYTES + u64::from(len)).div_ceil(REQUEST_BYTES_MAX) as u16
    }

    /// Where its payload starts in its buffer.
    pub(super) fn buf_offset(self) -> u32 {
        (self.offset % BLOCK_BYTES) as u32
    }

    /// What its buffer must hold: all blocks it touches.
    pub(super) fn buf_bytes(self) -> u32 {
        (self.buf_offset() + self.len).next_multiple_of(BLOCK_BYTES as u32)
    }
}

/// What kind of request, as far as its answer depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Other,
}

/// A request of a client.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) kind: Kind,
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
    /// Pieces the engine has not answered.
    pub(super) unanswered: u16,
    /// A write whose payload has not come completely.
    pub(super) receiving: bool,
    /// The first failure.
    pub(super) error: Option<Errno>,
    /// The buffers of its pieces, until they are freed or handed to the outbox.
    pub(super) bufs: Vec<Option<Buf>>,
}

/// The requests of one connection.
#[derive(Debug, Default)]
pub(super) struct Table {
    all: Vec<Pending>,
    free: Vec<u16>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= REQUESTS_MAX
    }

    /// A place for a new request. The caller has seen that there is one.
    pub(super) fn insert(&mut self, kind: Kind, cookie: u64, offset: u64, len: u32) -> u16 {
        debug_assert!(!self.is_full());
        if let Some(place) = self.free.pop() {
            let pending = &mut self.all[usize::from(place)];
            // The vector of buffers is kept: no allocation in the steady state.
            pending.bufs.clear();
            pending.kind = kind;
            pending.cookie = cookie;
            pending.offset = offset;
            pending.len = len;
            pending.unanswered = 0;
            pending.receiving = false;
            pending.error = None;
            return place;
        }
        self.all.push(Pending {
            kind,
            cookie,
            offset,
            len,
            unanswered: 0,
            receiving: false,
            error: None,
            bufs: Vec::new(),
        });
        (self.all.len() - 1) as u16
    }

    pub(super) fn get_mut(&mut self, place: u16) -> &mut Pending {
        &mut self.all[usize::from(place)]
    }

    pub(super) fn remove(&mut self, place: u16) {
        debug_assert!(!self.free.contains(&place));
        self.free.push(place);
    }
}
