// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the engine's answers to the replies of one connection.
//!
//! A request is answered when all its pieces are. A read's reply is queued as its buffers, which are
//! freed when they are sent; all others give theirs back here.

use flashfront_engine::{Buf, RequestError, Span};

use super::super::Core;
use super::super::piece::{Piece, PieceId};
use super::connection::Connection;
use super::pending::Kind;
use super::wire::{ChunkHeader, Errno, SimpleReply, chunk};

impl Connection {
    /// The engine's answer to one piece.
    pub(super) fn reply(&mut self, id: PieceId, result: Result<(), RequestError>, core: &mut dyn Core) {
        self.in_flight -= 1;
        self.progress += 1;
        let pending = self.table.get_mut(id.place);
        pending.unanswered -= 1;
        if let Err(error) = result {
            pending.error.get_or_insert(match error {
                RequestError::Io => Errno::EIO,
                RequestError::NoSpace => Errno::ENOSPC,
                RequestError::ReadOnly => Errno::EPERM,
                RequestError::Invalid => Errno::EINVAL,
                RequestError::Stopping => Errno::ESHUTDOWN,
            });
        }
        if pending.kind == Kind::Write {
            let piece = Piece::of(pending.offset, pending.len, id.piece);
            if let Some(buf) = pending.bufs[usize::from(id.piece)].take() {
                self.held_bytes -= u64::from(piece.buf_bytes());
                core.free(buf);
            }
        }
        if pending.unanswered == 0 && !pending.receiving {
            self.finish(id.place, core);
        }
    }

    /// Everything of a request is done: queues its reply.
    pub(super) fn finish(&mut self, place: u16, core: &mut dyn Core) {
        let pending = self.table.get_mut(place);
        if self.dead {
            self.free_bufs(place, core);
            self.table.remove(place);
            return;
        }
        let (cookie, offset, len) = (pending.cookie, pending.offset, pending.len);
        // With structured replies a read, and only a read, must have one.
        let structured = self.structured && pending.kind == Kind::Read;
        if let Some(error) = pending.error {
            self.free_bufs(place, core);
            let fill = |out: &mut Vec<u8>| {
                if structured {
                    let kind = chunk::ERROR_PLAIN;
                    ChunkHeader { flags: chunk::DONE, kind, cookie, len: 6 }.encode(out);
                    out.extend_from_slice(&error.0.to_be_bytes());
                    // The length of a message that isn't there.
                    out.extend_from_slice(&0u16.to_be_bytes());
                } else {
                    SimpleReply { error: error.0, cookie }.encode(out);
                }
            };
            self.outbox.push(fill, None, Some(place));
            return;
        }
        let fill = |out: &mut Vec<u8>| {
            if structured {
                let kind = chunk::OFFSET_DATA;
                ChunkHeader { flags: chunk::DONE, kind, cookie, len: len + 8 }.encode(out);
                out.extend_from_slice(&offset.to_be_bytes());
            } else {
                SimpleReply { error: 0, cookie }.encode(out);
            }
        };
        if pending.kind != Kind::Read {
            self.outbox.push(fill, None, Some(place));
            return;
        }
        let mut fill = Some(fill);
        let count = pending.bufs.len();
        for (index, buf) in pending.bufs.iter_mut().enumerate() {
            let Some(buf) = buf.take() else { continue };
            let piece = Piece::of(offset, len, index as u16);
            let span = Span::new(buf, piece.buf_offset(), piece.len);
            let answers = (index + 1 == count).then_some(place);
            let fill = fill.take();
            let head = |out: &mut Vec<u8>| fill.into_iter().for_each(|fill| fill(out));
            self.outbox.push(head, Some(span), answers);
        }
    }

    /// Frees the buffers that a request still has.
    pub(super) fn free_bufs(&mut self, place: u16, core: &mut dyn Core) {
        self.take_bufs(place, &mut |buf| core.free(buf));
    }

    /// Takes a request's buffers from it.
    pub(super) fn take_bufs(&mut self, place: u16, taken: &mut dyn FnMut(Buf)) {
        let pending = self.table.get_mut(place);
        let (offset, len) = (pending.offset, pending.len);
        for (index, buf) in pending.bufs.iter_mut().enumerate() {
            if let Some(buf) = buf.take() {
                self.held_bytes -= u64::from(Piece::of(offset, len, index as u16).buf_bytes());
                taken(buf);
            }
        }
    }
}
