// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests of one client that are not answered completely.
//!
//! A place names the request in the engine's ids; it is reused only when the engine owes nothing
//! for it. Buffers are of pieces and not of requests: each is copied to where it belongs and given
//! back as soon as the engine has answered, so that a request never holds some while it waits for
//! others.

use flashfront_engine::{Buf, Time};
use vm_memory::GuestAddress;

use super::super::piece::{PLACES_MAX, Piece};
use super::chain::{Chain, Segment};
use super::request::{Ask, Range, Status};

/// A request of the guest.
#[derive(Debug)]
pub(super) struct Job {
    /// Which queue (none: our own), and the head of its chain there.
    pub(super) ring: Option<usize>,
    pub(super) head: u16,
    pub(super) ask: Ask,
    /// Where the guest learns how it ended.
    pub(super) status: GuestAddress,
    /// Where its payload is.
    pub(super) chain: Chain,
    /// The parts of a discard or write-zeroes.
    pub(super) ranges: Vec<Range>,
    /// Reply only when durable.
    pub(super) fua: bool,
    /// When it was found in its queue.
    pub(super) since: Time,
    /// Writes that were acknowledged before it.
    pub(super) writes: u64,
    /// The next piece to be handed to the engine, of so many.
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

    /// Where its payload is.
    pub(super) fn payload(&self) -> &[Segment] {
        if matches!(self.ask, Ask::Write { .. }) { &self.chain.readable } else { &self.chain.writable }
    }

    /// Whether nobody owes anything for it.
    pub(super) fn is_done(&self) -> bool {
        self.unanswered == 0 && self.parked == 0 && self.is_handed_over()
    }

    /// Whether the engine has all of it, or will get no more.
    pub(super) fn is_handed_over(&self) -> bool {
        self.next == self.pieces
    }
}

/// All of them.
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

    /// A place for a new request; its vectors are those of an earlier one, so that there is no
    /// allocation in the steady state. The caller has seen that there is one.
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
