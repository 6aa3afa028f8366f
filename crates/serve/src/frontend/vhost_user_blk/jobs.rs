// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests of one client that are not answered completely.
//!
//! A place names the request in the engine's ids. It is reused only when the engine owes nothing
//! for it. Buffers belong to pieces and not to requests. Each is copied to its place and given back
//! as soon as the engine has answered. So a request never holds some buffers while it waits for
//! others.

use flashfront_engine::{Buf, Time};
use vm_memory::GuestAddress;

use super::super::piece::{PLACES_MAX, Piece};
use super::chain::{Chain, Segment};
use super::request::{Ask, Range, Status};

/// A request of the guest.
#[derive(Debug)]
pub(super) struct Job {
    /// The queue (none: the request is our own), and the head of its chain there.
    pub(super) ring: Option<usize>,
    pub(super) head: u16,
    pub(super) ask: Ask,
    /// The place where the guest learns how the request ended.
    pub(super) status: GuestAddress,
    /// The place of its payload.
    pub(super) chain: Chain,
    /// The parts of a discard or write-zeroes.
    pub(super) ranges: Vec<Range>,
    /// Reply only when durable.
    pub(super) fua: bool,
    /// When it was found in its queue.
    pub(super) since: Time,
    /// Writes that were acknowledged before it.
    pub(super) writes: u64,
    /// The next piece to be handed to the engine, and the number of pieces.
    pub(super) next: u16,
    pub(super) pieces: u16,
    /// Pieces the engine has not answered.
    pub(super) unanswered: u16,
    /// Pieces that wait for their origin, without a buffer.
    pub(super) parked: u16,
    pub(super) ended: Status,
    /// The buffers of pieces at the engine.
    pub(super) bufs: Vec<Option<Buf>>,
}

impl Job {
    fn new() -> Self {
        Self {
            ring: None,
            head: 0,
            ask: Ask::Flush,
            status: GuestAddress(0),
            chain: Chain::default(),
            ranges: Vec::new(),
            fua: false,
            since: Time(0),
            writes: 0,
            next: 0,
            pieces: 0,
            unanswered: 0,
            parked: 0,
            ended: Status::Done,
            bufs: Vec::new(),
        }
    }

    /// The piece of that number, if it has payload.
    pub(super) fn piece(&self, index: u16) -> Option<Piece> {
        match self.ask {
            Ask::Read { offset, len } | Ask::Write { offset, len } => Some(Piece::of(offset, len, index)),
            Ask::Flush | Ask::Ranges | Ask::Name => None,
        }
    }

    /// The place of its payload.
    pub(super) fn payload(&self) -> &[Segment] {
        if matches!(self.ask, Ask::Write { .. }) { &self.chain.readable } else { &self.chain.writable }
    }

    /// Whether all pieces were handed over and answered.
    pub(super) fn is_done(&self) -> bool {
        self.unanswered == 0 && self.parked == 0 && self.is_handed_over()
    }

    /// Whether the engine has all of it, or will get no more.
    pub(super) fn is_handed_over(&self) -> bool {
        self.next == self.pieces
    }
}

/// All requests of a client.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    all: Vec<Job>,
    free: Vec<u16>,
}

impl Jobs {
    pub(super) fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Requests that there are places for.
    pub(super) fn room(&self) -> usize {
        PLACES_MAX - self.len()
    }

    /// Takes a place for a new request. The caller has seen that there is one.
    ///
    /// Its vectors are those of an earlier request, so that there is no allocation in the steady
    /// state.
    pub(super) fn take(&mut self) -> u16 {
        debug_assert!(!self.is_full(), "the caller has asked");
        self.free.pop().unwrap_or_else(|| {
            self.all.push(Job::new());
            (self.all.len() - 1) as u16
        })
    }

    pub(super) fn get_mut(&mut self, place: u16) -> &mut Job {
        &mut self.all[usize::from(place)]
    }

    pub(super) fn give_back(&mut self, place: u16) {
        debug_assert!(!self.free.contains(&place), "given back twice");
        self.free.push(place);
    }
}
