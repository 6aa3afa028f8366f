// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reclaim: old segments become free again.
//!
//! A victim's headers are read from the device. They are the reverse map, so that none is kept in
//! RAM. Dirty blocks are moved to the end of the writes if they are few, else destaged. Clean
//! blocks are copied forward or dropped, as the policy says. Then "freed" goes into the log. Once
//! that is durable and nobody reads from the segment any more, it is free.
//!
//! The entry "freed" is in a commit of the writes, and so not in an earlier commit than what was
//! moved. No crash takes the old copy of a dirty block and leaves no new one
//! (`acknowledged_and_flushed_survives_any_crash`).
//!
//! Segments with dead room come first ([`crate::organ::sparse::Sparse`]), as long as that is
//! enough. Then come those that the policy would give up. Only segments whose commits the last
//! checkpoint covers are reclaimed, because replay needs the others.

use alloc::vec::Vec;

use crate::act::commit::log::Note;
use crate::act::commit::unproven::hurry_proof;
use crate::act::damage::damaged;
use crate::act::destage::run::let_go_of;
use crate::act::reclaim::choose::{Way, choose, choose_to_compact, look, note_choice};
use crate::act::reclaim::held::{
    is_parked_to_clean, is_to_hold, left_to_cleaning, let_go_of_held, resume_held, waits_to_clean,
};
use crate::act::reclaim::stuck::{give_back_victim, give_back_waiting, stuck_victims, waiting_victims};
use crate::act::shares::max::shrink_step;
use crate::cx::{Cx, blocks_span};
use crate::fact::canary::Canary;
use crate::fact::event::Event;
use crate::fact::io::{DeviceError, DeviceId, Op};
use crate::fact::memory::Buf;
use crate::format::{CommitHeader, Entry};
use crate::lane::Lane;
use crate::organ::flying::{LaneIo, Survivor};
use crate::organ::index::{Flat, Found};
use crate::organ::segment::{Segment, SegmentState};
use crate::organ::trouble::Finding;
use crate::organ::waiter::{Wait, Waiter};
use crate::policy::HITS_MAX;

pub(crate) mod choose;
mod find;
pub(crate) mod held;
pub(crate) mod state;
pub(crate) mod stuck;
mod survivors;
pub(crate) mod vacate;

use find::find_blocks;
use state::Victim;
use survivors::{append_survivor, choose_survivors, is_turned, leaves_after_all, move_dirty, tries_turned_again};
use vacate::{freed_together, guard_end, is_due, survivors_at_once, vacate_step, wanted_before_end};

/// Segments under reclaim at once: enough to hide the latency of reads and flushes.
pub(crate) const VICTIMS_MAX: usize = 4;
/// Survivors of a lane that are read at once: as many as keep an SSD busy. A segment of 16 MiB may
/// have 4,000, each with a buffer of its own.
pub(crate) const SURVIVORS_MAX: usize = 256;
/// The part of a segment's slots that may be dirty for its blocks to be moved. Moving a quarter of
/// a segment gives three quarters of one, whatever the origin does. Without that, a cache before a
/// disk was full of holes with a few dirty blocks between (`the_engine_holds_what_the_model_says`).
const MOVED_PART: u32 = 4;
/// A segment must have so many slots more than live blocks to be cleaned. With fewer the headers of
/// what is moved and of the "freed" entry, and rests of segments that a checkpoint seals, take what
/// is won. (With 4, segments of 16 were cleaned for ever: torture, seed 1795879776940.)
const GAIN_MIN: u32 = 12;
/// The part that may be dirty while an origin is away, of one segment at a time. The other half is
/// room for headers, and what is gained.
const COMPACTED_PART: u32 = 2;

/// Starts reclaim of segments, as far as more free ones are needed.
pub(crate) fn reclaim_step(lane: &mut Lane, cx: &mut Cx<'_>) {
    free_unpinned(lane, cx);
    guard_end(lane, cx);
    if cx.facts.stopping || cx.cache_failed() {
        let_go_of_held(lane, cx);
        lane.reclaim.left = 0;
        return;
    }
    resume_held(lane, cx);
    resume_victims(lane, cx);
    if !cx.facts.away {
        lane.reclaim.not_compacted.clear();
    }
    begin_victims(lane, cx);
    vacate_step(lane, cx);
    if cx.facts.any_max {
        shrink_step(lane, cx);
    }
    lane.reclaim.left = left_to_cleaning(lane, cx);
}

/// Chooses victims, as many as are needed.
fn begin_victims(lane: &mut Lane, cx: &mut Cx<'_>) {
    lane.reclaim.waits = false;
    let mut victims = lane.reclaim.victims.len() - stuck_victims(lane, cx);
    let coming = victims.saturating_sub(waiting_victims(lane, cx)) + lane.reclaim.freeing.len();
    let watermark = lane.reclaim.watermark(&lane.log);
    let mut wanted = watermark.saturating_sub(lane.log.free_segments() + coming).max(wanted_before_end(lane));
    // Where a segment of the end is due, one victim's place is kept for it.
    let places = VICTIMS_MAX - usize::from(is_due(lane));
    while wanted > 0 {
        let has_place = victims < places;
        let (view, mut queues) = look(lane, cx);
        let choice = if has_place { choose(&view, &mut queues) } else { choose_to_compact(&view, &mut queues) };
        note_choice(lane, &choice, cx.now);
        let Some((id, way)) = choice.taken else {
            if has_place && lane.log.has_full_unproven() {
                hurry_proof(lane, cx);
            }
            let others = victims.saturating_sub(waiting_victims(lane, cx)) + lane.reclaim.freeing.len();
            if has_place && others == 0 && tries_turned_again(lane) {
                continue;
            }
            return;
        };
        let in_vain = lane.reclaim.copies_in_vain(lane.log.slots());
        let forced = way == Way::Evict && (core::mem::take(&mut lane.reclaim.forces) || in_vain);
        begin_victim(lane, id, Victim { cleaned: way == Way::Clean, forced, ..Victim::default() }, cx);
        wanted -= 1;
        victims += 1;
    }
    lane.reclaim.waits_since = None;
}

/// Begins the reclaim of a segment.
fn begin_victim(lane: &mut Lane, id: u32, victim: Victim, cx: &mut Cx<'_>) {
    lane.log.set_state(id, SegmentState::Victim);
    lane.reclaim.victims.insert(id, victim);
    if lane.log.segment(id).live > 0 {
        read_header(lane, id, id * lane.log.segment_slots(), cx);
    } else {
        victim_step(lane, id, cx);
    }
}

/// Whether a dirty block can't be read where it should be: then none is moved.
pub(crate) fn has_trouble(lane: &Lane, cx: &Cx<'_>) -> bool {
    cx.delta.lost() > 0 || lane.trouble.has_suspects() || lane.trouble.reads_elsewhere()
}

/// Whether the dirty blocks of a segment are to be moved, now or when the log takes more. They
/// aren't while anybody reads from it. A reader that finds a block damaged which has left its slot
/// since takes it for clean, and the origin for newer (`damaged`).
fn is_to_move(lane: &Lane, segment: u32, cx: &Cx<'_>) -> bool {
    let Segment { dirty, pins, .. } = lane.log.segment(segment);
    let (part, room) = if lane.reclaim.compacting == Some(segment) {
        (COMPACTED_PART, lane.log.room_to_compact() > 0 && !lane.trouble.reads_elsewhere())
    } else {
        let cleaned = is_cleaned(lane, segment);
        let room = if cleaned { lane.log.has_room_to_clean(&lane.log.segment(segment)) } else { lane.log.may_move() };
        (if cleaned { 1 } else { MOVED_PART }, room && !has_trouble(lane, cx))
    };
    let few = dirty <= lane.log.segment_slots() / part && pins == 0;
    let ending = cx.cache_failed() || cx.facts.stopping;
    few && !ending && room
}

/// Whether all that is live of a victim is moved, for its dead room.
pub(crate) fn is_cleaned(lane: &Lane, segment: u32) -> bool {
    lane.reclaim.victims.get(&segment).is_some_and(|victim| victim.cleaned)
}

/// Whether a dirty block must stay in its slot: it is lost, or a request changes it. That request
/// waits for the block's destage, or is replacing it on the origin. A block that will be written
/// anew in the log is better left there, but where the room for that comes of moving it.
fn must_stay(lane: &Lane, segment: u32, flat: Flat) -> bool {
    lane.trouble.is_lost(flat)
        || if lane.reclaim.compacting == Some(segment) {
            lane.is_changing_on_origin(flat) || lane.trouble.is_suspect(flat)
        } else {
            lane.is_changing(flat)
        }
}

/// Goes on with victims whose dirty blocks are destaged or rewritten, and with those that
/// waited to have them moved.
fn resume_victims(lane: &mut Lane, cx: &mut Cx<'_>) {
    if lane.reclaim.victims.is_empty() {
        return;
    }
    let resumable = |id: &u32, victim: &Victim| {
        let waited = || victim.parked && !(lane.log.saturated() && is_to_move(lane, *id, cx));
        let ready = victim.pending == 0 && (lane.log.segment(*id).dirty == 0 || waited());
        ready && !(victim.parked && waits_to_clean(lane, *id, victim))
    };
    let victims = &lane.reclaim.victims;
    let resumable: Vec<u32> = victims.iter().filter(|(id, victim)| resumable(id, victim)).map(|(id, _)| *id).collect();
    for id in resumable {
        victim_step(lane, id, cx);
    }
    give_back_waiting(lane, cx.now);
}

fn read_header(lane: &mut Lane, segment: u32, slot: u32, cx: &mut Cx<'_>) {
    let Some(victim) = lane.reclaim.victims.get_mut(&segment) else { return };
    victim.pending += 1;
    let buf = cx.alloc(1);
    let io = lane.ios.insert(LaneIo::ReclaimHeader { segment, slot, buf, device: cx.lead() });
    let offset = lane.offset_of(slot, cx);
    cx.cache_read(lane.id, io, offset, blocks_span(buf, 0, 1));
}

pub(crate) fn reclaim_header_done(
    lane: &mut Lane,
    segment: u32,
    header_slot: u32,
    buf: Buf,
    device: DeviceId,
    result: Result<(), DeviceError>,
    cx: &mut Cx<'_>,
) {
    let header = result.ok().and_then(|()| CommitHeader::decode(cx.mem.bytes(blocks_span(buf, 0, 1))));
    cx.free(buf, 1);
    let tag = cx.facts.cache_tag;
    let ours = |it: &CommitHeader| it.cache_tag == tag && usize::from(it.lane) == lane.id;
    let inside = header_slot / lane.log.segment_slots() == segment;
    let header = header.filter(|it| inside && ours(it));
    let header = header.and_then(|it| it.fitted(&cx.facts.superblock, header_slot));
    let Some(victim) = lane.reclaim.victims.get_mut(&segment) else { return };
    victim.pending -= 1;
    let last = lane.log.segment(segment).last_seq;
    let Some(header) = header.filter(|header| header.seq <= last) else {
        // The reverse map of the rest is gone: find its blocks in the index instead. A device
        // that was filled as a mirror never had older headers: no reason to alarm anybody.
        if result.is_err() || cx.delta.members.pairing().paired == 0 {
            let offset = lane.offset_of(header_slot, cx);
            let error = result.err().unwrap_or(DeviceError::Io);
            cx.event(Event::DeviceFailed { device, op: Op::Read, offset, error });
        }
        find_blocks(lane, segment);
        victim_step(lane, segment, cx);
        return;
    };
    for (slot, entry) in header.placed(header_slot) {
        if let Entry::Dirty { key, .. } | Entry::Clean { key, .. } = entry
            && let Some(flat) = cx.facts.flat(*key)
        {
            victim.blocks.push((flat, slot));
        }
    }
    if header.seq < last {
        read_header(lane, segment, header_slot + header.data_blocks() + 1, cx);
    } else {
        victim.known = true;
        victim_step(lane, segment, cx);
    }
}

/// Destages, then copies forward or gives up what is left of a victim.
fn victim_step(lane: &mut Lane, segment: u32, cx: &mut Cx<'_>) {
    let Some(victim) = lane.reclaim.victims.get_mut(&segment) else { return };
    if victim.pending > 0 || (!victim.known && lane.log.segment(segment).live > 0) {
        return;
    }
    let (index, eras) = (lane.store.index(), &lane.eras);
    let held = |flat, slot| eras.as_ref().is_some_and(|eras| eras.era_of(flat, slot).is_some());
    victim.blocks.retain(|&(flat, slot)| index.get(flat).is_some_and(|found| found.slot == slot) || held(flat, slot));
    if victim.known && victim.blocks.len() as u32 != lane.log.segment(segment).live {
        // A header that is sound but not this segment's newest: the device lost a write, or
        // misdirected one.
        let first = segment * lane.log.segment_slots();
        let offset = lane.offset_of(first, cx);
        cx.event(Event::DeviceFailed { device: cx.lead(), op: Op::Read, offset, error: DeviceError::Io });
        find_blocks(lane, segment);
    }
    if is_parked_to_clean(lane, segment) {
        return;
    }
    if lane.log.segment(segment).dirty > 0 {
        dirty_step(lane, segment, cx);
        return;
    }
    if cx.facts.any_part && is_turned(lane, segment, cx) {
        return;
    }
    let survivors = choose_survivors(lane, segment, cx);
    if survivors.is_empty() {
        give_up(lane, segment, cx);
    } else {
        read_survivors(lane, segment, &survivors, cx);
    }
}

/// Moves the dirty blocks of a victim, or has them destaged.
fn dirty_step(lane: &mut Lane, segment: u32, cx: &mut Cx<'_>) {
    let moves = is_to_move(lane, segment, cx);
    let compacting = lane.reclaim.compacting == Some(segment);
    let Segment { dirty, pins, .. } = lane.log.segment(segment);
    let Some(victim) = lane.reclaim.victims.get_mut(&segment) else { return };
    victim.parked = moves && lane.log.saturated() || compacting && pins > 0;
    if victim.parked {
        if pins > 0 {
            // Mostly a reader, which leaves soon; but it may be a run.
            victim.waits.get_or_insert((dirty, cx.now));
        }
        return;
    }
    let index = lane.store.index();
    let newest = |flat: Flat, slot: u32| index.get(flat).filter(|found| found.slot == slot);
    let found = |&(flat, slot): &(Flat, u32)| newest(flat, slot).filter(|found| found.dirty).map(|found| (flat, found));
    let dirty: Vec<(Flat, Found)> = victim.blocks.iter().filter_map(found).collect();
    // Older versions that eras need are not moved: they go to the origin first.
    let held = victim.blocks.iter().any(|(flat, slot)| newest(*flat, *slot).is_none());
    let (moves, mut survivors, mut waits) = (moves && !held, Vec::new(), held);
    for (flat, found) in dirty {
        if moves && !must_stay(lane, segment, flat) {
            survivors.push(Survivor { segment, flat, found, hits: found.hits, must: false });
        } else if !lane.trouble.is_lost(flat) {
            lane.trouble.hurry(flat);
            waits = true;
        }
    }
    if let Some(victim) = lane.reclaim.victims.get_mut(&segment).filter(|_| waits) {
        victim.waits.get_or_insert((lane.log.segment(segment).dirty, cx.now));
    }
    if moves && survivors.is_empty() && compacting {
        lane.reclaim.not_compacted.push(segment);
        give_back_victim(lane, segment);
    }
    read_survivors(lane, segment, &survivors, cx);
}

fn read_survivors(lane: &mut Lane, segment: u32, survivors: &[Survivor], cx: &mut Cx<'_>) {
    let Some(victim) = lane.reclaim.victims.get_mut(&segment) else { return };
    victim.pending += survivors.len() as u32;
    for survivor in survivors {
        lane.log.pin(survivor.found.slot);
    }
    lane.reclaim.survivors.extend(survivors);
    read_waiting_survivors(lane, cx);
}

fn read_waiting_survivors(lane: &mut Lane, cx: &mut Cx<'_>) {
    while lane.reclaim.reading < survivors_at_once(lane, cx.now)
        && let Some(survivor) = lane.reclaim.survivors.pop_front()
    {
        lane.reclaim.reading += 1;
        let found = survivor.found;
        let buf = cx.alloc(1);
        let io = lane.ios.insert(LaneIo::Survivor { survivor, buf, device: cx.lead() });
        let offset = lane.offset_of(found.slot, cx);
        cx.cache_read(lane.id, io, offset, blocks_span(buf, 0, 1));
    }
}

pub(crate) fn survivor_done(
    lane: &mut Lane,
    survivor: Survivor,
    buf: Buf,
    result: Result<(), DeviceError>,
    cx: &mut Cx<'_>,
) {
    let Survivor { segment, flat, found, hits, must } = survivor;
    let current = lane.store.get(flat).filter(|now| now.slot == found.slot);
    if current.is_some() && result.is_ok() && is_to_hold(lane, &survivor, cx) {
        lane.reclaim.held.push((survivor, buf));
        return;
    }
    lane.reclaim.reading -= 1;
    lane.log.unpin(found.slot);
    let span = blocks_span(buf, 0, 1);
    if let Some(current) = current {
        let sound = result.is_ok() && lane.store.kept(cx.facts.checksum(cx.mem, flat, span)) == found.checksum;
        // Nothing makes a clean block dirty in place.
        debug_assert!(found.dirty || !current.dirty, "a survivor became dirty in its slot");
        let others = lane.log.segment(segment).pins > lane.reclaim.victims.get(&segment).map_or(0, |it| it.pending - 1);
        if !sound && current.dirty {
            // Destage finds out whether it is lost.
            lane.trouble.must_be_alone(flat);
        } else if !sound {
            damaged(lane, flat, found.slot, Finding::last(result), cx);
        } else if current.dirty && !others && !must_stay(lane, segment, flat) {
            move_dirty(lane, survivor, current, span, cx);
        } else if !found.dirty {
            let hits = (hits + current.hits.saturating_sub(found.hits)).min(HITS_MAX);
            let cleaned = is_cleaned(lane, segment);
            let appended = append_survivor(lane, cleaned || must, flat, hits, span, cx);
            cx.delta.counters.reinserted_blocks += u64::from(appended);
            cx.delta.counters.moved_blocks += u64::from(appended && cleaned);
            if appended && must {
                lane.reclaim.copied_one();
            }
            if !appended && cx.facts.any_part {
                leaves_after_all(lane, segment, flat, cx);
            }
        }
    }
    cx.free(buf, 1);
    if let Some(victim) = lane.reclaim.victims.get_mut(&segment) {
        victim.pending -= 1;
    }
    read_waiting_survivors(lane, cx);
    victim_step(lane, segment, cx);
}

/// Records that a segment is freed. Its blocks stay in the index until that is durable. So a direct
/// write of one of them knows that the log must say so first.
fn give_up(lane: &mut Lane, segment: u32, cx: &mut Cx<'_>) {
    let Some(victim) = lane.reclaim.victims.remove(&segment) else { return };
    lane.reclaim.compacting = lane.reclaim.compacting.filter(|id| *id != segment);
    lane.reclaim.turned.remove(&segment);
    (lane.reclaim.gave_up, lane.reclaim.forces) = (true, false);
    lane.log.set_state(segment, SegmentState::Freeing);
    lane.reclaim.freeing.insert(segment, victim.blocks);
    if !victim.leaving.is_empty() {
        lane.reclaim.leaving.insert(segment, victim.leaving);
    }
    for segment in freed_together(lane, segment) {
        note_freed(lane, segment, cx);
    }
}

/// The log is to say that a segment is freed.
fn note_freed(lane: &mut Lane, segment: u32, cx: &mut Cx<'_>) {
    lane.log.note(Note::Entry(Entry::Freed { segment }));
    // After a failure of the cache device nothing becomes free any more.
    let _: Wait = lane.await_durable(Waiter::Freed(segment), cx);
}

/// The entry that says that a segment is freed is durable.
pub(crate) fn freed_durable(lane: &mut Lane, segment: u32, cx: &mut Cx<'_>) {
    let gone = lane.log.segment(segment);
    // What nobody asked for, and then nobody read, is nothing to remember.
    let unasked = gone.is_of_neighbours(lane.log.segment_slots());
    for (flat, slot) in lane.reclaim.freeing.get_mut(&segment).map(core::mem::take).unwrap_or_default() {
        if let Some(found) = lane.store.get(flat).filter(|found| found.slot == slot) {
            lane.unmap(flat, cx);
            if !unasked || found.hits > 0 {
                lane.reclaim.dropped = true;
                lane.policy.dropped(flat.0, gone.zone, found.hits);
            }
            cx.count_evicted(flat);
        }
    }
    for (origin, blocks) in lane.reclaim.leaving.remove(&segment).unwrap_or_default() {
        cx.delta.origins[origin].leaving.sub(blocks);
    }
    lane.reclaim.pinned.push(segment);
    free_unpinned(lane, cx);
}

fn free_unpinned(lane: &mut Lane, cx: &Cx<'_>) {
    if cx.facts.away {
        for nth in 0..lane.reclaim.pinned.len() {
            let_go_of(lane, lane.reclaim.pinned[nth]);
        }
    }
    let early = cx.facts.planted(Canary::FreedWhileRead);
    let (log, freeing, tried) = (&mut lane.log, &mut lane.reclaim.freeing, &mut lane.reclaim.not_compacted);
    lane.reclaim.pinned.retain(|&segment| {
        let pinned = log.segment(segment).pins > 0 && !early;
        if !pinned {
            lane.neighbours.gone(log.take_neighbours(segment));
            log.give_free(segment);
            freeing.remove(&segment);
            tried.retain(|id| *id != segment);
        }
        pinned
    });
}
