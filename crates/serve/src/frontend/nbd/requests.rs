// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests of one connection from their start to the last byte of their replies.
//!
//! The parts are organs with state of their own: a table, buffers, the outbox, parked requests,
//! requests at the engine. The methods here keep them in step. The acts are in files of their own.
//! `accept`, `read`, `status` and `write` begin requests. `ended` takes the engine's answers, and
//! `reply` and `content` queue replies. `parked` and `again` let requests wait without buffers.

use std::io::{self, IoSlice};

use flashfront_device::Share;
use flashfront_engine::{Buf, OriginId, Time};
use flashfront_nbd_proto::server::Reply;
use flashfront_nbd_proto::wire::Replies;
use flashfront_nbd_proto::{Ask, Request};

use super::asked::{Asked, Order};
use super::holdings::Holdings;
use super::limits::CONNECTION_BYTES_MAX;
use super::outbox::{Outbox, Sent};
use super::parks::{Parked, Parks};
use super::pending::{Part, Table};
use super::segments::Segment;
use crate::frontend::piece::{Piece, PieceId};
use crate::frontend::{Core, Export};

/// The requests of one connection.
#[derive(Debug)]
pub(super) struct Requests {
    pub(super) table: Table,
    pub(super) outbox: Outbox,
    pub(super) holdings: Holdings,
    pub(super) parks: Parks,
    asked: Asked,
    export: Option<Export>,
    replies: Replies,
    /// Segments of the read that is being answered; kept for its memory.
    pub(super) segments: Vec<Segment>,
    /// The read that is answered bit by bit, and nothing else meanwhile.
    long: Option<u16>,
    /// The socket is gone: nothing is sent any more.
    dead: bool,
    /// A reply was cut off: the connection must end.
    cut_off: bool,
    /// Payload that was taken back from the outbox can't be read again.
    lost: bool,
    progress: u64,
}

impl Requests {
    /// Begins without requests, for the connection with this number.
    pub(super) fn new(number: u16, outbox: Outbox) -> Self {
        Self {
            table: Table::default(),
            outbox,
            holdings: Holdings::new(CONNECTION_BYTES_MAX),
            parks: Parks::default(),
            asked: Asked::new(number),
            export: None,
            replies: Replies::Simple,
            segments: Vec::new(),
            long: None,
            dead: false,
            cut_off: false,
            lost: false,
            progress: 0,
        }
    }

    /// The client has chosen an export, and replies of this form.
    pub(super) fn open(&mut self, export: Export, replies: Replies) {
        self.holdings.open(export.origin);
        self.replies = replies;
        self.export = Some(export);
    }

    pub(super) fn export(&self) -> Option<&Export> {
        self.export.as_ref()
    }

    /// Requests from now on are counted from this time.
    pub(super) fn since(&mut self, since: Time) {
        self.asked.since(since);
    }

    /// Pieces that the engine has not answered.
    pub(super) fn in_flight(&self) -> u32 {
        self.asked.in_flight()
    }

    /// A count that grows whenever replies move.
    pub(super) fn progress(&self) -> u64 {
        self.progress
    }

    /// Notes that something has moved.
    pub(super) fn moved(&mut self) {
        self.progress += 1;
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead
    }

    /// Whether the connection must end in the middle of a reply.
    pub(super) fn is_cut_off(&self) -> bool {
        self.cut_off
    }

    /// Whether a reply that is begun can't be completed.
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Notes that payload which was taken back from the outbox can't be read again.
    pub(super) fn lose(&mut self) {
        self.lost = true;
    }

    /// The origin of the requests, if some of them wait here.
    pub(super) fn parked_for(&self) -> Option<OriginId> {
        self.holdings.origin().filter(|_| self.parks.any())
    }

    /// Notes a request; its place in the table.
    pub(super) fn insert(&mut self, request: &Request) -> u16 {
        let place = self.table.insert(request.ask, request.cookie, request.offset, request.len);
        self.table.get_mut(place).fua = request.fua;
        place
    }

    /// A read is answered bit by bit, and nothing else meanwhile.
    pub(super) fn begin_long(&mut self, place: u16) {
        self.long = Some(place);
    }

    /// The read that is answered alone.
    pub(super) fn long(&self) -> Option<u16> {
        self.long
    }

    /// Notes that a request is answered. If no other request could go on beside it, others may
    /// follow now.
    pub(super) fn end_long(&mut self, place: u16) {
        if self.long == Some(place) {
            self.long = None;
        }
    }

    /// A reply to a request, in the form that was agreed on.
    pub(super) fn reply_to(&mut self, place: u16) -> Reply {
        let pending = self.table.get_mut(place);
        Reply { replies: self.replies, cookie: pending.cookie, offset: pending.offset }
    }

    /// Hands a piece of a request to the engine.
    pub(super) fn submit(&mut self, order: Order, core: &mut dyn Core) {
        let Some(origin) = self.holdings.origin() else { return };
        let pending = self.table.get_mut(order.place);
        pending.unanswered += 1;
        self.asked.submit(order, origin, pending.offset, core);
    }

    /// The engine has answered a piece, or refused it.
    pub(super) fn piece_came(&mut self) {
        self.asked.ended();
        self.progress += 1;
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
        let Some(buf) = self.holdings.alloc(share, bytes, core) else {
            self.put_back_bufs(place, core);
            return false;
        };
        self.table.get_mut(place).put(slot, Part { buf, bytes, at: piece.offset, len: piece.len });
        true
    }

    /// Frees the buffers that a request still has, but for those of parts that are read again.
    pub(super) fn free_bufs(&mut self, place: u16, core: &mut dyn Core) {
        for slot in self.table.get_mut(place).first_parts() {
            if let Some(part) = slot.take() {
                self.holdings.free(part.buf, part.bytes, core);
            }
        }
    }

    fn put_back_bufs(&mut self, place: u16, core: &mut dyn Core) {
        for slot in self.table.get_mut(place).first_parts() {
            if let Some(part) = slot.take() {
                self.holdings.put_back(part.buf, part.bytes, core);
            }
        }
    }

    /// Frees the buffer of one piece, which the engine has done with.
    pub(super) fn give_back(&mut self, id: PieceId, core: &mut dyn Core) {
        let pending = self.table.get_mut(id.place);
        let Some(part) = pending.parts.get_mut(usize::from(id.piece)).and_then(Option::take) else { return };
        if matches!(pending.ask, Ask::Write | Ask::Zeroes { .. }) {
            self.holdings.end_write(part.buf, part.bytes, core);
        }
        self.holdings.free(part.buf, part.bytes, core);
    }

    /// Lets a request wait without a buffer.
    pub(super) fn park(&mut self, parked: Parked) {
        self.table.get_mut(parked.place()).parked += 1;
        self.parks.push(parked, false);
    }

    /// Forgets the parts of a request that are parked.
    pub(super) fn unpark(&mut self, place: u16) {
        if self.table.get_mut(place).parked > 0 {
            self.parks.forget(place);
            self.table.get_mut(place).parked = 0;
        }
    }

    /// Calls `send` with the next bytes; tells whether all of them were taken.
    pub(super) fn transmit(
        &mut self,
        core: &mut dyn Core,
        send: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        let (bytes, offered) = self.outbox.send(core.memory(), send)?;
        self.progress += 1;
        let (table, holdings) = (&mut self.table, &mut self.holdings);
        self.outbox.sent(bytes, |sent| release(sent, table, holdings, core));
        Ok(bytes == offered)
    }

    /// Hangs up in the middle of a reply.
    pub(super) fn cut_off(&mut self, place: u16, core: &mut dyn Core) {
        self.unpark(place);
        self.table.leave(place);
        self.end_long(place);
        self.cut_off = true;
        self.clear_outbox(core);
    }

    /// The socket is gone: nothing is sent any more.
    pub(super) fn die(&mut self) {
        self.dead = true;
    }

    /// Drops what is queued for the client.
    pub(super) fn clear_outbox(&mut self, core: &mut dyn Core) {
        let (table, holdings) = (&mut self.table, &mut self.holdings);
        self.outbox.clear(|sent| release(sent, table, holdings, core));
    }

    /// Drops the payload that the client has not taken.
    pub(super) fn take_back(&mut self, core: &mut dyn Core) {
        let mut freed = Vec::new();
        self.outbox.take_back(core.memory(), |buf, bytes| freed.push((buf, bytes)));
        self.free_all(freed, core);
    }

    /// Drops the payload that can't be sent before other payload has been read again.
    pub(super) fn take_back_behind(&mut self, core: &mut dyn Core) {
        let mut freed = Vec::new();
        self.outbox.take_back_behind(|buf, bytes| freed.push((buf, bytes)));
        self.free_all(freed, core);
    }

    fn free_all(&mut self, bufs: Vec<(Buf, u32)>, core: &mut dyn Core) {
        for (buf, bytes) in bufs {
            self.holdings.free(buf, bytes, core);
        }
    }
}

/// Gives back what was sent.
fn release(sent: Sent, table: &mut Table, holdings: &mut Holdings, core: &mut dyn Core) {
    match sent {
        Sent::Buf(buf, bytes) => holdings.free(buf, bytes, core),
        Sent::Answer(place) => table.leave(place),
    }
}
