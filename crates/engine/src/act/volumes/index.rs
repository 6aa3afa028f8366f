// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lane's part in what comes and goes: room in its index for a new volume, and the blocks of one
//! that is gone.
//!
//! An index that is too narrow is made anew. A checkpoint, or the filling of a mirror, walks over
//! the index in parts, and must have ended before.

use alloc::vec::Vec;

use crate::cx::Cx;
use crate::lane::Lane;
use crate::organ::index::Flat;
use crate::organ::up::{Room, Up};

/// Makes room in the index for so many keys, or tells that this has to wait.
pub(crate) fn widen(lane: &mut Lane, keys: u64, cx: &mut Cx<'_>) {
    let room = try_widen(lane, keys);
    lane.widens_to = (room == Room::Later).then_some(keys);
    cx.delta.tell(Up::Widened { keys, room });
}

/// Makes the room that had to wait.
pub(crate) fn widen_step(lane: &mut Lane, cx: &mut Cx<'_>) {
    if lane.widens_to.is_some()
        && is_whole(lane)
        && let Some(keys) = lane.widens_to.take()
    {
        widen(lane, keys, cx);
    }
}

/// Whether nothing walks over the index.
fn is_whole(lane: &Lane) -> bool {
    lane.checkpoint.resting() && lane.sync.is_none()
}

fn try_widen(lane: &mut Lane, keys: u64) -> Room {
    let made = if is_whole(lane) { lane.store.make_room(keys) } else { lane.store.has_room(keys) };
    match made {
        Ok(true) => Room::Made,
        Ok(false) => Room::Later,
        Err(()) => Room::Never,
    }
}

/// A volume's blocks leave the index, dirty ones too.
pub(crate) fn forget(lane: &mut Lane, origin: usize, cx: &mut Cx<'_>) {
    let places = cx.facts.origins[origin].places();
    let (first, end) = (Flat(places.start), Flat(places.end));
    lane.window.forget(first, end);
    lane.under_way.make_all_void(first, end);
    let mut gone = Vec::new();
    lane.store.index().for_each(|flat, _| gone.extend(places.contains(&flat.0).then_some(flat)));
    gone.into_iter().for_each(|flat| lane.unmap(flat, cx));
    cx.delta.tell(Up::Forgotten { origin });
}
