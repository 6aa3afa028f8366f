// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flushes, checkpoints and the end of a writer: what makes the store have what was written.

use super::publish;
use super::state::{Flush, State};
use super::write;
use crate::effect::{Effect, Ticket, Told, Trouble};

/// Writes a checkpoint soon.
pub(super) fn checkpoint(state: &mut State, fx: &mut Vec<Effect>) {
    state.wants_checkpoint = true;
    write::seal(state, fx);
}

/// Flushes: tells when all writes so far are in a manifest.
pub(super) fn flush(state: &mut State, ticket: Ticket, fx: &mut Vec<Effect>) {
    flush_after(state, ticket, 0, true, fx);
}

/// Tells when all writes so far are in a manifest, which somebody else's flush brings about.
pub(super) fn await_flush(state: &mut State, ticket: Ticket, fx: &mut Vec<Effect>) {
    flush_after(state, ticket, 0, false, fx);
}

/// Flushes, and creates a manifest even if nothing is new.
pub(super) fn publish(state: &mut State, ticket: Ticket, fx: &mut Vec<Effect>) {
    let under_way = u64::from(state.publishing.is_some());
    flush_after(state, ticket, state.manifest.number + under_way, true, fx);
}

/// Writes a checkpoint and a last manifest, which says that no writer has the volume open.
pub(super) fn close(state: &mut State, ticket: Ticket, fx: &mut Vec<Effect>) {
    state.is_closing = true;
    state.wants_checkpoint |= !state.manifest.tail.is_empty() || !state.queue.is_empty() || state.open.is_some();
    publish(state, ticket, fx);
}

fn flush_after(state: &mut State, ticket: Ticket, after: u64, is_border: bool, fx: &mut Vec<Effect>) {
    if let Some(by) = &state.fenced {
        fx.push(Effect::Told { ticket, result: Err(Trouble::Fenced(by.clone())) });
        return;
    }
    if state.writer.is_none() {
        fx.push(Effect::Told { ticket, result: Ok(Told::Flushed(state.manifest.number)) });
        return;
    }
    write::seal(state, fx);
    state.flushes.push_back(Flush { ticket, upto: state.popped + state.queue.len() as u64, after, is_border });
    publish::tell_flushed(state, fx);
    publish::go_on(state, fx);
}
