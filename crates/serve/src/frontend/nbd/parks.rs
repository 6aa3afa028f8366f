// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of one connection that wait without a buffer, first come first served.
//!
//! A read is its place in the table; a write has its payload in memory of the connection's own.

use std::collections::VecDeque;

use crate::frontend::piece::Piece;

/// A request, or a piece of one, without a buffer.
#[derive(Debug)]
pub(super) enum Parked {
    /// A whole request, of which the engine has been asked nothing.
    Whole { place: u16 },
    /// A piece of a write, and its payload.
    Write { place: u16, piece: Piece, payload: Box<[u8]> },
}

/// The parked requests of one connection.
#[derive(Debug, Default)]
pub(super) struct Parks {
    all: VecDeque<Parked>,
    writes: usize,
    /// Parts of replies that must be read again are among those that wait.
    again: bool,
}

impl Parked {
    /// The request's place in the table.
    pub(super) const fn place(&self) -> u16 {
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

    /// Whether anything waits here.
    pub(super) fn any(&self) -> bool {
        self.again || !self.all.is_empty()
    }

    /// Whether parts of replies must be read again, for clients that wait for them.
    pub(super) fn again(&self) -> bool {
        self.again
    }

    pub(super) fn set_again(&mut self, again: bool) {
        self.again = again;
    }

    /// Forgets the parts of a request that wait here.
    pub(super) fn forget(&mut self, place: u16) {
        self.all.retain(|parked| parked.place() != place);
        self.writes = self.all.iter().filter(|parked| matches!(parked, Parked::Write { .. })).count();
    }

    pub(super) fn push(&mut self, parked: Parked, first: bool) {
        self.writes += usize::from(matches!(parked, Parked::Write { .. }));
        if first { self.all.push_front(parked) } else { self.all.push_back(parked) }
    }

    pub(super) fn pop(&mut self) -> Option<Parked> {
        let parked = self.all.pop_front()?;
        self.writes -= usize::from(matches!(parked, Parked::Write { .. }));
        Some(parked)
    }
}
