// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which clean blocks of a victim are copied forward, and whether it is a victim at all. Appends
//! these, and dirty ones that are moved.

use alloc::vec::Vec;

use super::is_cleaned;
use super::stuck::give_back_victim;
use super::vacate::appended;
use crate::act::commit::log::For;
use crate::act::commit::{open, put};
use crate::act::shares::{Spare, has_to_stay, is_above_min};
use crate::cx::Cx;
use crate::fact::canary::Canary;
use crate::fact::memory::Span;
use crate::format::Stream;
use crate::lane::Lane;
use crate::organ::flying::Survivor;
use crate::organ::index::{Flat, Found};
use crate::organ::segment::{Segment, SegmentState};
use crate::policy::Zone;

/// Gives a victim back of which too much would have to stay for the parts of volumes; says
/// whether it did.
pub(super) fn is_turned(lane: &mut Lane, segment: u32, cx: &Cx<'_>) -> bool {
    let Some(victim) = lane.reclaim.victims.get(&segment) else { return false };
    let judged = victim.cleaned || victim.chosen || victim.forced;
    if judged || cx.facts.planted(Canary::MinIgnored) || !has_to_stay(lane, &victim.blocks, segment, cx) {
        return false;
    }
    if lane.log.segment(segment).zone == Zone::Main {
        // The hand has passed: each block loses a hit.
        for (flat, _) in &victim.blocks {
            let hits = lane.store.index().get(*flat).map_or(0, |found| found.hits);
            lane.reclaim.demand.see(cx.facts.origin_of(*flat), hits, hits > 0);
            lane.store.cool(*flat);
        }
    }
    give_back_victim(lane, segment);
    lane.reclaim.turned.insert(segment);
    true
}

/// Lets segments be victims again that were given back, as no other is left; says whether there are
/// any. If none was given up since the last time, the next victim is reclaimed whatever it has. But
/// a checkpoint comes first, if full segments wait for it.
pub(super) fn tries_turned_again(lane: &mut Lane) -> bool {
    if lane.reclaim.turned.is_empty() {
        return false;
    }
    let gave_up = core::mem::take(&mut lane.reclaim.gave_up);
    let covered = lane.checkpoint.covers();
    let uncovered = |it: &Segment| it.state == SegmentState::Closed && it.last_seq >= covered;
    if !gave_up && lane.log.segments().iter().any(uncovered) {
        lane.checkpoint.want();
        return false;
    }
    lane.reclaim.forces = !gave_up;
    lane.reclaim.turned.clear();
    true
}

/// Chooses the blocks of a victim that are copied forward; none if they were chosen before.
pub(super) fn choose_survivors(lane: &mut Lane, segment: u32, cx: &mut Cx<'_>) -> Vec<Survivor> {
    let (zone, slots) = (lane.log.segment(segment).zone, lane.log.segment_slots());
    let unasked = lane.log.segment(segment).is_of_neighbours(slots);
    let mut spare = (cx.facts.any_part && !cx.facts.planted(Canary::MinIgnored)).then(|| Spare::new(lane, cx));
    let mut survivors = Vec::new();
    let Some(victim) = lane.reclaim.victims.get_mut(&segment).filter(|victim| !victim.chosen) else {
        return survivors;
    };
    let index = lane.store.index();
    if lane.reclaim.demand.next_victim(lane.log.segments().len()) {
        // What had to stay need not stay for ever: a volume may sleep.
        lane.reclaim.turned.clear();
    }
    for &(flat, _) in &victim.blocks {
        let Some(found) = index.get(flat) else { continue };
        let origin = cx.facts.origin_of(flat);
        let hits = found.hits.saturating_sub(u8::from(spare.as_ref().is_some_and(|it| it.has_too_much(origin))));
        let mut survives = if victim.cleaned {
            // But not what nobody asked for, and then nobody read.
            (!unasked || found.hits > 0).then_some(found.hits)
        } else {
            lane.policy.survives(zone, hits, victim.kept, slots)
        };
        let mut must = false;
        if let Some(spare) = &mut spare
            && cx.facts.origins[origin].has_part()
        {
            if zone == Zone::Main {
                lane.reclaim.demand.see(origin, found.hits, survives.is_some());
            }
            let may = spare.has(origin, zone);
            if survives.is_some() {
                must = !may;
            } else if may || victim.forced {
                leaves(&mut victim.leaving, origin, spare.is_above_min(origin), cx);
                spare.take(origin);
            } else {
                (must, survives) = (true, Some(found.hits.saturating_sub(1)));
            }
            victim.keeps |= must;
        }
        if let Some(hits) = survives {
            victim.kept += 1;
            survivors.push(Survivor { segment, flat, found, hits, must });
        }
    }
    if unasked {
        let hits = victim.blocks.iter().filter_map(|(flat, _)| index.get(*flat)).map(|found| found.hits);
        lane.neighbours.look_back(lane.log.slots(), lane.log.segment(segment).last_seq, hits);
    }
    victim.chosen = true;
    survivors
}

/// A block was to be copied forward, and leaves for want of room.
pub(super) fn leaves_after_all(lane: &mut Lane, segment: u32, flat: Flat, cx: &mut Cx<'_>) {
    let origin = cx.facts.origin_of(flat);
    let may = is_above_min(origin, cx);
    if let Some(victim) = lane.reclaim.victims.get_mut(&segment).filter(|_| cx.facts.origins[origin].has_part()) {
        leaves(&mut victim.leaving, origin, may, cx);
    }
}

/// Notes that a block of that origin leaves with a victim, and whether the origin has its smallest
/// part without it.
fn leaves(leaving: &mut Vec<(usize, u64)>, origin: usize, may: bool, cx: &mut Cx<'_>) {
    let delta = &mut cx.delta.origins[origin];
    delta.leaving.add(1);
    delta.below_min.add(u64::from(!may));
    match leaving.last_mut().filter(|last| last.0 == origin) {
        Some(last) => last.1 += 1,
        None => leaving.push((origin, 1)),
    }
}

/// Appends a clean block to the survivors; false if there is no room now.
pub(super) fn append_survivor(
    lane: &mut Lane,
    cleaned: bool,
    flat: Flat,
    hits: u8,
    from: Span,
    cx: &mut Cx<'_>,
) -> bool {
    let what_for = if cleaned { For::Cleaning } else { For::Clients };
    let opened = !cx.cache_failed() && open(lane, Stream::Survivors, what_for, cx);
    let is_in = opened && put(lane, Stream::Survivors, flat, false, 0, hits, from, cx);
    appended(lane, cx.now);
    is_in
}

/// Appends a dirty block to the writes once more. Where there is no room it stays, and its
/// segment waits.
pub(super) fn move_dirty(lane: &mut Lane, survivor: Survivor, found: Found, from: Span, cx: &mut Cx<'_>) {
    let Survivor { segment, flat, .. } = survivor;
    let what_for = match lane.reclaim.compacting == Some(segment) {
        true => For::Moves,
        false if is_cleaned(lane, segment) => For::Cleaning,
        false => For::Clients,
    };
    if cx.cache_failed() || !open(lane, Stream::Writes, what_for, cx) {
        return;
    }
    if lane.log.is_in_end(segment) && cx.facts.planted(Canary::EndForgotten) {
        lane.unmap(flat, cx);
        return;
    }
    let rewritten = lane.store.is_rewritten(flat);
    let dirty = !cx.facts.planted(Canary::MovedClean);
    // A block that is moved stays in its era.
    let era = lane.eras.as_ref().and_then(|eras| eras.newest(flat)).map_or(0, |it| it.0);
    let is_in = put(lane, Stream::Writes, flat, dirty, era, found.hits, from, cx);
    if is_in && !rewritten {
        // Nobody has: the sweep of destage needn't pass it over.
        lane.store.forget_rewritten(flat);
    }
    appended(lane, cx.now);
    cx.delta.counters.reinserted_blocks += u64::from(is_in);
    cx.delta.counters.moved_blocks += u64::from(is_in);
}
