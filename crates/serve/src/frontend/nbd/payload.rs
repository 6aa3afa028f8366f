// SPDX-License-Identifier: MIT OR Apache-2.0
//! The payload of a write on its way in.
//!
//! Each piece goes to the engine as soon as it is complete, so that a write of any length holds one
//! buffer that only its client can fill. A client that leaves in the middle has written a part,
//! as the protocol allows.

use flashfront_engine::{Buf, Span};

use super::super::Core;
use super::super::piece::Piece;
use super::accept::write_of;
use super::check::Refusal;
use super::connection::{Connection, Phase, Wait};
use super::pending::{Part, Table, slot};
use super::wire::Errno;

/// Payload is received into its buffer if at least this much of a piece is missing; below it a
/// copy is cheaper than a system call that ends at the payload's end.
const DIRECT_BYTES_MIN: usize = 16 << 10;

/// A write that is being received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Payload {
    pub(super) place: u16,
    pub(super) fua: bool,
    pub(super) index: u16,
    pub(super) buf: Option<Buf>,
    /// Bytes of the piece that have come.
    pub(super) have: u32,
}

impl Connection {
    /// Goes on with the payload of a write.
    pub(super) fn payload(&mut self, mut payload: Payload, core: &mut dyn Core, may_alloc: bool) -> Option<Wait> {
        let pending = self.table.get_mut(payload.place);
        let piece = Piece::of(pending.offset, pending.len as u32, payload.index);
        let buf = match payload.buf {
            Some(buf) => buf,
            // As many pieces are with the engine as have names.
            None if pending.parts.get(slot(payload.index)).is_some_and(Option::is_some) => return Some(Wait::Own),
            None => {
                let bytes = piece.buf_bytes();
                let wait = self.must_wait(u64::from(bytes), may_alloc);
                if wait.is_some() {
                    return wait;
                }
                let Some(buf) = core.alloc(bytes) else {
                    return Some(Wait::Room);
                };
                self.held_bytes += u64::from(bytes);
                payload.buf = Some(buf);
                buf
            }
        };
        let here = (self.end - self.start).min((piece.len - payload.have) as usize);
        if here > 0 {
            let span = Span::new(buf, piece.buf_offset() + payload.have, here as u32);
            let from = &self.input[self.start..self.start + here];
            core.memory().bytes_mut(span).copy_from_slice(from);
            self.start += here;
            payload.have += here as u32;
        }
        if payload.have < piece.len {
            self.phase = Phase::Payload(payload);
            return Some(Wait::Input);
        }
        let (place, index) = (payload.place, payload.index);
        let pending = self.table.get_mut(place);
        let last = index + 1 == Piece::count(pending.offset, pending.len as u32);
        pending.receiving = !last;
        let (range, op) = write_of(piece.offset, piece.offset + u64::from(piece.len));
        pending.put(slot(index), Part { buf, bytes: piece.buf_bytes(), at: piece.offset, len: piece.len });
        self.submit(place, slot(index), op, range, Some(buf), payload.fua, core);
        self.phase = if last {
            Phase::Commands
        } else {
            Phase::Payload(Payload { index: index + 1, buf: None, have: 0, ..payload })
        };
        None
    }

    /// The rest of a write won't come: forgets it, without a reply.
    pub(super) fn drop_payload(&mut self, payload: Payload, core: &mut dyn Core) {
        let pending = self.table.get_mut(payload.place);
        pending.receiving = false;
        if let Some(buf) = payload.buf {
            let piece = Piece::of(pending.offset, pending.len as u32, payload.index);
            self.held_bytes -= u64::from(piece.buf_bytes());
            core.free(buf);
        }
        // The engine may still have pieces; the write is torn, so it must not succeed.
        pending.fail(Refusal(Errno::EIO, "the write was not received completely"), None);
        if pending.unanswered == 0 {
            self.table.remove(payload.place);
        }
    }
}

/// Where payload of the write being received belongs, if it is worth a direct receive.
pub(super) fn direct(phase: &Phase, table: &mut Table) -> Option<Span> {
    let Phase::Payload(Payload { place, index, buf: Some(buf), have, .. }) = *phase else {
        return None;
    };
    let pending = table.get_mut(place);
    let piece = Piece::of(pending.offset, pending.len as u32, index);
    let left = piece.len - have;
    let span = Span::new(buf, piece.buf_offset() + have, left);
    (left as usize >= DIRECT_BYTES_MIN).then_some(span)
}
