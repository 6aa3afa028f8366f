// SPDX-License-Identifier: MIT OR Apache-2.0
//! The versions that ordered destage needs: what becomes of them when a block is written, destaged,
//! dropped, lost, or found again.
//!
//! Invariant: where destage is ordered, each dirty block that is not lost has its newest version in
//! one era. Older versions that eras need are counted as dirty, and their slots as live (checked by
//! `check`).

use crate::cx::Cx;
use crate::fact::types::OriginId;
use crate::lane::Lane;
use crate::organ::eras::Version;
use crate::organ::index::{Flat, Found};

fn origin_id(flat: Flat, cx: &Cx<'_>) -> OriginId {
    cx.facts.origins[cx.facts.origin_of(flat)].id
}

/// The era that needs what is written to a block now.
pub(crate) fn era_of_write(flat: Flat, cx: &mut Cx<'_>) -> u64 {
    let cuts = &mut cx.delta.origins[cx.facts.origin_of(flat)].cuts;
    cuts.write();
    cuts.era()
}

/// A block was rewritten in its slot.
pub(crate) fn overwritten(lane: &mut Lane, flat: Flat, version: Version, cx: &Cx<'_>) {
    let Some(eras) = &mut lane.eras else { return };
    if let Some(era) = eras.era_of(flat, version.slot) {
        eras.put(origin_id(flat, cx), era, flat, version);
    }
}

/// A block is in a new slot. Returns whether an era still needs the old version.
#[inline(never)]
pub(crate) fn note_version(
    lane: &mut Lane,
    flat: Flat,
    old: Option<Found>,
    found: Found,
    era: u64,
    cx: &mut Cx<'_>,
) -> bool {
    // Replay notes what the log says, and compares it with the index at its end.
    let Some(eras) = lane.eras.as_mut().filter(|_| !lane.store.is_opening()) else { return false };
    if !found.dirty {
        if let Some(old) = old.filter(|old| old.dirty) {
            forget_versions(lane, flat, old.slot, cx);
        }
        return false;
    }
    let newest = eras.newest(flat);
    eras.put(origin_id(flat, cx), era, flat, Version { slot: found.slot, checksum: found.checksum });
    let held = newest.is_some_and(|(of, version)| of != era && old.is_some_and(|old| old.slot == version.slot));
    if held {
        lane.count_dirty(flat, 1, cx);
    }
    held
}

/// No era needs a block any more, whose newest version was in this slot.
#[inline(never)]
pub(crate) fn forget_versions(lane: &mut Lane, flat: Flat, newest: u32, cx: &mut Cx<'_>) {
    // Replay follows versions by itself: older ones aren't counted before its end.
    let Some(eras) = lane.eras.as_mut().filter(|_| !lane.store.is_opening()) else { return };
    for version in eras.forget(origin_id(flat, cx), flat) {
        if version.slot != newest {
            let_go(lane, flat, version.slot, cx);
        }
    }
}

/// A version is on the origin, or is given up. If it was not the newest one, its slot is dead.
pub(crate) fn version_over(lane: &mut Lane, flat: Flat, slot: u32, cx: &mut Cx<'_>) {
    let Some(eras) = &mut lane.eras else { return };
    let Some(era) = eras.era_of(flat, slot) else { return };
    eras.remove(origin_id(flat, cx), era, flat);
    if lane.store.get(flat).is_none_or(|found| found.slot != slot) {
        let_go(lane, flat, slot, cx);
    }
}

/// All eras of an origin up to this one go to it together. Older versions of their blocks are
/// needed no more.
pub(crate) fn put_together(lane: &mut Lane, origin: OriginId, last: u64, cx: &mut Cx<'_>) {
    let Some(eras) = &mut lane.eras else { return };
    for (flat, version) in eras.put_together(origin, last) {
        if lane.store.get(flat).is_none_or(|found| found.slot != version.slot) {
            let_go(lane, flat, version.slot, cx);
        }
    }
    // A new mirror may lack what is in this era now.
    if let (Some(sync), Some(origin)) = (&mut lane.sync, cx.facts.place_of(origin)) {
        sync.wait_for(origin, last);
    }
}

/// An older version is needed no more.
fn let_go(lane: &mut Lane, flat: Flat, slot: u32, cx: &mut Cx<'_>) {
    lane.left_slot(Found { slot, dirty: true, hits: 0, checksum: 0 });
    lane.count_dirty(flat, -1, cx);
}

/// A lost block may be readable after all: the oldest era needs it, as the others wait for that.
pub(crate) fn version_found(lane: &mut Lane, flat: Flat, cx: &mut Cx<'_>) {
    let (Some(eras), Some(found)) = (&mut lane.eras, lane.store.get(flat).filter(|found| found.dirty)) else { return };
    let origin = origin_id(flat, cx);
    cx.delta.origins[cx.facts.origin_of(flat)].cuts.found_again();
    let oldest = || eras.first(origin).unwrap_or(cx.delta.origins[cx.facts.origin_of(flat)].cuts.sent());
    // An older version of it may be needed, too.
    let era = eras.newest(flat).map_or_else(oldest, |(era, _)| era + 1);
    eras.put(origin, era, flat, Version { slot: found.slot, checksum: found.checksum });
}

/// Whether a version that is not the newest one is in this slot.
pub(crate) fn is_held(lane: &Lane, flat: Flat, slot: u32) -> bool {
    let needed = lane.eras.as_ref().is_some_and(|eras| eras.era_of(flat, slot).is_some());
    needed && lane.store.get(flat).is_none_or(|found| found.slot != slot)
}
