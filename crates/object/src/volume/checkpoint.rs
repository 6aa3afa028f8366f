// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checkpoints: the changed pages of the map as an object, with a new root.
//!
//! A checkpoint is written when the batch is empty. So it holds exactly what the objects before it
//! in the queue hold, and no manifest names it before them.

use std::sync::Arc;

use super::state::{Stage, State, Upload, What};
use crate::manifest::CheckpointRef;
use crate::map::PagePlace;
use crate::root;
use crate::table::{Entry, Kind};
use crate::wire::{Put, crc};

const MAGIC: &[u8; 8] = b"FFMAP001";
/// A checkpoint of which less than one part in so many is in use gives its pages up.
const WORN: u64 = 4;

/// Writes the checkpoint that is wanted, if none is on its way.
pub(super) fn checkpoint_now(state: &mut State) {
    let is_map = |it: &Upload| matches!(it.what, What::Map(_));
    if !state.wants_checkpoint || state.open.is_some() || state.queue.iter().any(is_map) {
        return;
    }
    state.wants_checkpoint = false;
    let worn: Vec<u32> = state
        .table
        .entries()
        .filter(|(_, entry)| entry.kind == Kind::Map && entry.live * WORN < entry.bytes)
        .map(|(number, _)| number)
        .collect();
    state.map.forget_places(|object| worn.contains(&object), &mut state.table);
    let (stamp, born) = (state.next_stamp(), state.next);
    let entry = Entry { kind: Kind::Map, source: None, stamp, head: 0, bytes: 0, born, live: 0, content: 0 };
    let object = state.table.add(entry);
    let mut body = Put::default();
    body.bytes(MAGIC).bytes(&state.manifest.volume).u32(stamp.epoch).u64(stamp.sequence);
    let table = &mut state.table;
    state.map.store_pages(|page| {
        let (at, bytes) = (body.0.len() as u64, page.len() as u32);
        table.use_of(object, bytes.into());
        let place = PagePlace { object, at, bytes, crc: crc(&[&page]) };
        body.bytes(&page);
        place
    });
    let root_at = body.0.len() as u64;
    state.table.get_mut(object).bytes = root_at;
    state.table.retire(|number| number == object);
    let root = root::encode(&state.table, &state.map);
    let (root_bytes, root_crc) = (root.len() as u32, crc(&[&root]));
    body.bytes(&root);
    let bytes = body.0.len() as u64;
    let what = What::Map(CheckpointRef { stamp, bytes, root_at, root_bytes, root_crc, since: 0, born });
    let (body, stage) = (Arc::new(body.0), Stage::Waiting);
    state.queue.push_back(Upload { what, object, stamp, born, head: 0, body, bytes, stage });
}
