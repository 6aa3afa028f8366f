// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cloning: a state becomes the first one of another volume, which uses the objects of this one.

use std::sync::Arc;

use super::flush;
use super::state::State;
use crate::effect::{Effect, Ticket};
use crate::manifest::Manifest;
use crate::mode::Writer;

/// Becomes a clone of this volume. Tells when its first manifest is there. `source` is the prefix
/// of this volume.
pub(super) fn become_clone(
    state: &mut State,
    source: &Arc<str>,
    volume: [u8; 16],
    writer: Writer,
    ticket: Ticket,
    fx: &mut Vec<Effect>,
) {
    assert!(state.writer.is_none() && state.asked.is_empty(), "bug: a clone of a volume at work");
    let Manifest { form, single_writer, sectors, .. } = state.manifest;
    let first = Manifest::first(volume, writer.id, sectors, writer.now, &writer.host);
    // Another clone may begin here at the same time. Its objects have other numbers.
    let mut chance = [0; 8];
    chance[2..].copy_from_slice(&writer.id[..6]);
    let sequence = u64::from_be_bytes(chance);
    state.manifest = Manifest { number: 0, form, single_writer, sequence, ..first };
    (state.next, state.sequence, state.writer) = (1, sequence, Some(writer));
    state.table.belong_to(source);
    state.is_closing = true;
    flush::want_checkpoint(state);
    flush::publish(state, ticket, fx);
}
