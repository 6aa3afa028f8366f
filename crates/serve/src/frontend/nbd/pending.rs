// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests of one connection that are not answered completely.
//!
//! A place in the table names the request in the engine's ids. It is reused only when the engine
//! owes nothing for it and the reply is sent, so an id needs no generation. The slots of its parts
//! follow the same rule.

use flashfront_engine::Buf;
use flashfront_nbd_proto::Ask;
use flashfront_nbd_proto::server::Refusal;

use super::limits::{PAYLOAD_BYTES_MAX, REQUESTS_MAX};
use crate::frontend::piece::{PIECES_MAX, PLACES_MAX, Piece};

const _: () = assert!(Piece::count_max(PAYLOAD_BYTES_MAX) <= PIECES_MAX);
const _: () = assert!(REQUESTS_MAX <= PLACES_MAX);

/// A buffer of a request, and what of the export it is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) buf: Buf,
    /// How long the buffer is.
    pub(super) bytes: u32,
    /// First byte on the export.
    pub(super) at: u64,
    pub(super) len: u32,
}

impl Part {
    /// The first byte behind it.
    pub(super) const fn end(&self) -> u64 {
        self.at + self.len as u64
    }
}

/// A request of a client.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) ask: Ask,
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) len: u64,
    /// Bytes of a read that are in the outbox or were sent, and bytes that the engine has been
    /// asked for since.
    pub(super) done: u64,
    pub(super) window: u32,
    /// Pieces the engine has not answered.
    pub(super) unanswered: u16,
    /// A write or zeroes are answered only when they are durable.
    pub(super) fua: bool,
    /// The payload of a write has not come completely.
    pub(super) receiving: bool,
    /// A piece was refused: all that was asked of the engine for it has to wait.
    pub(super) refused: bool,
    /// The number of its parts that are parked.
    pub(super) parked: u16,
    /// Parts of its reply that are read again, and that the engine has not answered.
    pub(super) again: u16,
    /// The reply is not wanted any more, while some of these parts are under way.
    pub(super) orphan: bool,
    /// The first failure, and where it happened.
    pub(super) failed: Option<(Refusal, Option<u64>)>,
    /// The buffers of its pieces by slot, until they are freed or handed to the outbox.
    pub(super) parts: Vec<Option<Part>>,
}

/// Slots from here on are for parts of a reply that are read again.
pub(super) const AGAIN_SLOT: usize = 40;
const _: () = assert!(Piece::count_max(PAYLOAD_BYTES_MAX) <= AGAIN_SLOT);

impl Pending {
    /// Whether nothing is left to do: the engine owes no answer, the client no payload, and no part
    /// is parked.
    pub(super) fn is_done(&self) -> bool {
        self.unanswered == 0 && !self.receiving && self.parked == 0
    }

    /// A slot of those from `first` on that is free.
    pub(super) fn free_slot(&self, first: usize) -> Option<usize> {
        (first..PIECES_MAX).find(|slot| self.parts.get(*slot).is_none_or(Option::is_none))
    }

    /// The parts of the request, without those that are read again.
    pub(super) fn first_parts(&mut self) -> &mut [Option<Part>] {
        let count =
            if matches!(self.ask, Ask::Read { .. }) { self.parts.len().min(AGAIN_SLOT) } else { self.parts.len() };
        &mut self.parts[..count]
    }

    /// Notes a failure; the first one is told.
    pub(super) fn fail(&mut self, refusal: Refusal, at: Option<u64>) {
        self.failed.get_or_insert((refusal, at));
    }

    /// Notes a buffer under its name.
    pub(super) fn put(&mut self, slot: usize, part: Part) {
        if self.parts.len() <= slot {
            self.parts.resize(slot + 1, None);
        }
        self.parts[slot] = Some(part);
    }
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
    pub(super) fn insert(&mut self, ask: Ask, cookie: u64, offset: u64, len: u64) -> u16 {
        debug_assert!(!self.is_full());
        let new = Pending {
            ask,
            cookie,
            offset,
            len,
            done: 0,
            window: 0,
            unanswered: 0,
            fua: false,
            receiving: false,
            refused: false,
            parked: 0,
            again: 0,
            orphan: false,
            failed: None,
            parts: Vec::new(),
        };
        if let Some(place) = self.free.pop() {
            let pending = &mut self.all[usize::from(place)];
            // The vector of buffers is kept: no allocation in the steady state.
            let mut parts = std::mem::take(&mut pending.parts);
            parts.clear();
            *pending = Pending { parts, ..new };
            return place;
        }
        self.all.push(new);
        (self.all.len() - 1) as u16
    }

    pub(super) fn get_mut(&mut self, place: u16) -> &mut Pending {
        &mut self.all[usize::from(place)]
    }

    /// A request is over, or will be when what is read again of it is there.
    pub(super) fn leave(&mut self, place: u16) {
        if self.get_mut(place).again > 0 {
            self.get_mut(place).orphan = true;
        } else {
            self.remove(place);
        }
    }

    /// A request is over.
    pub(super) fn remove(&mut self, place: u16) {
        debug_assert!(!self.free.contains(&place));
        self.free.push(place);
    }
}
