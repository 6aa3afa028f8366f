// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of one connection that would wait for an origin, and wait for a buffer that may wait
//! first.
//!
//! Here they hold no buffer: a read is its place in the table, a write has its payload in memory of
//! the connection's own. That is at most [`UNSURE_BYTES_MAX`] and a piece, as nothing more is
//! received from a client with parked writes.

use std::collections::VecDeque;

use flashfront_device::Share;
use flashfront_engine::{BLOCK_BYTES, OriginId, RequestOp, Span};
use flashfront_nbd_proto::Ask;

use super::super::Core;
use super::super::piece::{Piece, PieceId};
use super::accept::sectors_of;
use super::connection::Connection;
use super::outbox::Data;
use super::pending::{AGAIN_SLOT, Part};

/// Bytes of writes that a connection may have at the engine and get back.
pub(super) const UNSURE_BYTES_MAX: u64 = 256 << 10;

/// A request, or a piece of one, without a buffer.
#[derive(Debug)]
pub(super) enum Parked {
    /// All that is to be asked of the engine for it.
    Whole { place: u16 },
    /// A piece of a write, and its payload.
    Write { place: u16, piece: Piece, payload: Box<[u8]> },
}

/// Those of one connection, first come first served.
#[derive(Debug, Default)]
pub(super) struct Parks {
    all: VecDeque<Parked>,
    writes: usize,
    /// Parts of replies must be read again, of those that wait.
    again: bool,
}

/// What came of one that was tried once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resumed {
    /// The engine has it.
    Begun,
    /// There is no buffer.
    NoRoom,
    /// Its connection holds as much as it may.
    HasEnough,
}

impl Parked {
    const fn place(&self) -> u16 {
        match self {
            Self::Whole { place } | Self::Write { place, .. } => *place,
        }
    }
}

impl Parks {
    /// Whether payload waits here.
    pub(super) fn any_write(&self) -> bool {
        self.writes > 0
    }

    fn push(&mut self, parked: Parked, first: bool) {
        self.writes += usize::from(matches!(parked, Parked::Write { .. }));
        if first { self.all.push_front(parked) } else { self.all.push_back(parked) }
    }

    fn pop(&mut self) -> Option<Parked> {
        let parked = self.all.pop_front()?;
        self.writes -= usize::from(matches!(parked, Parked::Write { .. }));
        Some(parked)
    }
}

impl Connection {
    /// Lets a request wait without a buffer.
    pub(super) fn park(&mut self, parked: Parked) {
        self.table.get_mut(parked.place()).parked += 1;
        self.parks.push(parked, false);
    }

    /// What its requests are for, if some of them wait.
    pub(super) fn parked_for(&self) -> Option<OriginId> {
        let any = self.parks.again || !self.parks.all.is_empty();
        self.origin().filter(|_| any)
    }

    /// The engine was not asked for a piece that would have to wait.
    pub(super) fn refused(&mut self, id: PieceId, core: &mut dyn Core) {
        self.in_flight -= 1;
        self.progress += 1;
        if self.is_again(id) {
            self.parks.again = !self.dead;
            self.table.get_mut(id.place).again -= 1;
            self.give_back(id, core);
            self.outbox.arrived(id.place, id.piece, None);
            return self.leave_orphan(id.place);
        }
        let pending = self.table.get_mut(id.place);
        pending.unanswered -= 1;
        let (ask, part) = (pending.ask, pending.parts.get(usize::from(id.piece)).copied().flatten());
        if self.dead || !matches!(ask, Ask::Write | Ask::Zeroes { .. }) {
            pending.refused = true;
        } else if let Some(part) = part {
            let piece = Piece { offset: part.at, len: part.len };
            let payload = core.memory().bytes(Span::new(part.buf, piece.buf_offset(), part.len)).into();
            self.give_back(id, core);
            self.park(Parked::Write { place: id.place, piece, payload });
        }
        self.piece_ended(id.place, core);
    }

    /// The engine owes less for a request: answers it, or parks it, if that was the last.
    pub(super) fn piece_ended(&mut self, place: u16, core: &mut dyn Core) {
        let pending = self.table.get_mut(place);
        if !pending.is_done() {
            return;
        }
        if std::mem::take(&mut pending.refused) && pending.failed.is_none() && !self.dead {
            self.free_bufs(place, core);
            self.park(Parked::Whole { place });
        } else {
            self.finish(place, core);
        }
    }

    /// Tries the first of those that are parked with a buffer of this share. What the client
    /// `reads` goes first.
    pub(super) fn resume(&mut self, share: Share, reads: bool, core: &mut dyn Core) -> Resumed {
        if self.parks.again || reads && self.wants_payload() {
            let served = self.fetch_again(Some(share), core);
            self.parks.again = !served;
            return if served { Resumed::Begun } else { Resumed::NoRoom };
        }
        let Some(parked) = self.parks.pop() else { return Resumed::HasEnough };
        let bytes = match &parked {
            Parked::Whole { place } => u64::from(self.table.get_mut(*place).window) + 2 * BLOCK_BYTES,
            Parked::Write { piece, .. } => u64::from(piece.buf_bytes()),
        };
        // Its answer would be behind those, and hold buffers that those need.
        let is_behind = matches!(parked, Parked::Whole { .. }) && self.outbox.is_lacking();
        let fits = match share {
            _ if is_behind => false,
            Share::Passing => bytes <= core.passing_bytes() / 2 && self.must_wait(bytes, true).is_none(),
            _ => self.share_for(bytes).is_none(),
        };
        // What is begun may be answered at once.
        self.table.get_mut(parked.place()).parked -= 1;
        let begun = fits
            && match &parked {
                Parked::Whole { place } => self.begin_parked(*place, share, core),
                Parked::Write { place, piece, payload } => self.write_parked(*place, *piece, payload, share, core),
            };
        if begun {
            self.progress += 1;
            return Resumed::Begun;
        }
        self.table.get_mut(parked.place()).parked += 1;
        // Of those that may have become hits the next one is tried the next time.
        self.parks.push(parked, share != Share::Passing);
        if fits { Resumed::NoRoom } else { Resumed::HasEnough }
    }

    fn begin_parked(&mut self, place: u16, share: Share, core: &mut dyn Core) -> bool {
        if matches!(self.table.get_mut(place).ask, Ask::Status { .. }) {
            self.begin_status(place, Some(share), core)
        } else {
            self.begin_window(place, Some(share), core)
        }
    }

    fn write_parked(&mut self, place: u16, piece: Piece, payload: &[u8], share: Share, core: &mut dyn Core) -> bool {
        let Some(slot) = self.table.get_mut(place).free_slot(0) else { return false };
        let Some(buf) = self.alloc(Some(share), piece.buf_bytes(), core) else { return false };
        self.held_bytes += u64::from(piece.buf_bytes());
        core.memory().bytes_mut(Span::new(buf, piece.buf_offset(), piece.len)).copy_from_slice(payload);
        self.submit_write(place, slot, piece, buf, core);
        true
    }

    /// Whether a piece is a part of a reply that was taken back.
    pub(super) fn is_again(&mut self, id: PieceId) -> bool {
        usize::from(id.piece) >= AGAIN_SLOT && matches!(self.table.get_mut(id.place).ask, Ask::Read { .. })
    }

    /// Reads again what was taken back from the outbox; false if there is no buffer for it.
    pub(super) fn read_again(&mut self, data: Data, share: Option<Share>, core: &mut dyn Core) -> bool {
        let Some(slot) = self.table.get_mut(data.place).free_slot(AGAIN_SLOT) else { return false };
        let piece = Piece { offset: data.from, len: data.len };
        let Some(buf) = self.alloc(share, piece.buf_bytes(), core) else { return false };
        self.held_bytes += u64::from(piece.buf_bytes());
        let pending = self.table.get_mut(data.place);
        pending.put(slot, Part { buf, bytes: piece.buf_bytes(), at: piece.offset, len: piece.len });
        pending.again += 1;
        self.outbox.ask(data, slot as u16);
        let sectors = sectors_of(piece.offset, piece.offset + u64::from(piece.len));
        self.submit(data.place, slot, RequestOp::Read, sectors, Some(buf), false, core);
        // It is counted apart from what the reply was made of.
        self.table.get_mut(data.place).unanswered -= 1;
        true
    }

    /// Payload that was taken back from the outbox was read again.
    pub(super) fn got_again(&mut self, id: PieceId, sound: bool, core: &mut dyn Core) {
        let pending = self.table.get_mut(id.place);
        pending.again -= 1;
        let part = pending.parts[usize::from(id.piece)].filter(|_| sound && !self.dead);
        // The head of its reply, which says that it went well, may be sent already.
        self.broken |= !sound;
        if let Some(part) = part {
            let at = Piece { offset: part.at, len: part.len }.buf_offset();
            let there = Some((Span::new(part.buf, at, part.len), part.bytes));
            if self.outbox.arrived(id.place, id.piece, there) {
                self.table.get_mut(id.place).parts[usize::from(id.piece)] = None;
            }
        }
        self.give_back(id, core);
        self.leave_orphan(id.place);
    }

    fn leave_orphan(&mut self, place: u16) {
        let pending = self.table.get_mut(place);
        if pending.orphan && pending.again == 0 && pending.is_done() {
            self.table.remove(place);
        }
    }

    /// What waits here of a request is not wanted any more.
    pub(super) fn unpark(&mut self, place: u16) {
        if self.table.get_mut(place).parked > 0 {
            self.parks.all.retain(|parked| parked.place() != place);
            self.parks.writes = self.parks.all.iter().filter(|it| matches!(it, Parked::Write { .. })).count();
            self.table.get_mut(place).parked = 0;
        }
    }

    /// The client is gone, and with it those that wait here.
    pub(super) fn drop_parked(&mut self, core: &mut dyn Core) {
        self.parks.again = false;
        while let Some(parked) = self.parks.pop() {
            let place = parked.place();
            self.table.get_mut(place).parked -= 1;
            // A long read ends with its phase.
            if self.table.get_mut(place).is_done() && !self.is_long(place) {
                self.finish(place, core);
            }
        }
    }

    /// Frees the buffer of one piece.
    pub(super) fn give_back(&mut self, id: PieceId, core: &mut dyn Core) {
        let pending = self.table.get_mut(id.place);
        let Some(part) = pending.parts.get_mut(usize::from(id.piece)).and_then(Option::take) else { return };
        self.held_bytes -= u64::from(part.bytes);
        if matches!(pending.ask, Ask::Write | Ask::Zeroes { .. }) && !core.may_wait(part.buf) {
            self.unsure_bytes -= u64::from(part.bytes);
        }
        core.free(part.buf);
    }
}
