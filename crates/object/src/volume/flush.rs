// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flushes, checkpoints and the end of a writer: what makes the store have what was written.

use super::state::{Flush, State, What};
use super::{checkpoint, publish, write};
use crate::effect::{Effect, Ticket, Told, Trouble};

/// Writes a checkpoint soon. One that is whole leaves no changes beside pages.
pub(super) fn checkpoint(state: &mut State, is_whole: bool, fx: &mut Vec<Effect>) {
    if has_more(state) || is_whole && state.map.has_changes() {
        // One that is on its way is not made whole any more.
        state.is_checkpoint_whole |= is_whole && state.checkpointing.is_none();
        want_checkpoint(state);
    }
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
    // No flush would wait for a second checkpoint behind one that is on its way.
    if has_more(state) && !checkpoint::has_root_queued(state) {
        want_checkpoint(state);
    }
    publish(state, ticket, fx);
}

/// Whether something was written that no flush covers.
pub(super) fn is_unflushed(state: &State) -> bool {
    let flushed = state.flushes.iter().rev().find(|it| it.is_border).map_or(state.popped, |it| it.upto);
    let mut later = state.queue.iter().skip(flushed.saturating_sub(state.popped) as usize);
    state.open.is_some() || later.any(|it| it.what == What::Data)
}

/// Has flushes from now on wait for a checkpoint.
pub(super) fn want_checkpoint(state: &mut State) {
    // The checkpoint that is being made takes what is written now, too.
    state.wants_checkpoint |= state.checkpointing.is_none();
    state.is_checkpoint_awaited = true;
}

/// Whether a checkpoint would hold more than the last one, which may be on its way.
fn has_more(state: &State) -> bool {
    let mut later = state.queue.iter().rev().take_while(|it| !matches!(it.what, What::Map(_)));
    let is_tail_new = !state.manifest.tail.is_empty() && !checkpoint::has_root_queued(state);
    state.open.is_some() || is_tail_new || later.any(|it| it.what == What::Data)
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
    // A root that is on its way needs a manifest first.
    let upto = match state.is_checkpoint_awaited && !checkpoint::has_root_queued(state) {
        true => u64::MAX,
        false => state.popped + state.queue.len() as u64,
    };
    state.flushes.push_back(Flush { ticket, upto, after, is_border });
    publish::tell_flushed(state, fx);
    publish::go_on(state, fx);
}
