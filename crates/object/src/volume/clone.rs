// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cloning: a state becomes the first one of another volume, which uses the objects of this one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::checkpoint;
use super::load::Missed;
use super::state::{State, What};
use crate::manifest::{CheckpointRef, Manifest};
use crate::mode::Writer;
use crate::name::Name;

/// Makes the objects with which a clone begins, in their order, and then its first manifest.
/// `source` is the prefix of this volume.
pub(super) fn clone_from(
    state: &mut State,
    source: &Arc<str>,
    volume: [u8; 16],
    writer: Writer,
) -> (Vec<(Name, Vec<u8>)>, Vec<u8>) {
    let sectors = state.manifest.sectors;
    state.table.belong_to(source);
    let Manifest { form, single_writer, .. } = state.manifest;
    state.manifest =
        Manifest { form, single_writer, ..Manifest::first(volume, writer.id, sectors, writer.now, &writer.host) };
    (state.next, state.sequence, state.wants_checkpoint) = (1, 0, true);
    state.asked = BTreeMap::new();
    // The whole checkpoint is handed over at once.
    state.options.uploads = usize::MAX;
    checkpoint::go_on(state, &Missed::new(), &mut Vec::new());
    let mut objects = Vec::new();
    for upload in state.queue.drain(..) {
        state.manifest.sequence = upload.stamp.sequence;
        if let What::Map(checkpoint) = upload.what {
            state.manifest.checkpoint = Some(CheckpointRef { since: 1, ..checkpoint });
        }
        objects.push((Name::Map(upload.stamp), Arc::unwrap_or_clone(upload.body)));
    }
    assert!(state.manifest.checkpoint.is_some(), "bug: the whole map is here, so its checkpoint has no wait");
    (objects, state.manifest.encode())
}
