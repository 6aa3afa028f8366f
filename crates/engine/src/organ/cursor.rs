// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cursors: where destage goes on in a lane, for each origin.
//!
//! The coordinator moves a cursor by a message, or by a grant. A lane shows what it has at its
//! cursors or behind them, and where these are. So the coordinator knows what that is about.

use alloc::vec::Vec;

use crate::organ::eras::Wanted;
use crate::organ::grant::{Came, Grant, Takes, Used};
use crate::organ::index::Flat;

/// Where destage of an origin goes on in a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Blocks of these eras are looked for, where destage is ordered.
    pub(crate) eras: Option<Wanted>,
    /// Blocks are looked for at this place and behind it.
    pub(crate) from: Flat,
    /// Blocks that somebody waits for are looked for at this place and behind it.
    pub(crate) urgent_from: Flat,
}

impl Cursor {
    /// A grant was used: destage goes on behind what was looked at. A block that somebody waits for
    /// needs no other look if a run has it.
    pub(crate) const fn go_on(&mut self, grant: &Grant, used: &Used) {
        match (grant.takes, used.came) {
            (Takes::Urgent, Came::Run) => {}
            (Takes::Urgent, _) => self.urgent_from = used.end,
            _ => (self.eras, self.from) = (grant.eras, used.end),
        }
    }
}

/// Cursors of each origin in a lane, or of one origin in each lane. Those that were never moved are
/// at the start.
#[derive(Default)]
pub(crate) struct Cursors(Vec<Cursor>);

impl Cursors {
    /// A cursor.
    pub(crate) fn of(&self, nth: usize) -> Cursor {
        self.0.get(nth).copied().unwrap_or_default()
    }

    /// A cursor, to be moved.
    pub(crate) fn of_mut(&mut self, nth: usize) -> &mut Cursor {
        if self.0.len() <= nth {
            self.0.resize(nth + 1, Cursor::default());
        }
        &mut self.0[nth]
    }
}
