// SPDX-License-Identifier: MIT OR Apache-2.0
//! One run of dirty blocks: gathered from RAM or the cache device, verified, written to the origin,
//! and clean after the origin's flush.
//!
//! A small gap between dirty blocks is bridged with the clean blocks in it, if all of them are
//! cached: one longer I/O instead of two. A clean block has its origin's content, and who changes
//! that on the origin takes it out of the index before and waits for runs over it (`direct`), so
//! that writing it once more changes nothing. Only what clients wrote since the opening is written
//! again: what was cached before may be stale, if the origin was changed behind our back and nobody
//! noticed, and must not become the origin's.
//!
//! A run that the origin refuses is broken in two, until what is refused is alone
//! (`one_block_that_is_refused_keeps_no_others_dirty`).

use alloc::vec::Vec;

use super::state::{RUN_BLOCKS_MAX, Run};
use crate::canary::Canary;
use crate::commit::log::Place;
use crate::cx::{Cx, blocks_span};
use crate::event::Event;
use crate::format::NO_SLOT;
use crate::index::{Flat, Found};
use crate::io::{DeviceError, Op};
use crate::lane::Lane;
use crate::memory::Span;
use crate::organ::flying::LaneIo;
use crate::organ::waiter::Waiter;
use crate::policy::Zone;
use crate::shared::Up;
use crate::types::BLOCK_BYTES;

/// The longest gap that is bridged: 32 KiB pass under a disk's head in a fifth of a millisecond,
/// and cost a network volume less than another I/O.
const GAP_BLOCKS_MAX: u64 = 8;

impl Lane {
    /// Whether a run overlaps the range, from its gathering to its blocks being clean.
    pub(crate) fn run_overlaps(&self, first: Flat, end: Flat) -> bool {
        let from = Flat(first.0.saturating_sub(u64::from(RUN_BLOCKS_MAX)));
        let mut near = self.run_ranges.range(from..end);
        near.any(|(start, blocks)| start.0 + u64::from(*blocks) > first.0)
    }

    /// Where the run that covers a block ends, if one does.
    pub(crate) fn run_end(&self, flat: Flat) -> Option<Flat> {
        let (start, blocks) = self.run_ranges.range(..=flat).next_back()?;
        let end = start.0 + u64::from(*blocks);
        (end > flat.0).then_some(Flat(end))
    }

    /// The version of a block that can be destaged now, or, if it is clean, bridged.
    fn destageable(&self, flat: Flat, dirty: bool, cx: &Cx<'_>) -> Option<(u32, u32)> {
        let found = self.index.get(flat).filter(|found| found.dirty == dirty)?;
        // After a failure of the cache device nothing is changed in place any more.
        let settled = cx.shared.cache_failed || !self.log.unsealed(found.slot);
        // Replay counts all that it finds as main.
        let settled = settled && (dirty || self.log.zone_of(found.slot) == Zone::Writes);
        let free = settled && !cx.shared.lost.contains(&flat) && self.run_end(flat).is_none();
        free.then_some((found.slot, found.checksum))
    }

    /// Whether a block must be alone in its run: it could not be read with others, or only another
    /// device has it.
    fn alone(&self, flat: Flat) -> bool {
        self.suspect.contains(&flat) || self.elsewhere.contains_key(&flat)
    }

    /// The clean blocks of the gap at `at`, if all are cached and what is behind it can be in the
    /// same run.
    fn bridge(&self, at: Flat, end: Flat, room: u64, cx: &Cx<'_>) -> Option<Vec<(u32, u32)>> {
        let gap = self.dirty.next(at).filter(|next| *next < end)?.0 - at.0;
        if gap == 0 || gap > GAP_BLOCKS_MAX || gap >= room || cx.shared.cache_failed {
            return None;
        }
        let behind = Flat(at.0 + gap);
        if self.breaks.range(at..=behind).next().is_some() {
            return None;
        }
        self.destageable(behind, true, cx).filter(|_| !self.alone(behind))?;
        (at.0..behind.0).map(|flat| self.destageable(Flat(flat), false, cx)).collect()
    }

    /// Starts a run at a block, as long as the blocks after it are dirty too, or can be bridged, up
    /// to `end`. Returns its length; 0 if that block can't be destaged now.
    pub(crate) fn start_run(&mut self, first: Flat, end: Flat, cx: &mut Cx<'_>) -> u32 {
        let mut versions = Vec::new();
        let mut at = first;
        while at < end && versions.len() < RUN_BLOCKS_MAX as usize && !(at > first && self.breaks.contains(&at)) {
            let Some(version) = self.destageable(at, true, cx) else {
                let room = u64::from(RUN_BLOCKS_MAX) - versions.len() as u64;
                let Some(gap) = self.bridge(at, end, room, cx).filter(|_| at > first) else { break };
                at = Flat(at.0 + gap.len() as u64);
                versions.extend(gap);
                continue;
            };
            let alone = self.alone(at);
            if alone && at > first {
                break;
            }
            versions.push(version);
            at = Flat(at.0 + 1);
            if alone {
                break;
            }
        }
        let blocks = versions.len() as u32;
        if blocks == 0 {
            return 0;
        }
        // As large as any: of many sizes each would want chunks of memory of its own.
        let buf = cx.alloc(RUN_BLOCKS_MAX);
        self.run_ranges.insert(first, blocks);
        for &(slot, _) in &versions {
            // Until the blocks are clean: the slot must keep meaning this version.
            self.log.segment_of(slot).pins += 1;
        }
        let device = self.holder(first, cx);
        let run = self.runs.insert(Run {
            first,
            versions,
            buf: Some(buf),
            device,
            pending: 1,
            result: Ok(()),
            failed_flushes: 0,
        });
        let mut nth = 0;
        while nth < blocks {
            let slot = self.runs[run].versions[nth as usize].0;
            if let Place::Ram(from, offset) = self.place(slot) {
                cx.mem.copy(Span::new(from, offset, BLOCK_BYTES as u32), buf, nth * BLOCK_BYTES as u32);
                nth += 1;
                continue;
            }
            let versions = &self.runs[run].versions;
            let mut len = 1;
            while nth + len < blocks && versions[(nth + len) as usize].0 == slot + len {
                if !self.on_device(slot + len) {
                    break;
                }
                len += 1;
            }
            self.runs[run].pending += 1;
            cx.shared.cache_reads.destage_blocks += u64::from(len);
            let io = self.ios.insert(LaneIo::RunRead { run, device });
            let offset = cx.shared.superblock.slot_offset(self.id as u32, slot);
            cx.io(self.id, io, device, Op::Read, offset, Some(blocks_span(buf, nth, len)));
            nth += len;
        }
        self.run_gathered(run, cx);
        blocks
    }

    pub(crate) fn run_read_done(&mut self, run: usize, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
        if result.is_err() {
            self.runs[run].result = result;
        }
        self.run_gathered(run, cx);
    }

    /// One part of the gathering is over; after the last one the run is verified and written.
    fn run_gathered(&mut self, run: usize, cx: &mut Cx<'_>) {
        self.runs[run].pending -= 1;
        if self.runs[run].pending > 0 {
            return;
        }
        let Run { first, buf, device, result: read, .. } = self.runs[run];
        let Some(buf) = buf else { return };
        if let Err(error) = read {
            let offset = cx.shared.superblock.slot_offset(self.id as u32, self.runs[run].versions[0].0);
            cx.event(Event::DeviceFailed { device, op: Op::Read, offset, error });
            let end = Flat(first.0 + self.runs[run].versions.len() as u64);
            let slot = self.runs[run].versions[0].0;
            if self.alone(first) {
                // A block alone.
                if self.try_other(first, slot, device, read, cx).is_some() {
                    self.lose(first, slot, cx);
                }
            } else {
                let dirty = |flat: &Flat| self.index.get(*flat).is_some_and(|found| found.dirty);
                self.suspect.extend((first.0..end.0).map(Flat).filter(dirty));
            }
            self.drop_run(run, None, cx);
            return;
        }
        let blocks = self.runs[run].versions.len() as u32;
        let mut sound = true;
        for nth in 0..blocks {
            let flat = Flat(first.0 + u64::from(nth));
            let (slot, expected) = self.runs[run].versions[nth as usize];
            if self.index.kept(cx.shared.checksum(cx.mem, flat, blocks_span(buf, nth, 1))) != expected {
                sound = false;
                // `Err`: the lead is tried once more, by a run of it alone.
                if let Some(Ok(())) = self.try_other(flat, slot, device, Ok(()), cx) {
                    self.damaged(flat, slot, Ok(()), cx);
                }
            }
        }
        if !sound {
            // The lost blocks are known now; the others are found again by the next sweep.
            self.drop_run(run, None, cx);
            return;
        }
        // If the origin were ahead of the log a crash would bring the older version back to life in
        // the cache, and an eviction the newer one.
        let needs = self.log.last_seq_of(self.runs[run].versions.iter().map(|version| version.0));
        let ahead = cx.shared.cache_failed || cx.shared.planted(Canary::OriginAhead);
        if needs > self.log.durable_seq && !ahead {
            self.log.set_aside(Waiter::Run(run), needs);
        } else {
            self.write_run(run, cx);
        }
    }

    /// Writes a gathered run to its origin.
    pub(crate) fn write_run(&mut self, run: usize, cx: &mut Cx<'_>) {
        let (first, Some(buf)) = (self.runs[run].first, self.runs[run].buf) else { return };
        let (device, offset, len) = cx.origin_range(first, self.runs[run].versions.len() as u64);
        let io = self.ios.insert(LaneIo::RunWrite { run });
        let origin = cx.shared.origin_of(first);
        self.runs[run].failed_flushes = cx.shared.origins[origin].flush.failures();
        cx.shared.origins[origin].gauge.writes.began(cx.now);
        cx.io(self.id, io, device, Op::Write, offset, Some(Span::new(buf, 0, len as u32)));
    }

    pub(crate) fn run_write_done(&mut self, run: usize, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
        let origin = cx.shared.origin_of(self.runs[run].first);
        cx.shared.origins[origin].gauge.writes.ended(result.is_ok(), cx.now);
        let blocks = self.runs[run].versions.len() as u32;
        if let Err(error) = result {
            cx.origin_failed(Op::Write, self.runs[run].first, u64::from(blocks), error);
            cx.shared.up.push(Up::DestageFailed { origin, error });
            // An origin that hangs refuses no block of the run more than another.
            if error != DeviceError::TimedOut {
                self.go_alone_if_bridged(run);
                self.break_in_two(run);
            }
            self.drop_run(run, Some(error), cx);
            return;
        }
        if let Some(buf) = self.runs[run].buf.take() {
            cx.free(buf, RUN_BLOCKS_MAX);
        }
        if cx.shared.planted(Canary::CleanEarly) {
            cx.shared.up.push(Up::RunDropped { origin });
            self.run_flushed(run, Ok(()), cx);
            return;
        }
        cx.shared.up.push(Up::RunWritten { lane: self.id, run, origin, blocks });
    }

    /// The origin may refuse a clean block that was only bridged: the dirty ones are tried without
    /// it.
    fn go_alone_if_bridged(&mut self, run: usize) {
        let Run { first, versions, .. } = &self.runs[run];
        let range = || (first.0..first.0 + versions.len() as u64).map(Flat);
        let dirty = |flat: &Flat| self.index.get(*flat).is_some_and(|found| found.dirty);
        if !range().all(|flat| dirty(&flat)) {
            self.suspect.extend(range().filter(dirty));
        }
    }

    /// The origin may refuse one block of many: each half is tried by itself the next time. But not
    /// the halves of a half before the other one is on the origin: where all is refused, as on a
    /// thin volume that is full, there would come to be a run for each block.
    fn break_in_two(&mut self, run: usize) {
        let Run { first, versions, .. } = &self.runs[run];
        let (blocks, end) = (versions.len() as u64, Flat(first.0 + versions.len() as u64));
        let halved = |at: Flat, beside: u64| self.breaks.contains(&at) && self.is_dirty(Flat(beside));
        if blocks > 1 && !halved(*first, first.0.wrapping_sub(1)) && !halved(end, end.0) {
            self.breaks.insert(Flat(first.0 + blocks / 2));
        }
    }

    fn is_dirty(&self, flat: Flat) -> bool {
        self.dirty.next(flat) == Some(flat)
    }

    /// The origin has taken these blocks: runs end no more where they were broken, but beside one
    /// that is dirty still.
    fn forget_breaks(&mut self, first: Flat, end: Flat) {
        let from = if first.0 > 0 && self.is_dirty(Flat(first.0 - 1)) { Flat(first.0 + 1) } else { first };
        let to = if self.is_dirty(end) { end } else { Flat(end.0 + 1) };
        while let Some(&at) = self.breaks.range(from..to).next() {
            self.breaks.remove(&at);
        }
    }

    /// The origin's flush after the run's write is over.
    pub(crate) fn run_flushed(&mut self, run: usize, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
        let origin = cx.shared.origin_of(self.runs[run].first);
        // Another flush may have failed since its write began, and the origin have dropped that
        // write (ADR 0022).
        let doubtful = self.runs[run].failed_flushes != cx.shared.origins[origin].flush.failures();
        let result = if doubtful { result.and(Err(DeviceError::Io)) } else { result };
        if let Err(error) = result {
            cx.shared.up.push(Up::DestageFailed { origin, error });
            self.drop_run(run, Some(error), cx);
            return;
        }
        let (first, versions) = self.end_run(run, cx);
        let end = Flat(first.0 + versions.len() as u64);
        let mut cleaned = 0;
        for (flat, (slot, _)) in (first.0..).map(Flat).zip(versions) {
            // Only if it hasn't been rewritten: a newer version is in another slot.
            let unlooked = cx.shared.planted(Canary::CleanWithoutLook);
            let found = self.index.get(flat).filter(|found| found.dirty && (found.slot == slot || unlooked));
            if let Some(Found { slot, .. }) = found {
                self.clean(flat, slot, cx);
                self.log.note_cleaned(flat, slot, cx.now);
                cleaned += 1;
            }
        }
        cx.shared.counters.destaged_blocks += cleaned;
        self.forget_breaks(first, end);
        self.resume_awaiting_clean(cx);
    }

    /// The run comes to nothing, because of this error of its origin if there is one; its blocks
    /// stay dirty.
    fn drop_run(&mut self, run: usize, failed: Option<DeviceError>, cx: &mut Cx<'_>) {
        if self.runs[run].buf.is_some() {
            let origin = cx.shared.origin_of(self.runs[run].first);
            cx.shared.up.push(Up::RunDropped { origin });
        }
        let (first, versions) = self.end_run(run, cx);
        let end = Flat(first.0 + versions.len() as u64);
        if let Some(error) = failed {
            // Those who wait for blocks that can't be read or written now must not wait forever.
            self.fail_awaiting_clean(first, end, error, cx);
            self.give_back(versions.iter().map(|version| version.0).filter(|slot| *slot != NO_SLOT));
        }
        self.resume_awaiting_clean(cx);
    }

    /// A segment is to be free, and all blocks have left it: runs that have read theirs needn't
    /// hold it until their origin, which may answer nothing for long, has them. Such a version is
    /// nowhere any more, and nothing is taken for it.
    pub(crate) fn let_go_of(&mut self, segment: u32) {
        let segment_slots = self.log.segment_slots();
        let pins = &mut self.log.segments[segment as usize].pins;
        if *pins == 0 {
            return;
        }
        for (_, run) in self.runs.iter_mut().filter(|(_, run)| run.pending == 0) {
            for (slot, _) in &mut run.versions {
                if *slot != NO_SLOT && *slot / segment_slots == segment {
                    *slot = NO_SLOT;
                    *pins -= 1;
                }
            }
        }
    }

    fn end_run(&mut self, run: usize, cx: &mut Cx<'_>) -> (Flat, Vec<(u32, u32)>) {
        let run = self.runs.remove(run);
        self.run_ranges.remove(&run.first);
        for &(slot, _) in run.versions.iter().filter(|version| version.0 != NO_SLOT) {
            self.log.segment_of(slot).pins -= 1;
        }
        if let Some(buf) = run.buf {
            cx.free(buf, RUN_BLOCKS_MAX);
        }
        (run.first, run.versions)
    }
}
