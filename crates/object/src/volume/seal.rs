// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sealing: the batch becomes an object, which waits for its upload.

use std::sync::Arc;

use super::state::{Stage, State, Upload, What};

/// Makes the batch an object.
pub(super) fn seal_batch(state: &mut State) {
    if let Some((object, stamp, born)) = state.open.take() {
        let (body, head) =
            std::mem::take(&mut state.batch).seal(&state.manifest.volume, stamp, !state.former.is_plain());
        let entry = state.table.get_mut(object);
        (entry.head, entry.bytes) = (head, body.len() as u64);
        let (what, bytes, body, stage) = (What::Data, body.len() as u64, Arc::new(body), Stage::Waiting);
        state.queue.push_back(Upload { what, object, stamp, born, head, body, bytes, stage });
    }
}
