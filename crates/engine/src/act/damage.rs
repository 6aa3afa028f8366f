// SPDX-License-Identifier: MIT OR Apache-2.0
//! Damage: a block of the cache can't be read, or is not what was written. These acts say which
//! copy is asked next, and where the data is if none is sound.
//!
//! Invariant 5: data is verified before it leaves (test: `corruption_never_leaves`). A corrupt
//! clean block is dropped, since the origin has it. A corrupt dirty block is lost: an error for its
//! readers, and listed in `status`.

use crate::act::destage::versions::{is_held, version_found, version_over};
use crate::cx::Cx;
use crate::fact::event::Event;
use crate::fact::io::{DeviceError, DeviceId, Op};
use crate::lane::Lane;
use crate::organ::index::Flat;
use crate::organ::members::device;
use crate::organ::trouble::Finding;

/// Where the data of a damaged block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// Nowhere, as far as is known now.
    Lost,
    /// On the origin: the block was clean, or its slot holds it no more.
    OnOrigin,
}

/// Which member of a mirrored cache a block is read from.
pub(crate) fn holder(lane: &Lane, flat: Flat, cx: &Cx<'_>) -> DeviceId {
    match cx.delta.members.other() {
        Some(other) if lane.trouble.is_on_other(flat) => device(other),
        _ => cx.lead(),
    }
}

/// A block could not be read from a member (`Err`), or is not what it should be there (`Ok`):
/// what is left to try.
pub(crate) fn try_other(
    lane: &mut Lane,
    flat: Flat,
    slot: u32,
    from: DeviceId,
    result: Result<(), DeviceError>,
    cx: &mut Cx<'_>,
) -> Finding {
    let newest = lane.store.get(flat).is_some_and(|found| found.dirty && found.slot == slot);
    if !newest && !is_held(lane, flat, slot) {
        return Finding::NotDirty(result);
    }
    match cx.delta.members.other() {
        None if from == cx.lead() => Finding::last(result),
        // The lead is another one by now.
        None => Finding::AskOther,
        Some(other) if from == device(other) && lane.trouble.is_on_other(flat) => {
            lane.trouble.other_failed(flat, result)
        }
        // The lead is another one by now, or somebody else has found that the other one lacks it.
        Some(other) if from == device(other) => Finding::AskOther,
        Some(_) => {
            let (finding, new) = lane.trouble.lead_failed(flat, result);
            if new {
                let key = cx.facts.key(flat);
                cx.event(Event::ReadFromMirror { key });
            }
            finding
        }
    }
}

/// No copy of a block on the cache device is sound. Tells it, and says where the data is.
pub(crate) fn damaged(lane: &mut Lane, flat: Flat, slot: u32, finding: Finding, cx: &mut Cx<'_>) -> Damage {
    let Some(result) = finding.result() else { return Damage::OnOrigin };
    // A block that has left this slot since was clean: its data is on the origin. (Who rewrites
    // it waits for this reader, and reclaim moves no dirty one while anybody reads from its
    // segment.)
    let Some(found) = lane.store.get(flat).filter(|found| found.slot == slot) else { return Damage::OnOrigin };
    if let Err(error) = result {
        let offset = lane.offset_of(slot, cx);
        cx.event(Event::DeviceFailed { device: holder(lane, flat, cx), op: Op::Read, offset, error });
    } else {
        cx.delta.counters.corrupt_blocks += 1;
        let key = cx.facts.key(flat);
        cx.event(Event::Corrupt { key, dirty: found.dirty });
    }
    if found.dirty {
        // What can't be read now may be readable again; destage finds out.
        if result.is_ok() {
            lose(lane, flat, slot, cx);
        }
        return Damage::Lost;
    }
    lane.unmap(flat, cx);
    lane.record_dropped(flat, cx);
    Damage::OnOrigin
}

/// A dirty block is lost, if it is still in that slot: until it is written anew, or can be read
/// after all.
pub(crate) fn lose(lane: &mut Lane, flat: Flat, slot: u32, cx: &mut Cx<'_>) {
    if lane.store.get(flat).is_some_and(|found| found.dirty && found.slot == slot) {
        let origin = cx.facts.origin_of(flat);
        let volatile = lane.log.last_seq_of([slot].into_iter()) > lane.log.durable_seq;
        cx.delta.origins[origin].flush.note_lost(volatile);
        if lane.trouble.lose(flat) {
            cx.count_lost(flat);
            version_over(lane, flat, slot, cx);
        }
    }
}

/// A block was read soundly from that slot: if it was lost, it no longer is.
pub(crate) fn found_again(lane: &mut Lane, flat: Flat, slot: u32, cx: &mut Cx<'_>) {
    if lane.store.get(flat).is_some_and(|found| found.slot == slot) && take_for_found(lane, flat, cx) {
        lane.trouble.trust(flat);
    }
}

/// A lost block may be sound after all, and is destaged again. Returns whether the block was lost.
pub(crate) fn take_for_found(lane: &mut Lane, flat: Flat, cx: &mut Cx<'_>) -> bool {
    let was_lost = lane.trouble.found(flat);
    if was_lost {
        cx.count_found(flat);
        version_found(lane, flat, cx);
    }
    was_lost
}
