// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests that one connection has asked of the engine.

use std::ops::Range;

use flashfront_engine::{Buf, Lba, OriginId, Request, RequestOp, SECTOR_BYTES, Time};

use crate::frontend::Core;
use crate::frontend::piece::PieceId;

/// A piece of a request, for the engine.
#[derive(Debug)]
pub(super) struct Order {
    /// The request's place in the table, and the piece's slot there.
    pub(super) place: u16,
    pub(super) slot: usize,
    pub(super) op: RequestOp,
    pub(super) sectors: Range<u64>,
    pub(super) buf: Option<Buf>,
    pub(super) fua: bool,
}

/// Pieces at the engine.
#[derive(Debug)]
pub(super) struct Asked {
    /// The connection's number, a part of each piece's name.
    number: u16,
    in_flight: u32,
    /// When the bytes in the read buffer were there to be had.
    since: Time,
}

impl Asked {
    pub(super) fn new(number: u16) -> Self {
        Self { number, in_flight: 0, since: Time(0) }
    }

    /// Pieces that the engine has not answered.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Requests from now on are counted from this time.
    pub(super) fn since(&mut self, since: Time) {
        self.since = since;
    }

    /// Hands a piece to the engine. `first`: the first byte of its request.
    pub(super) fn submit(&mut self, order: Order, origin: OriginId, first: u64, core: &mut dyn Core) {
        let Order { place, slot, op, sectors, buf, fua } = order;
        self.in_flight += 1;
        core.submit(Request {
            id: PieceId { connection: self.number, place, piece: slot as u16 }.encode(),
            origin,
            op,
            lba: Lba(sectors.start),
            sectors: sectors.end - sectors.start,
            buf,
            fua,
            since: self.since,
            continues: sectors.start * SECTOR_BYTES > first,
        });
    }

    /// The engine has answered a piece, or refused it.
    pub(super) fn ended(&mut self) {
        self.in_flight -= 1;
    }
}
