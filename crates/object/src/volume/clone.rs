// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cloning: a state becomes the first one of another volume, which uses the objects of this one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::checkpoint;
use super::state::{State, What};
use crate::manifest::Manifest;
use crate::mode::Writer;
use crate::name::Name;

/// Makes the two objects with which a clone begins: a checkpoint, and then the first manifest.
/// `source` is the prefix of this volume.
pub(super) fn clone_from(
    state: &mut State,
    source: &Arc<str>,
    volume: [u8; 16],
    writer: Writer,
) -> ((Name, Vec<u8>), Vec<u8>) {
    let sectors = state.manifest.sectors;
    state.table.belong_to(source);
    let Manifest { form, single_writer, .. } = state.manifest;
    state.manifest =
        Manifest { form, single_writer, ..Manifest::first(volume, writer.id, sectors, writer.now, &writer.host) };
    (state.next, state.sequence, state.wants_checkpoint) = (1, 0, true);
    state.asked = BTreeMap::new();
    checkpoint::checkpoint_now(state);
    let upload = state.queue.pop_front().expect("bug: a checkpoint that was wanted is queued");
    let What::Map(mut checkpoint) = upload.what else { unreachable!("bug: the queue begins with the checkpoint") };
    checkpoint.since = 1;
    state.manifest.checkpoint = Some(checkpoint);
    state.manifest.sequence = upload.stamp.sequence;
    ((Name::Map(upload.stamp), upload.body.to_vec()), state.manifest.encode())
}
