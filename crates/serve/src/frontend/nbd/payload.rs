// SPDX-License-Identifier: MIT OR Apache-2.0
//! The payload of a write on its way in.
//!
//! A long piece is received into a buffer of the share for payload. A client that doesn't send the
//! rest holds that buffer. When that share is used up, and for short pieces, payload comes into the
//! read buffer. It is copied when all of a piece is there, so that a client holds no buffer (test:
//! `paused_writers_hold_no_buffers_that_others_need`).
//!
//! Each piece goes to the engine as soon as it is complete. A client that leaves in the middle has
//! written a part, as the protocol allows.

use flashfront_device::Share;
use flashfront_engine::{BLOCK_BYTES, Buf, REQUEST_BYTES_MAX, Span};
use flashfront_nbd_proto::server::Refusal;
use flashfront_nbd_proto::wire::Errno;

use super::input::Input;
use super::requests::Requests;
use super::wait::Wait;
use super::write::submit_write;
use crate::frontend::Core;
use crate::frontend::piece::Piece;

/// Payload is received into its buffer if at least this much of a piece is missing. Below it a copy
/// is cheaper than a system call that ends at the payload's end.
const DIRECT_BYTES_MIN: usize = 16 << 10;
/// Bytes that are copied from the read buffer at a time, which holds them in any case.
const SHORT_BYTES: u64 = 64 << 10;

/// A write that is being received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Payload {
    place: u16,
    /// The first byte of the write on the export.
    first: u64,
    /// The next byte on the export that is not at the engine, and the end.
    at: u64,
    end: u64,
    direct: Option<Direct>,
}

/// A piece that is received into its buffer.
#[derive(Clone, Copy, Debug)]
struct Direct {
    piece: Piece,
    buf: Buf,
    /// Bytes that have come.
    have: u32,
}

/// How far a payload has come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Came {
    /// Something is needed before the rest.
    Waits(Payload, Wait),
    /// A piece is at the engine, and more is to come.
    Goes(Payload),
    /// All payload is at the engine.
    Completely,
}

impl Direct {
    /// The place of the rest of a piece.
    fn rest(&self) -> Span {
        Span::new(self.buf, self.piece.buf_offset() + self.have, self.piece.len - self.have)
    }
}

impl Payload {
    /// The payload of a write of which nothing has come yet.
    pub(super) fn new(place: u16, offset: u64, len: u64) -> Self {
        Self { place, first: offset, at: offset, end: offset + len, direct: None }
    }

    /// Returns the next piece, up to a multiple of `bytes` from the first block on.
    fn next(&self, bytes: u64) -> Piece {
        let first_block = self.first - self.first % BLOCK_BYTES;
        let end = (self.at - first_block) / bytes * bytes + bytes + first_block;
        Piece { offset: self.at, len: (end.min(self.end) - self.at) as u32 }
    }

    /// The place of the next bytes, if they are worth a direct receive.
    pub(super) fn direct(&self) -> Option<Span> {
        let rest = self.direct.as_ref()?.rest();
        (rest.len as usize >= DIRECT_BYTES_MIN).then_some(rest)
    }

    /// Bytes have come straight into their buffer.
    pub(super) fn received(&mut self, bytes: u32) {
        if let Some(direct) = &mut self.direct {
            direct.have += bytes;
        }
    }

    /// Goes on with the bytes of the read buffer.
    pub(super) fn go_on(
        mut self,
        input: &mut Input,
        requests: &mut Requests,
        core: &mut dyn Core,
        may_alloc: bool,
    ) -> Came {
        if self.direct.is_none() {
            let here = input.len();
            let long = self.next(REQUEST_BYTES_MAX);
            self.direct = receive_directly(long, here, requests, core);
            if self.direct.is_none() {
                let piece = if here >= long.len as usize { long } else { self.next(SHORT_BYTES) };
                if here < piece.len as usize {
                    return Came::Waits(self, Wait::Input);
                }
                return self.copy_piece(piece, input, requests, core, may_alloc);
            }
        }
        let Some(direct) = &mut self.direct else { return Came::Goes(self) };
        let rest = direct.rest();
        let here = input.len().min(rest.len as usize);
        if here > 0 {
            let into = core.memory().bytes_mut(Span::new(rest.buf(), rest.offset(), here as u32));
            into.copy_from_slice(&input.here()[..here]);
            input.took(here);
            direct.have += here as u32;
        }
        let Direct { piece, buf, .. } = *direct;
        if direct.rest().len > 0 {
            return Came::Waits(self, Wait::Input);
        }
        let Some(slot) = requests.table.get_mut(self.place).free_slot(0) else {
            // As many pieces are with the engine as have names.
            return Came::Waits(self, Wait::Own);
        };
        self.piece_done(slot, piece, buf, requests, core)
    }

    /// Copies a piece from the read buffer, where all of it is.
    fn copy_piece(
        self,
        piece: Piece,
        input: &mut Input,
        requests: &mut Requests,
        core: &mut dyn Core,
        may_alloc: bool,
    ) -> Came {
        let bytes = piece.buf_bytes();
        if requests.holdings.is_unsure() {
            return Came::Waits(self, Wait::Own);
        }
        if let Some(wait) = requests.holdings.must_wait(u64::from(bytes), may_alloc) {
            return Came::Waits(self, wait);
        }
        let Some(slot) = requests.table.get_mut(self.place).free_slot(0) else {
            return Came::Waits(self, Wait::Own);
        };
        let share = requests.holdings.share_for(u64::from(bytes));
        let Some(buf) = requests.holdings.alloc(share, bytes, core) else {
            return Came::Waits(self, Wait::Room);
        };
        let into = core.memory().bytes_mut(Span::new(buf, piece.buf_offset(), piece.len));
        into.copy_from_slice(&input.here()[..piece.len as usize]);
        input.took(piece.len as usize);
        self.piece_done(slot, piece, buf, requests, core)
    }

    /// Hands a complete piece to the engine.
    fn piece_done(self, slot: usize, piece: Piece, buf: Buf, requests: &mut Requests, core: &mut dyn Core) -> Came {
        let at = piece.offset + u64::from(piece.len);
        let last = at == self.end;
        requests.table.get_mut(self.place).receiving = !last;
        submit_write(requests, self.place, slot, piece, buf, core);
        if last { Came::Completely } else { Came::Goes(Self { at, direct: None, ..self }) }
    }

    /// The rest won't come: forgets the write, without a reply.
    pub(super) fn drop(self, requests: &mut Requests, core: &mut dyn Core) {
        if let Some(Direct { piece, buf, .. }) = self.direct {
            requests.holdings.free(buf, piece.buf_bytes(), core);
        }
        let pending = requests.table.get_mut(self.place);
        pending.receiving = false;
        // The engine may still have pieces; the write is torn, so it must not succeed.
        pending.fail(Refusal(Errno::EIO, "the write was not received completely"), None);
        if pending.is_done() {
            requests.table.remove(self.place);
        }
    }
}

/// A buffer for a long piece of which much is missing, if the share for payload has one.
fn receive_directly(piece: Piece, here: usize, requests: &mut Requests, core: &mut dyn Core) -> Option<Direct> {
    let bytes = piece.buf_bytes();
    let missing = (piece.len as usize).saturating_sub(here);
    if missing < DIRECT_BYTES_MIN || requests.holdings.must_wait(u64::from(bytes), true).is_some() {
        return None;
    }
    let buf = requests.holdings.alloc(Some(Share::Payload), bytes, core)?;
    Some(Direct { piece, buf, have: 0 })
}
