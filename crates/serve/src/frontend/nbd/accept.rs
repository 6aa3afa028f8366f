// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts requests that are in order: takes their buffers, and hands their pieces to the engine.
//!
//! Clients may ask for any bytes, the engine for whole sectors: a read takes in what is around, and
//! a write says which bytes of its first and last sector are not its own. Reads longer than
//! [`PAYLOAD_BYTES_MAX`], of clients that never asked for a maximum, are answered window by window,
//! alone.

use std::ops::Range;

use flashfront_device::Share;
use flashfront_engine::{BLOCK_BYTES, Buf, Lba, RequestOp, SECTOR_BYTES, Span};
use flashfront_nbd_proto::server::Refusal;
use flashfront_nbd_proto::wire::Errno;
use flashfront_nbd_proto::{Ask, Request};

use super::super::Core;
use super::super::piece::{Piece, PieceId};
use super::PAYLOAD_BYTES_MAX;
use super::connection::{Connection, Phase, Wait};
use super::parked::Parked;
use super::payload::Payload;
use super::pending::Part;

/// What of a longer read is in memory at a time.
const WINDOW_BYTES: u64 = 8 << 20;
const BLOCK: u32 = BLOCK_BYTES as u32;

/// The sectors that these bytes are in.
pub(super) fn sectors_of(start: u64, end: u64) -> Range<u64> {
    start / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES)
}

/// The sectors that a write of these bytes touches, and the operation that writes no others.
pub(super) fn write_of(start: u64, end: u64) -> (Range<u64>, RequestOp) {
    let sectors = sectors_of(start, end);
    let (head, tail) = (start - sectors.start * SECTOR_BYTES, sectors.end * SECTOR_BYTES - end);
    let whole = head == 0 && tail == 0;
    let in_part = RequestOp::WriteBytes { head: head as u16, tail: tail as u16 };
    (sectors, if whole { RequestOp::Write } else { in_part })
}

impl Connection {
    /// Starts a request that is in order; or tells what it must wait for.
    pub(super) fn accept(&mut self, request: &Request, core: &mut dyn Core, may_alloc: bool) -> Option<Wait> {
        let Request { cookie, ask, offset, len, fua } = *request;
        match ask {
            Ask::Read { .. } | Ask::Cache => {
                let long = len > PAYLOAD_BYTES_MAX.into();
                // No other reply may come between the parts of a simple one.
                if long && self.table.len() > 0 {
                    return Some(Wait::Own);
                }
                let place = self.table.insert(ask, cookie, offset, len);
                let wait = self.start_window(place, core, may_alloc);
                if wait.is_some() {
                    self.table.remove(place);
                    return wait;
                }
                if long {
                    self.phase = Phase::Long(place);
                }
            }
            Ask::Write => {
                let place = self.table.insert(ask, cookie, offset, len);
                let pending = self.table.get_mut(place);
                (pending.receiving, pending.fua) = (true, fua);
                let end = offset + len;
                self.phase = Phase::Payload(Payload { place, at: offset, end, direct: None });
            }
            Ask::Flush => {
                let place = self.table.insert(ask, cookie, offset, len);
                self.submit(place, 0, RequestOp::Flush, 0..0, None, fua, core);
            }
            Ask::Trim => {
                let place = self.table.insert(ask, cookie, offset, len);
                // A sector in part keeps what it has.
                let sectors = offset.div_ceil(SECTOR_BYTES)..(offset + len) / SECTOR_BYTES;
                if sectors.is_empty() {
                    self.finish(place, core);
                } else {
                    self.submit(place, 0, RequestOp::Discard, sectors, None, fua, core);
                }
            }
            // Dirty blocks of the range are written to the origin before that. Nobody knows how
            // long it takes.
            Ask::Zeroes { fast: true, .. } => {
                let refusal = Refusal(Errno::ENOTSUP, "zeroing may take as long as writing");
                self.refuse(cookie, offset, refusal, core);
            }
            Ask::Zeroes { may_discard, .. } => return self.start_zeroes(request, may_discard, core, may_alloc),
            Ask::Status { .. } => return self.start_status(request, core, may_alloc),
        }
        None
    }

    /// Asks the engine for the next window of a read.
    fn start_window(&mut self, place: u16, core: &mut dyn Core, may_alloc: bool) -> Option<Wait> {
        let pending = self.table.get_mut(place);
        let (start, left) = (pending.offset + pending.done, pending.len - pending.done);
        let long = pending.len > PAYLOAD_BYTES_MAX.into();
        let window = if long { left.min(WINDOW_BYTES - start % BLOCK_BYTES) } else { left } as u32;
        pending.window = window;
        let count = Piece::count(start, window);
        let bytes = (0..count).map(|index| u64::from(Piece::of(start, window, index).buf_bytes())).sum();
        let wait = self.must_wait(bytes, may_alloc);
        if wait.is_some() {
            return wait;
        }
        if bytes > core.passing_bytes() / 2 || self.outbox.is_lacking() {
            // This can't be a read that ends by itself, whatever is cached; or what is to be sent
            // before it has to come first.
            self.park(Parked::Whole { place });
            return None;
        }
        (!self.begin_window(place, self.share_for(bytes), core)).then_some(Wait::Room)
    }

    /// Takes the buffers for what is to be read, and hands its pieces to the engine; false if there
    /// are none. All buffers or none: two reads with half of theirs would wait for each other.
    pub(super) fn begin_window(&mut self, place: u16, share: Option<Share>, core: &mut dyn Core) -> bool {
        let pending = self.table.get_mut(place);
        let (start, window) = (pending.offset + pending.done, pending.window);
        let op = if pending.ask == Ask::Cache { RequestOp::Prefetch } else { RequestOp::Read };
        let count = Piece::count(start, window);
        for index in 0..count {
            let piece = Piece::of(start, window, index);
            if !self.take_buf(place, index.into(), piece, share, core) {
                return false;
            }
        }
        for index in 0..count {
            let piece = Piece::of(start, window, index);
            let buf = self.table.get_mut(place).parts[usize::from(index)].map(|part| part.buf);
            let sectors = sectors_of(piece.offset, piece.offset + u64::from(piece.len));
            self.submit(place, index.into(), op, sectors, buf, false, core);
        }
        true
    }

    /// Goes on with a long read when all that was asked for is in the outbox.
    pub(super) fn go_on(&mut self, place: u16, core: &mut dyn Core, may_alloc: bool) -> Option<Wait> {
        if !self.table.get_mut(place).is_done() {
            return Some(Wait::Own);
        }
        self.start_window(place, core, may_alloc)
    }

    /// The rest of a long read is not wanted, or can't be had, any more.
    pub(super) fn cut_short(&mut self, place: u16, core: &mut dyn Core) {
        self.unpark(place);
        let pending = self.table.get_mut(place);
        pending.fail(Refusal(Errno::ESHUTDOWN, "the connection ends"), None);
        if pending.unanswered == 0 {
            self.finish(place, core);
        }
    }

    /// A part of a sector is written, sectors are zeroed.
    fn start_zeroes(
        &mut self,
        request: &Request,
        may_discard: bool,
        core: &mut dyn Core,
        may_alloc: bool,
    ) -> Option<Wait> {
        let Request { cookie, ask, fua, .. } = *request;
        let (start, end) = (request.offset, request.offset + request.len);
        let first = start.next_multiple_of(SECTOR_BYTES).min(end);
        let last = (end / SECTOR_BYTES * SECTOR_BYTES).max(first);
        let in_part = [start..first, last..end];
        let count = in_part.iter().filter(|range| !range.is_empty()).count();
        if count > 0
            && let Some(wait) = self.must_wait(count as u64 * BLOCK_BYTES, may_alloc)
        {
            return Some(wait);
        }
        let place = self.table.insert(ask, cookie, start, request.len);
        self.table.get_mut(place).fua = fua;
        for (slot, range) in in_part.iter().enumerate().filter(|(_, range)| !range.is_empty()) {
            let piece = Piece { offset: range.start, len: (range.end - range.start) as u32 };
            if !self.take_buf(place, slot, piece, self.share_for(BLOCK_BYTES), core) {
                self.table.remove(place);
                return Some(Wait::Room);
            }
        }
        for (slot, range) in in_part.into_iter().enumerate().filter(|(_, range)| !range.is_empty()) {
            let buf = self.table.get_mut(place).parts[slot].map(|part| part.buf);
            if let Some(buf) = buf {
                core.memory().zero(Span::new(buf, 0, BLOCK));
            }
            let (sectors, op) = write_of(range.start, range.end);
            self.note_unsure(buf, BLOCK, core);
            self.submit(place, slot, op, sectors, buf, fua, core);
        }
        if first < last {
            let sectors = sectors_of(first, last);
            self.submit(place, 2, RequestOp::WriteZeroes { may_discard }, sectors, None, fua, core);
        }
        None
    }

    /// Takes a buffer for a part of a request. If there is none, all that the request has are put
    /// back.
    pub(super) fn take_buf(
        &mut self,
        place: u16,
        slot: usize,
        piece: Piece,
        share: Option<Share>,
        core: &mut dyn Core,
    ) -> bool {
        let bytes = piece.buf_bytes();
        let Some(buf) = self.alloc(share, bytes, core) else {
            self.take_bufs(place, &mut |buf| core.put_back(buf));
            return false;
        };
        self.held_bytes += u64::from(bytes);
        let part = Part { buf, bytes, at: piece.offset, len: piece.len };
        self.table.get_mut(place).put(slot, part);
        true
    }

    #[expect(clippy::too_many_arguments, reason = "it is the fields of a request")]
    pub(super) fn submit(
        &mut self,
        place: u16,
        slot: usize,
        op: RequestOp,
        sectors: Range<u64>,
        buf: Option<Buf>,
        fua: bool,
        core: &mut dyn Core,
    ) {
        let Some(export) = &self.export else { return };
        self.table.get_mut(place).unanswered += 1;
        self.in_flight += 1;
        core.submit(flashfront_engine::Request {
            id: PieceId { connection: self.number, place, piece: slot as u16 }.encode(),
            origin: export.origin,
            op,
            lba: Lba(sectors.start),
            sectors: sectors.end - sectors.start,
            buf,
            fua,
            since: self.since,
            continues: sectors.start * SECTOR_BYTES > self.table.get_mut(place).offset,
        });
    }
}
