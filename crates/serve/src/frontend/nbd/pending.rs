// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests of one connection that are not answered completely.
//!
//! A place in the table names the request in the engine's ids; it is reused only when the engine owes
//! nothing for it and the reply is sent, so an id needs no generation.

use flashfront_engine::Buf;

use super::super::piece::{PIECES_MAX, PLACES_MAX, Piece};
use super::wire::Errno;
use super::{PAYLOAD_BYTES_MAX, REQUESTS_MAX};

const _: () = assert!(Piece::count_max(PAYLOAD_BYTES_MAX) <= PIECES_MAX);
const _: () = assert!(REQUESTS_MAX <= PLACES_MAX);

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
