// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rolling back: an older state becomes the newest one. What only the state before needs is
//! retired, and snapshots keep what is theirs.

use super::flush;
use super::state::State;
use crate::effect::{Effect, Ticket};
use crate::recent::Recent;

/// Puts the state of an older manifest in place of this one. Tells when a manifest has it.
///
/// # Panics
/// If there are writes that were not flushed, or a checkpoint since the last flush.
pub(super) fn roll_back(state: &mut State, older: State, ticket: Ticket, fx: &mut Vec<Effect>) {
    assert!(state.queue.is_empty() && state.open.is_none(), "bug: rolled back over writes under way");
    assert_eq!(state.manifest.volume, older.manifest.volume, "bug: rolled back to another volume");
    state.map = older.map;
    state.table.roll_back(&older.table);
    state.manifest.sectors = older.manifest.sectors;
    state.recent = Recent::new(state.options.recent_bytes);
    flush::want_checkpoint(state);
    flush::publish(state, ticket, fx);
}
