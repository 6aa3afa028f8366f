// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reclaim: old segments become free again.
//!
//! A victim's headers are read from the device (they are the reverse map, so that none is kept in
//! RAM). Its dirty blocks are moved to the end of the writes if they are few, else destaged; clean
//! ones are copied forward or dropped, as the policy says. Then "freed" goes into the log, and once
//! that is durable and nobody reads from it any more, the segment is free. That entry is in a
//! commit of the writes, and so not in an earlier one than what was moved: no crash takes the old
//! copy of a dirty block and leaves no new one (`acknowledged_and_flushed_survives_any_crash`).
//! Segments with dead room come first ([`crate::organ::sparse::Sparse`]), as long as that is
//! enough; then those that the policy would give up. Only segments whose commits the last
//! checkpoint covers are reclaimed, because replay needs the others.

use alloc::vec::Vec;

use crate::act::commit::log::{For, Note};
use crate::act::commit::unproven::hurry_proof;
use crate::act::commit::{open, put};
use crate::act::damage::damaged;
use crate::act::destage::run::let_go_of;
use crate::cx::{Cx, blocks_span};
use crate::fact::canary::Canary;
use crate::fact::event::Event;
use crate::fact::io::{DeviceError, Op};
use crate::fact::memory::{Buf, Span};
use crate::format::{CommitHeader, Entry, Stream};
use crate::lane::Lane;
use crate::organ::flying::{LaneIo, Survivor};
use crate::organ::index::{Flat, Found};
use crate::organ::segment::{Segment, State};
use crate::organ::trouble::Finding;
use crate::organ::waiter::{Wait, Waiter};
use crate::policy::HITS_MAX;

pub(crate) mod choose;
mod held;
pub(crate) mod state;
pub(crate) mod stuck;

use state::Victim;

/// Segments under reclaim at once: enough to hide the latency of reads and flushes.
pub(crate) const VICTIMS_MAX: usize = 4;
/// Survivors of a lane that are read at once: as many as keep an SSD busy. A segment of 16 MiB may
/// have 4,000, each with a buffer of its own.
pub(crate) const SURVIVORS_MAX: usize = 256;
/// The part of a segment's slots that may be dirty for its blocks to be moved. Moving a quarter of
/// a segment gives three quarters of one, whatever the origin does; without it a cache before a
/// disk was full of holes with a few dirty blocks between (`the_engine_holds_what_the_model_says`).
const MOVED_PART: u32 = 4;
/// So many slots more than are live a segment must have to be cleaned: with fewer the headers of
/// what is moved and of the "freed" entry, and rests of segments that a checkpoint seals, take what
/// is won. (With 4, segments of 16 were cleaned for ever: torture, seed 1795879776940.)
const GAIN_MIN: u32 = 12;
/// The same while an origin is away, of one segment at a time: half of it is room for headers, and
/// what is gained.
const COMPACTED_PART: u32 = 2;

impl Lane {
    /// Starts reclaim of segments, as far as more free ones are needed.
    pub(crate) fn reclaim_step(&mut self, cx: &mut Cx<'_>) {
        self.free_unpinned(cx);
        if cx.shared.stopping || cx.shared.cache_failed {
            self.let_go_of_held(cx);
            self.reclaim.left = 0;
            return;
        }
        self.resume_held(cx);
        self.resume_victims(cx);
        if !cx.shared.away {
            self.reclaim.not_compacted.clear();
        }
        self.begin_victims(cx);
        self.reclaim.left = self.left_to_cleaning(cx);
    }

    /// Chooses victims, as many as are needed.
    fn begin_victims(&mut self, cx: &mut Cx<'_>) {
        self.reclaim.waits = false;
        let mut victims = self.reclaim.victims.len() - self.stuck_victims(cx);
        let coming = victims.saturating_sub(self.waiting_victims(cx)) + self.reclaim.freeing.len();
        let watermark = self.reclaim.watermark(&self.log);
        let mut wanted = watermark.saturating_sub(self.log.free_segments() + coming);
        while wanted > 0 {
            let has_place = victims < VICTIMS_MAX;
            let chosen = if has_place { self.choose_victim(cx) } else { self.compact(cx).map(|id| (id, false)) };
            let Some((id, cleaned)) = chosen else {
                if !has_place && cx.shared.away && self.reclaim.compacting.is_none() {
                    self.checkpoint.wanted |= self.checkpoint_helps(self.log.segment_slots() / COMPACTED_PART);
                } else if has_place && self.log.has_full_unproven() {
                    hurry_proof(self, cx);
                }
                return;
            };
            self.log.set_state(id, State::Victim);
            self.reclaim.victims.insert(id, Victim { cleaned, ..Victim::default() });
            if self.log.segment(id).live > 0 {
                self.read_header(id, id * self.log.segment_slots(), cx);
            } else {
                self.victim_step(id, cx);
            }
            wanted -= 1;
            victims += 1;
        }
        self.reclaim.waits_since = None;
    }

    /// Whether a dirty block can't be read where it should be: then none is moved.
    fn has_trouble(&self, cx: &Cx<'_>) -> bool {
        cx.shared.lost() > 0 || self.trouble.has_suspects() || self.trouble.reads_elsewhere()
    }

    /// Whether the dirty blocks of a segment are to be moved, now or when the log takes more. Not
    /// while anybody reads from it: who finds a block damaged that has left its slot since takes it
    /// for clean, and the origin for newer (`damaged`).
    fn is_to_move(&self, segment: u32, cx: &Cx<'_>) -> bool {
        let Segment { dirty, pins, .. } = self.log.segment(segment);
        let (part, room) = if self.reclaim.compacting == Some(segment) {
            (COMPACTED_PART, self.log.room_to_compact() > 0 && !self.trouble.reads_elsewhere())
        } else {
            let cleaned = self.is_cleaned(segment);
            let room = if cleaned {
                self.log.has_room_to_clean(&self.log.segment(segment))
            } else {
                self.log.has_room_to_move()
            };
            (if cleaned { 1 } else { MOVED_PART }, room && !self.has_trouble(cx))
        };
        let few = dirty <= self.log.segment_slots() / part && pins == 0;
        let ending = cx.shared.cache_failed || cx.shared.stopping;
        few && !ending && room
    }

    /// Whether all that is live of a victim is moved, for its dead room.
    fn is_cleaned(&self, segment: u32) -> bool {
        self.reclaim.victims.get(&segment).is_some_and(|victim| victim.cleaned)
    }

    /// Whether a dirty block must stay in its slot: it is lost, or a request changes it, which
    /// waits for its destage or is replacing it on the origin. One that will be written anew in the
    /// log is better left there, but where the room for that comes of moving it.
    fn must_stay(&self, segment: u32, flat: Flat) -> bool {
        self.trouble.is_lost(flat)
            || if self.reclaim.compacting == Some(segment) {
                self.is_changing_on_origin(flat) || self.trouble.is_suspect(flat)
            } else {
                self.is_changing(flat)
            }
    }

    /// Goes on with victims whose dirty blocks are destaged or rewritten, and with those that
    /// waited to have them moved.
    fn resume_victims(&mut self, cx: &mut Cx<'_>) {
        if self.reclaim.victims.is_empty() {
            return;
        }
        let resumable = |id: &u32, victim: &Victim| {
            let waited = || victim.parked && !(self.log.saturated() && self.is_to_move(*id, cx));
            let ready = victim.pending == 0 && (self.log.segment(*id).dirty == 0 || waited());
            ready && !(victim.parked && self.waits_to_clean(*id, victim))
        };
        let victims = &self.reclaim.victims;
        let resumable: Vec<u32> =
            victims.iter().filter(|(id, victim)| resumable(id, victim)).map(|(id, _)| *id).collect();
        for id in resumable {
            self.victim_step(id, cx);
        }
        self.give_back_waiting(cx.now);
    }

    fn read_header(&mut self, segment: u32, slot: u32, cx: &mut Cx<'_>) {
        let Some(victim) = self.reclaim.victims.get_mut(&segment) else { return };
        victim.pending += 1;
        let buf = cx.alloc(1);
        let io = self.ios.insert(LaneIo::ReclaimHeader { segment, slot, buf });
        let offset = self.offset_of(slot, cx);
        cx.cache_read(self.id, io, offset, blocks_span(buf, 0, 1));
    }

    pub(crate) fn reclaim_header_done(
        &mut self,
        segment: u32,
        at: u32,
        buf: Buf,
        result: Result<(), DeviceError>,
        cx: &mut Cx<'_>,
    ) {
        let header = result.ok().and_then(|()| CommitHeader::decode(cx.mem.bytes(blocks_span(buf, 0, 1))));
        cx.free(buf, 1);
        let tag = cx.shared.cache_tag;
        let ours = |it: &CommitHeader| it.cache_tag == tag && usize::from(it.lane) == self.id;
        let inside = at / self.log.segment_slots() == segment;
        let header = header.filter(|it| inside && ours(it) && it.fits(&cx.shared.superblock, at));
        let Some(victim) = self.reclaim.victims.get_mut(&segment) else { return };
        victim.pending -= 1;
        let last = self.log.segment(segment).last_seq;
        let Some(header) = header.filter(|header| header.seq <= last) else {
            // The reverse map of the rest is gone: find its blocks in the index instead. A device
            // that was filled as a mirror never had older headers: no reason to alarm anybody.
            if result.is_err() || cx.shared.superblock.pairing.paired == 0 {
                let offset = self.offset_of(at, cx);
                let error = result.err().unwrap_or(DeviceError::Io);
                cx.event(Event::DeviceFailed { device: cx.lead(), op: Op::Read, offset, error });
            }
            self.find_blocks(segment);
            self.victim_step(segment, cx);
            return;
        };
        for (slot, entry) in header.placed(at) {
            if let Entry::Dirty { key, .. } | Entry::Clean { key, .. } = entry
                && let Some(flat) = cx.shared.flat(*key)
            {
                victim.blocks.push((flat, slot));
            }
        }
        if header.seq < last {
            self.read_header(segment, at + header.data_blocks() + 1, cx);
        } else {
            victim.known = true;
            self.victim_step(segment, cx);
        }
    }

    /// All blocks of a segment, by a walk over the whole index.
    fn find_blocks(&mut self, segment: u32) {
        let slots = self.log.segment_slots();
        let mut blocks = Vec::new();
        self.index.for_each(|flat, found| {
            if found.slot / slots == segment {
                blocks.push((flat, found.slot));
            }
        });
        if let Some(victim) = self.reclaim.victims.get_mut(&segment) {
            (victim.blocks, victim.known) = (blocks, true);
        }
    }

    /// Destages, then copies forward or gives up what is left of a victim.
    fn victim_step(&mut self, segment: u32, cx: &mut Cx<'_>) {
        let Some(victim) = self.reclaim.victims.get_mut(&segment) else { return };
        if victim.pending > 0 || (!victim.known && self.log.segment(segment).live > 0) {
            return;
        }
        let index = &self.index;
        victim.blocks.retain(|&(flat, slot)| index.get(flat).is_some_and(|found| found.slot == slot));
        if victim.known && victim.blocks.len() as u32 != self.log.segment(segment).live {
            // A header that is sound but not this segment's newest: the device lost a write, or
            // misdirected one.
            let at = segment * self.log.segment_slots();
            let offset = self.offset_of(at, cx);
            cx.event(Event::DeviceFailed { device: cx.lead(), op: Op::Read, offset, error: DeviceError::Io });
            self.find_blocks(segment);
        }
        if self.is_parked_to_clean(segment) {
            return;
        }
        if self.log.segment(segment).dirty > 0 {
            self.dirty_step(segment, cx);
            return;
        }
        let (zone, slots) = (self.log.segment(segment).zone, self.log.segment_slots());
        let unasked = self.log.segment(segment).is_of_neighbours(slots);
        let Some(victim) = self.reclaim.victims.get_mut(&segment) else { return };
        let index = &self.index;
        let mut survivors = Vec::new();
        for &(flat, _) in &victim.blocks {
            let Some(found) = index.get(flat) else { continue };
            if victim.chosen {
                continue;
            }
            let survives = if victim.cleaned {
                // But not what nobody asked for, and then nobody read.
                (!unasked || found.hits > 0).then_some(found.hits)
            } else {
                self.policy.survives(zone, found.hits, victim.kept, slots)
            };
            if let Some(hits) = survives {
                victim.kept += 1;
                survivors.push(Survivor { segment, flat, found, hits });
            }
        }
        if !victim.chosen && unasked {
            let hits = victim.blocks.iter().filter_map(|(flat, _)| index.get(*flat)).map(|found| found.hits);
            self.neighbours.look_back(self.log.slots(), self.log.segment(segment).last_seq, hits);
        }
        victim.chosen = true;
        if survivors.is_empty() {
            self.give_up(segment, cx);
        } else {
            self.read_survivors(segment, &survivors, cx);
        }
    }

    /// Moves the dirty blocks of a victim, or has them destaged.
    fn dirty_step(&mut self, segment: u32, cx: &mut Cx<'_>) {
        let moves = self.is_to_move(segment, cx);
        let compacting = self.reclaim.compacting == Some(segment);
        let Segment { dirty, pins, .. } = self.log.segment(segment);
        let Some(victim) = self.reclaim.victims.get_mut(&segment) else { return };
        victim.parked = moves && self.log.saturated() || compacting && pins > 0;
        if victim.parked {
            if pins > 0 {
                // Mostly a reader, which leaves soon; but it may be a run.
                victim.waits.get_or_insert((dirty, cx.now));
            }
            return;
        }
        let index = &self.index;
        let found = |&(flat, _): &(Flat, u32)| index.get(flat).filter(|found| found.dirty).map(|found| (flat, found));
        let dirty: Vec<(Flat, Found)> = victim.blocks.iter().filter_map(found).collect();
        let (mut survivors, mut waits) = (Vec::new(), false);
        for (flat, found) in dirty {
            if moves && !self.must_stay(segment, flat) {
                survivors.push(Survivor { segment, flat, found, hits: found.hits });
            } else if !self.trouble.is_lost(flat) {
                self.trouble.hurry(flat);
                waits = true;
            }
        }
        if let Some(victim) = self.reclaim.victims.get_mut(&segment).filter(|_| waits) {
            victim.waits.get_or_insert((self.log.segment(segment).dirty, cx.now));
        }
        if moves && survivors.is_empty() && compacting {
            self.reclaim.not_compacted.push(segment);
            self.give_back_victim(segment);
        }
        self.read_survivors(segment, &survivors, cx);
    }

    fn read_survivors(&mut self, segment: u32, survivors: &[Survivor], cx: &mut Cx<'_>) {
        let Some(victim) = self.reclaim.victims.get_mut(&segment) else { return };
        victim.pending += survivors.len() as u32;
        for survivor in survivors {
            self.log.pin(survivor.found.slot);
        }
        self.reclaim.survivors.extend(survivors);
        self.read_waiting_survivors(cx);
    }

    fn read_waiting_survivors(&mut self, cx: &mut Cx<'_>) {
        while self.reclaim.reading < SURVIVORS_MAX
            && let Some(survivor) = self.reclaim.survivors.pop_front()
        {
            self.reclaim.reading += 1;
            let found = survivor.found;
            let buf = cx.alloc(1);
            let io = self.ios.insert(LaneIo::Survivor { survivor, buf });
            let offset = self.offset_of(found.slot, cx);
            cx.cache_read(self.id, io, offset, blocks_span(buf, 0, 1));
        }
    }

    pub(crate) fn survivor_done(
        &mut self,
        survivor: Survivor,
        buf: Buf,
        result: Result<(), DeviceError>,
        cx: &mut Cx<'_>,
    ) {
        let Survivor { segment, flat, found, hits } = survivor;
        let current = self.index.get(flat).filter(|now| now.slot == found.slot);
        if current.is_some() && result.is_ok() && self.is_to_hold(&survivor, cx) {
            self.reclaim.held.push((survivor, buf));
            return;
        }
        self.reclaim.reading -= 1;
        self.log.unpin(found.slot);
        let span = blocks_span(buf, 0, 1);
        if let Some(current) = current {
            let sound = result.is_ok() && self.index.kept(cx.shared.checksum(cx.mem, flat, span)) == found.checksum;
            // Nothing makes a clean block dirty in place.
            debug_assert!(found.dirty || !current.dirty, "a survivor became dirty in its slot");
            let others =
                self.log.segment(segment).pins > self.reclaim.victims.get(&segment).map_or(0, |it| it.pending - 1);
            if !sound && current.dirty {
                // Destage finds out whether it is lost.
                self.trouble.must_be_alone(flat);
            } else if !sound {
                damaged(self, flat, found.slot, Finding::last(result), cx);
            } else if current.dirty && !others && !self.must_stay(segment, flat) {
                self.move_dirty(survivor, current, span, cx);
            } else if !found.dirty {
                let hits = (hits + current.hits.saturating_sub(found.hits)).min(HITS_MAX);
                let cleaned = self.is_cleaned(segment);
                let appended = self.append_survivor(cleaned, flat, hits, span, cx);
                cx.shared.counters.reinserted_blocks += u64::from(appended);
                cx.shared.counters.moved_blocks += u64::from(appended && cleaned);
            }
        }
        cx.free(buf, 1);
        if let Some(victim) = self.reclaim.victims.get_mut(&segment) {
            victim.pending -= 1;
        }
        self.read_waiting_survivors(cx);
        self.victim_step(segment, cx);
    }

    /// Appends a clean block to the survivors; false if there is no room now.
    fn append_survivor(&mut self, cleaned: bool, flat: Flat, hits: u8, from: Span, cx: &mut Cx<'_>) -> bool {
        let what_for = if cleaned { For::Cleaning } else { For::Clients };
        let opened = !cx.shared.cache_failed && open(self, Stream::Survivors, what_for, cx);
        opened && put(self, Stream::Survivors, flat, false, hits, from, cx)
    }

    /// Appends a dirty block to the writes once more. Where there is no room it stays, and its
    /// segment waits.
    fn move_dirty(&mut self, survivor: Survivor, found: Found, from: Span, cx: &mut Cx<'_>) {
        let Survivor { segment, flat, .. } = survivor;
        let what_for = match self.reclaim.compacting == Some(segment) {
            true => For::Moves,
            false if self.is_cleaned(segment) => For::Cleaning,
            false => For::Clients,
        };
        if cx.shared.cache_failed || !open(self, Stream::Writes, what_for, cx) {
            return;
        }
        let rewritten = self.rewritten.next(flat) == Some(flat);
        let dirty = !cx.shared.planted(Canary::MovedClean);
        let appended = put(self, Stream::Writes, flat, dirty, found.hits, from, cx);
        if appended && !rewritten {
            // Nobody has: the sweep of destage needn't pass it over.
            self.rewritten.remove(flat);
        }
        cx.shared.counters.reinserted_blocks += u64::from(appended);
        cx.shared.counters.moved_blocks += u64::from(appended);
    }

    /// Records that a segment is freed. Its blocks stay in the index until that is durable, so that
    /// a direct write of one of them knows that the log must say so first.
    fn give_up(&mut self, segment: u32, cx: &mut Cx<'_>) {
        let Some(victim) = self.reclaim.victims.remove(&segment) else { return };
        self.reclaim.compacting = self.reclaim.compacting.filter(|id| *id != segment);
        self.log.set_state(segment, State::Freeing);
        self.reclaim.freeing.insert(segment, victim.blocks);
        self.log.note(Note::Entry(Entry::Freed { segment }));
        // After a failure of the cache device nothing becomes free any more.
        let _: Wait = self.await_durable(Waiter::Freed(segment), cx);
    }

    /// The entry that says that a segment is freed is durable.
    pub(crate) fn freed_durable(&mut self, segment: u32, cx: &mut Cx<'_>) {
        let gone = self.log.segment(segment);
        // What nobody asked for, and then nobody read, is nothing to remember.
        let unasked = gone.is_of_neighbours(self.log.segment_slots());
        for (flat, slot) in self.reclaim.freeing.get_mut(&segment).map(core::mem::take).unwrap_or_default() {
            if let Some(found) = self.index.get(flat).filter(|found| found.slot == slot) {
                self.unmap(flat, cx);
                if !unasked || found.hits > 0 {
                    self.reclaim.dropped = true;
                    self.policy.dropped(flat.0, gone.zone, found.hits);
                }
                cx.shared.counters.evicted_blocks += 1;
            }
        }
        self.reclaim.pinned.push(segment);
        self.free_unpinned(cx);
    }

    fn free_unpinned(&mut self, cx: &Cx<'_>) {
        if cx.shared.away {
            for nth in 0..self.reclaim.pinned.len() {
                let_go_of(self, self.reclaim.pinned[nth]);
            }
        }
        let early = cx.shared.planted(Canary::FreedWhileRead);
        let (log, freeing, tried) = (&mut self.log, &mut self.reclaim.freeing, &mut self.reclaim.not_compacted);
        self.reclaim.pinned.retain(|&segment| {
            let pinned = log.segment(segment).pins > 0 && !early;
            if !pinned {
                self.neighbours.gone(log.take_neighbours(segment));
                log.give_free(segment);
                freeing.remove(&segment);
                tried.retain(|id| *id != segment);
            }
            pinned
        });
    }
}
