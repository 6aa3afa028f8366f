// SPDX-License-Identifier: MIT OR Apache-2.0
//! The payload of a write on its way in.
//!
//! A long piece is received into its buffer, of the share for payload: a client that doesn't send
//! the rest of it holds that. Where that share is used up, and for what is short, payload comes
//! into the read buffer and is copied when all of a piece is there, so that a client holds no
//! buffer (test: `paused_writers_hold_no_buffers_that_others_need`). Each piece goes to the engine
//! as soon as it is complete. A client that leaves in the middle has written a part, as the
//! protocol allows.

use flashfront_device::Share;
use flashfront_engine::{BLOCK_BYTES, Buf, REQUEST_BYTES_MAX, Span};
use flashfront_nbd_proto::server::Refusal;
use flashfront_nbd_proto::wire::Errno;

use super::super::Core;
use super::super::piece::Piece;
use super::accept::write_of;
use super::connection::{Connection, Phase, Wait};
use super::parked::UNSURE_BYTES_MAX;
use super::pending::Part;

/// Payload is received into its buffer if at least this much of a piece is missing; below it a
/// copy is cheaper than a system call that ends at the payload's end.
const DIRECT_BYTES_MIN: usize = 16 << 10;
/// What is copied from the read buffer at a time, which holds it in any case.
const SHORT_BYTES: u64 = 64 << 10;

/// A write that is being received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Payload {
    pub(super) place: u16,
    /// The next byte on the export that is not at the engine, and the end.
    pub(super) at: u64,
    pub(super) end: u64,
    pub(super) direct: Option<Direct>,
}

/// A piece that is received into its buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direct {
    piece: Piece,
    buf: Buf,
    /// Bytes that have come.
    have: u32,
}

impl Direct {
    /// Where the rest belongs.
    fn rest(&self) -> Span {
        Span::new(self.buf, self.piece.buf_offset() + self.have, self.piece.len - self.have)
    }
}

impl Payload {
    /// What comes next, up to a multiple of so many bytes from the first block on.
    fn next(&self, first: u64, bytes: u64) -> Piece {
        let first_block = first - first % BLOCK_BYTES;
        let end = (self.at - first_block) / bytes * bytes + bytes + first_block;
        Piece { offset: self.at, len: (end.min(self.end) - self.at) as u32 }
    }

    /// So many bytes have come straight into their buffer.
    pub(super) fn received(&mut self, bytes: u32) {
        if let Some(direct) = &mut self.direct {
            direct.have += bytes;
        }
    }
}

impl Connection {
    /// Goes on with the payload of a write.
    pub(super) fn payload(&mut self, mut payload: Payload, core: &mut dyn Core, may_alloc: bool) -> Option<Wait> {
        if payload.direct.is_none() {
            let here = self.end - self.start;
            let first = self.table.get_mut(payload.place).offset;
            let long = payload.next(first, REQUEST_BYTES_MAX);
            payload.direct = self.receive_directly(long, here, core);
            if payload.direct.is_none() {
                let short = payload.next(first, SHORT_BYTES);
                let piece = if here >= long.len as usize { long } else { short };
                if here < piece.len as usize {
                    return Some(Wait::Input);
                }
                return self.copy_piece(payload, piece, core, may_alloc);
            }
        }
        let direct = payload.direct.as_mut()?;
        let here = (self.end - self.start).min(direct.rest().len as usize);
        if here > 0 {
            let rest = direct.rest();
            let from = &self.input[self.start..self.start + here];
            core.memory().bytes_mut(Span::new(rest.buf(), rest.offset(), here as u32)).copy_from_slice(from);
            self.start += here;
            self.protocol.payload_taken(here as u64);
            direct.have += here as u32;
        }
        let Direct { piece, buf, .. } = *direct;
        if direct.rest().len > 0 {
            self.phase = Phase::Payload(payload);
            return Some(Wait::Input);
        }
        let Some(slot) = self.table.get_mut(payload.place).free_slot(0) else {
            // As many pieces are with the engine as have names.
            self.phase = Phase::Payload(payload);
            return Some(Wait::Own);
        };
        self.piece_done(payload, slot, piece, buf, core);
        None
    }

    /// A buffer for a long piece of which much is missing, if the share for payload has one.
    fn receive_directly(&mut self, piece: Piece, here: usize, core: &mut dyn Core) -> Option<Direct> {
        let bytes = piece.buf_bytes();
        let missing = (piece.len as usize).saturating_sub(here);
        if missing < DIRECT_BYTES_MIN || self.must_wait(u64::from(bytes), true).is_some() {
            return None;
        }
        let buf = self.alloc(Some(Share::Payload), bytes, core)?;
        self.held_bytes += u64::from(bytes);
        Some(Direct { piece, buf, have: 0 })
    }

    /// Copies a piece from the read buffer, where all of it is.
    fn copy_piece(&mut self, payload: Payload, piece: Piece, core: &mut dyn Core, may_alloc: bool) -> Option<Wait> {
        let bytes = piece.buf_bytes();
        if self.unsure_bytes >= UNSURE_BYTES_MAX {
            return Some(Wait::Own);
        }
        let wait = self.must_wait(u64::from(bytes), may_alloc);
        if wait.is_some() {
            return wait;
        }
        let Some(slot) = self.table.get_mut(payload.place).free_slot(0) else { return Some(Wait::Own) };
        let Some(buf) = self.alloc(self.share_for(u64::from(bytes)), bytes, core) else {
            return Some(Wait::Room);
        };
        self.held_bytes += u64::from(bytes);
        let from = &self.input[self.start..self.start + piece.len as usize];
        core.memory().bytes_mut(Span::new(buf, piece.buf_offset(), piece.len)).copy_from_slice(from);
        self.start += piece.len as usize;
        self.protocol.payload_taken(piece.len.into());
        self.piece_done(payload, slot, piece, buf, core);
        None
    }

    /// Hands a complete piece to the engine.
    fn piece_done(&mut self, payload: Payload, slot: usize, piece: Piece, buf: Buf, core: &mut dyn Core) {
        let at = piece.offset + u64::from(piece.len);
        let last = at == payload.end;
        self.table.get_mut(payload.place).receiving = !last;
        self.submit_write(payload.place, slot, piece, buf, core);
        self.phase = if last { Phase::Commands } else { Phase::Payload(Payload { at, direct: None, ..payload }) };
    }

    /// Hands a piece of a write to the engine.
    pub(super) fn submit_write(&mut self, place: u16, slot: usize, piece: Piece, buf: Buf, core: &mut dyn Core) {
        let fua = self.table.get_mut(place).fua;
        let bytes = piece.buf_bytes();
        self.note_unsure(Some(buf), bytes, core);
        self.table.get_mut(place).put(slot, Part { buf, bytes, at: piece.offset, len: piece.len });
        let (sectors, op) = write_of(piece.offset, piece.offset + u64::from(piece.len));
        self.submit(place, slot, op, sectors, Some(buf), fua, core);
    }

    /// A write with this buffer may be refused.
    pub(super) fn note_unsure(&mut self, buf: Option<Buf>, bytes: u32, core: &dyn Core) {
        if buf.is_some_and(|buf| !core.may_wait(buf)) {
            self.unsure_bytes += u64::from(bytes);
        }
    }

    /// The rest of a write won't come: forgets it, without a reply.
    pub(super) fn drop_payload(&mut self, payload: Payload, core: &mut dyn Core) {
        if let Some(Direct { piece, buf, .. }) = payload.direct {
            self.held_bytes -= u64::from(piece.buf_bytes());
            core.free(buf);
        }
        let pending = self.table.get_mut(payload.place);
        pending.receiving = false;
        // The engine may still have pieces; the write is torn, so it must not succeed.
        pending.fail(Refusal(Errno::EIO, "the write was not received completely"), None);
        if pending.is_done() {
            self.table.remove(payload.place);
        }
    }
}

/// Where payload of the write being received belongs, if it is worth a direct receive.
pub(super) fn direct(phase: &Phase) -> Option<Span> {
    let Phase::Payload(Payload { direct: Some(direct), .. }) = phase else {
        return None;
    };
    let rest = direct.rest();
    (rest.len as usize >= DIRECT_BYTES_MIN).then_some(rest)
}
