// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run of dirty blocks. It is gathered from RAM or the cache device, verified, and written to the
//! origin. After the origin's flush its blocks are clean.
//!
//! A small gap between dirty blocks is bridged with the clean blocks in it, if all of them are
//! cached. That is one longer I/O instead of two. A clean block has its origin's content. A direct
//! write that changes that content takes the block out of the index before, and waits for runs over
//! it (`direct`). So writing a clean block once more changes nothing.
//!
//! Only blocks that clients wrote since the opening are written again. A block that was cached
//! before may be stale, if the origin was changed behind our back and nobody noticed. Stale content
//! must not get to the origin.
//!
//! A run that the origin refuses is broken in two, until the refused block is alone
//! (`one_block_that_is_refused_keeps_no_others_dirty`).

use alloc::vec::Vec;

use super::state::{Run, buffer_blocks};
use crate::act::commit::log::Bytes;
use crate::act::damage::{damaged, holder, lose, try_other};
use crate::act::destage::versions::{is_held, version_over};
use crate::act::direct::{fail_awaiting_clean, resume_awaiting_clean};
use crate::act::reclaim::stuck::give_back;
use crate::cx::{Cx, blocks_span};
use crate::fact::canary::Canary;
use crate::fact::event::Event;
use crate::fact::io::{DeviceError, Op};
use crate::fact::memory::Span;
use crate::fact::types::{BLOCK_BYTES, OriginId};
use crate::format::NO_SLOT;
use crate::lane::Lane;
use crate::look::Look;
use crate::organ::eras::Wanted;
use crate::organ::flying::LaneIo;
use crate::organ::grant::Grant;
use crate::organ::index::{Flat, Found};
use crate::organ::reach::RUN_BLOCKS_MAX;
use crate::organ::trouble::Finding;
use crate::organ::up::Up;
use crate::organ::waiter::Waiter;
use crate::policy::Zone;

/// The longest gap that is bridged. 32 KiB pass under a disk's head in a fifth of a millisecond,
/// and cost a network volume less than another I/O.
const GAP_BLOCKS_MAX: u64 = 8;

/// Whether a run overlaps the range, from its gathering to its blocks being clean.
pub(crate) fn run_overlaps(lane: &Lane, first: Flat, end: Flat) -> bool {
    let from = Flat(first.0.saturating_sub(u64::from(RUN_BLOCKS_MAX)));
    let mut near = lane.run_ranges.range(from..end);
    near.any(|(start, blocks)| start.0 + u64::from(*blocks) > first.0)
}

/// Where the run that covers a block ends, if one does.
pub(crate) fn run_end(lane: &Lane, flat: Flat) -> Option<Flat> {
    let (start, blocks) = lane.run_ranges.range(..=flat).next_back()?;
    let end = start.0 + u64::from(*blocks);
    (end > flat.0).then_some(Flat(end))
}

impl Look<'_> {
    /// A block at this place or behind it that these eras need and no run covers.
    pub(crate) fn lacking(self, origin: OriginId, wanted: Wanted, from: Flat) -> Option<Flat> {
        let lane = self.lane();
        lane.eras.as_ref()?.lacking(origin, wanted, from, |flat| run_end(lane, flat))
    }
}

/// The version of a block that is to be destaged, if there is one: slot and checksum. In order it
/// is the one that these eras need.
pub(crate) fn to_destage(lane: &Lane, flat: Flat, wanted: Option<Wanted>) -> Option<(u32, u32)> {
    let Some(eras) = &lane.eras else {
        let found = lane.store.get(flat).filter(|found| found.dirty && !lane.trouble.is_lost(flat))?;
        return Some((found.slot, found.checksum));
    };
    eras.get(flat, wanted?.last).map(|version| (version.slot, version.checksum))
}

fn version_for(lane: &Lane, flat: Flat, wanted: Option<Wanted>, cx: &Cx<'_>) -> Option<(u32, u32)> {
    let version = to_destage(lane, flat, wanted)?;
    let newest =
        lane.store.get(flat).filter(|_| cx.facts.planted(Canary::GroupNewer) && wanted.is_some_and(|it| it.is_group));
    Some(newest.map_or(version, |found| (found.slot, found.checksum)))
}

/// The clean version of a block that may bridge a gap.
fn to_bridge(lane: &Lane, flat: Flat) -> Option<(u32, u32)> {
    // Replay counts all blocks that it finds as blocks of the main zone.
    let bridges = |found: &Found| !found.dirty && lane.log.zone_of(found.slot) == Zone::Writes;
    let found = lane.store.get(flat).filter(bridges)?;
    (!lane.trouble.is_lost(flat)).then_some((found.slot, found.checksum))
}

/// A version can be destaged now, if no run has its block.
fn destageable(lane: &Lane, flat: Flat, version: Option<(u32, u32)>, cx: &Cx<'_>) -> Option<(u32, u32)> {
    let version = version?;
    // After a failure of the cache device nothing is changed in place any more.
    let sealed = cx.cache_failed() || !lane.log.unsealed(version.0);
    (sealed && run_end(lane, flat).is_none()).then_some(version)
}

/// The clean blocks of the gap at `from`, if all are cached and the dirty block behind the gap can
/// be in the same run.
fn bridge(lane: &Lane, from: Flat, grant: &Grant, room: u64, cx: &Cx<'_>) -> Option<Vec<(u32, u32)>> {
    let gap = lane.store.next_dirty(from).filter(|next| *next < grant.end)?.0 - from.0;
    if gap == 0 || gap > GAP_BLOCKS_MAX || gap >= room || cx.cache_failed() {
        return None;
    }
    let behind = Flat(from.0 + gap);
    if lane.trouble.breaks_in(from, behind) {
        return None;
    }
    destageable(lane, behind, to_destage(lane, behind, grant.eras), cx).filter(|_| !lane.trouble.is_alone(behind))?;
    (from.0..behind.0).map(Flat).map(|flat| destageable(lane, flat, to_bridge(lane, flat), cx)).collect()
}

/// Starts the run of a grant. The run goes on as long as the next blocks are dirty too, or can be
/// bridged. Returns its length; 0 if the first block can't be destaged now.
pub(crate) fn start_run(lane: &mut Lane, grant: &Grant, cx: &mut Cx<'_>) -> u32 {
    let &Grant { first, end, eras, .. } = grant;
    let mut versions = Vec::new();
    let mut flat = first;
    while flat < end && versions.len() < RUN_BLOCKS_MAX as usize && !(flat > first && lane.trouble.breaks_at(flat)) {
        let Some(version) = destageable(lane, flat, version_for(lane, flat, eras, cx), cx) else {
            let room = u64::from(RUN_BLOCKS_MAX) - versions.len() as u64;
            let Some(gap) = bridge(lane, flat, grant, room, cx).filter(|_| flat > first) else { break };
            flat = Flat(flat.0 + gap.len() as u64);
            versions.extend(gap);
            continue;
        };
        let alone = lane.trouble.is_alone(flat);
        if alone && flat > first {
            break;
        }
        versions.push(version);
        flat = flat.next();
        if alone {
            break;
        }
    }
    let blocks = versions.len() as u32;
    if blocks == 0 {
        return 0;
    }
    let buf = cx.alloc(buffer_blocks(blocks));
    lane.run_ranges.insert(first, blocks);
    for &(slot, _) in &versions {
        // The slot must keep meaning this version until the block is clean.
        lane.log.pin(slot);
    }
    let device = holder(lane, first, cx);
    let run = lane.runs.insert(Run {
        first,
        versions,
        buf: Some(buf),
        device,
        pending: 1,
        result: Ok(()),
        failed_flushes: 0,
        began: cx.now,
    });
    let mut nth = 0;
    while nth < blocks {
        let slot = lane.runs[run].versions[nth as usize].0;
        if let Bytes::Ram(from, offset) = lane.bytes_of(slot) {
            cx.mem.copy(Span::new(from, offset, BLOCK_BYTES as u32), buf, nth * BLOCK_BYTES as u32);
            nth += 1;
            continue;
        }
        let versions = &lane.runs[run].versions;
        let mut len = 1;
        while nth + len < blocks && versions[(nth + len) as usize].0 == slot + len {
            if !lane.on_device(slot + len) {
                break;
            }
            len += 1;
        }
        lane.runs[run].pending += 1;
        cx.delta.cache_reads.destage_reads(u64::from(len));
        let io = lane.ios.insert(LaneIo::RunRead { run, device });
        let offset = lane.offset_of(slot, cx);
        cx.io(lane.id, io, device, Op::Read, offset, Some(blocks_span(buf, nth, len)));
        nth += len;
    }
    run_gathered(lane, run, cx);
    blocks
}

/// A part of a run was read from the cache device.
pub(crate) fn run_read_done(lane: &mut Lane, run: usize, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
    if result.is_err() {
        lane.runs[run].result = result;
    }
    run_gathered(lane, run, cx);
}

/// A part of the gathering is over; after the last one the run is verified and written.
fn run_gathered(lane: &mut Lane, run: usize, cx: &mut Cx<'_>) {
    lane.runs[run].pending -= 1;
    if lane.runs[run].pending > 0 {
        return;
    }
    let Run { first, buf, device, result: read, .. } = lane.runs[run];
    let Some(buf) = buf else { return };
    if let Err(error) = read {
        let offset = lane.offset_of(lane.runs[run].versions[0].0, cx);
        cx.event(Event::DeviceFailed { device, op: Op::Read, offset, error });
        let end = Flat(first.0 + lane.runs[run].versions.len() as u64);
        let slot = lane.runs[run].versions[0].0;
        if lane.trouble.is_alone(first) {
            // A block alone.
            if try_other(lane, first, slot, device, read, cx) != Finding::AskOther {
                lose(lane, first, slot, cx);
                if is_held(lane, first, slot) {
                    version_over(lane, first, slot, cx);
                }
            }
        } else {
            let dirty = |flat: &Flat| lane.store.get(*flat).is_some_and(|found| found.dirty);
            first.to(end).filter(dirty).for_each(|flat| lane.trouble.must_be_alone(flat));
        }
        drop_run(lane, run, None, cx);
        return;
    }
    let blocks = lane.runs[run].versions.len() as u32;
    let mut sound = true;
    for nth in 0..blocks {
        let flat = first + nth;
        let (slot, expected) = lane.runs[run].versions[nth as usize];
        if lane.store.kept(cx.facts.checksum(cx.mem, flat, blocks_span(buf, nth, 1))) != expected {
            sound = false;
            // After an `Err` the lead is tried once more, by a run of that block alone.
            let finding = try_other(lane, flat, slot, device, Ok(()), cx);
            if finding.result() == Some(Ok(())) {
                damaged(lane, flat, slot, finding, cx);
                if is_held(lane, flat, slot) {
                    lose_held(lane, flat, slot, cx);
                }
            }
        }
    }
    if !sound {
        // The lost blocks are known now; the others are found again by the next sweep.
        drop_run(lane, run, None, cx);
        return;
    }
    // If the origin were ahead of the log, a crash would bring the older version back to life in
    // the cache. An eviction would then bring the newer one back.
    let needs = lane.log.last_seq_of(lane.runs[run].versions.iter().map(|version| version.0));
    let ahead = cx.cache_failed() || cx.facts.planted(Canary::OriginAhead);
    if needs > lane.log.durable_seq && !ahead {
        lane.log.set_aside(Waiter::Run(run), needs);
    } else {
        write_run(lane, run, cx);
    }
}

/// No copy of an older version is what it was. The eras after it go on without it. The origin then
/// is like a disk that has lost a sector, until the newer version is destaged.
fn lose_held(lane: &mut Lane, flat: Flat, slot: u32, cx: &mut Cx<'_>) {
    cx.event(Event::Corrupt { key: cx.facts.key(flat), dirty: true });
    cx.delta.counters.corrupt_blocks += 1;
    version_over(lane, flat, slot, cx);
}

/// Writes a gathered run to its origin.
pub(crate) fn write_run(lane: &mut Lane, run: usize, cx: &mut Cx<'_>) {
    let (first, Some(buf)) = (lane.runs[run].first, lane.runs[run].buf) else { return };
    let (device, offset, len) = cx.origin_range(first, lane.runs[run].versions.len() as u64);
    let io = lane.ios.insert(LaneIo::RunWrite { run });
    let origin = cx.facts.origin_of(first);
    lane.runs[run].failed_flushes = cx.delta.origins[origin].flush.failures();
    lane.runs[run].began = cx.now;
    cx.delta.origins[origin].gauge.writes.began(cx.now);
    cx.io(lane.id, io, device, Op::Write, offset, Some(Span::new(buf, 0, len as u32)));
}

/// A run is written to its origin, or was refused.
pub(crate) fn run_write_done(lane: &mut Lane, run: usize, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
    let origin = cx.facts.origin_of(lane.runs[run].first);
    cx.delta.origins[origin].gauge.writes.ended(result.is_ok(), cx.now);
    let blocks = lane.runs[run].versions.len() as u32;
    if let Err(error) = result {
        cx.origin_failed(Op::Write, lane.runs[run].first, u64::from(blocks), error);
        cx.delta.tell(Up::DestageFailed { origin, error });
        // An origin that hangs refuses no block of the run more than another.
        if error != DeviceError::TimedOut {
            go_alone_if_bridged(lane, run);
            break_in_two(lane, run);
        }
        drop_run(lane, run, Some(error), cx);
        return;
    }
    if let Some(buf) = lane.runs[run].buf.take() {
        cx.free(buf, buffer_blocks(blocks));
    }
    cx.delta.origins[origin].gauge.reach.wrote(cx.now.since_ns(lane.runs[run].began));
    if cx.facts.planted(Canary::CleanEarly) {
        cx.delta.tell(Up::RunDropped { origin });
        run_flushed(lane, run, Ok(()), cx);
        return;
    }
    cx.delta.tell(Up::RunWritten { lane: lane.id, run, origin, blocks });
}

/// The origin may refuse a clean block that was only bridged. The dirty blocks are tried without
/// it.
fn go_alone_if_bridged(lane: &mut Lane, run: usize) {
    let Run { first, versions, .. } = &lane.runs[run];
    let range = || (first.0..first.0 + versions.len() as u64).map(Flat);
    let dirty = |flat: &Flat| lane.store.get(*flat).is_some_and(|found| found.dirty);
    if !range().all(|flat| dirty(&flat)) {
        range().filter(dirty).for_each(|flat| lane.trouble.must_be_alone(flat));
    }
}

/// Breaks a run in two: the origin may refuse one block of many. Each half is tried by itself the
/// next time. But a half isn't broken again before the other half is on the origin. Without this
/// rule a full thin volume, which refuses everything, would get a run for each block.
fn break_in_two(lane: &mut Lane, run: usize) {
    let Run { first, versions, .. } = &lane.runs[run];
    let (blocks, end) = (versions.len() as u64, Flat(first.0 + versions.len() as u64));
    let halved = |flat: Flat, beside: u64| lane.trouble.breaks_at(flat) && is_dirty(lane, Flat(beside));
    if blocks > 1 && !halved(*first, first.0.wrapping_sub(1)) && !halved(end, end.0) {
        lane.trouble.break_at(Flat(first.0 + blocks / 2));
    }
}

fn is_dirty(lane: &Lane, flat: Flat) -> bool {
    lane.store.is_dirty(flat)
}

/// The origin has taken these blocks: runs no longer end where they were broken, except beside a
/// block that is still dirty.
fn forget_breaks(lane: &mut Lane, first: Flat, end: Flat) {
    let from = if first.0 > 0 && is_dirty(lane, Flat(first.0 - 1)) { first.next() } else { first };
    let to = if is_dirty(lane, end) { end } else { end.next() };
    lane.trouble.written(from, to);
}

/// The origin's flush after the run's write is over.
pub(crate) fn run_flushed(lane: &mut Lane, run: usize, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
    let origin = cx.facts.origin_of(lane.runs[run].first);
    // Another flush may have failed since the run's write began, and the origin may have dropped
    // that write (ADR 0022).
    let doubtful = lane.runs[run].failed_flushes != cx.delta.origins[origin].flush.failures();
    let result = if doubtful { result.and(Err(DeviceError::Io)) } else { result };
    if let Err(error) = result {
        cx.delta.tell(Up::RunFlushed { origin, cleaned: 0 });
        cx.delta.tell(Up::DestageFailed { origin, error });
        drop_run(lane, run, Some(error), cx);
        return;
    }
    let (first, versions) = end_run(lane, run, cx);
    let end = Flat(first.0 + versions.len() as u64);
    let mut cleaned = 0;
    for (flat, (slot, _)) in (first.0..).map(Flat).zip(versions) {
        // Only a block that hasn't been rewritten becomes clean: a newer version is in another
        // slot.
        if lane.eras.is_some() && slot != NO_SLOT {
            version_over(lane, flat, slot, cx);
        }
        let unlooked = cx.facts.planted(Canary::CleanWithoutLook);
        let found = lane.store.get(flat).filter(|found| found.dirty && (found.slot == slot || unlooked));
        if let Some(Found { slot, .. }) = found {
            lane.clean(flat, slot, cx);
            lane.log.note_cleaned(flat, slot, cx.now);
            cleaned += 1;
        }
    }
    cx.delta.counters.destaged_blocks += cleaned;
    cx.delta.tell(Up::RunFlushed { origin, cleaned });
    forget_breaks(lane, first, end);
    resume_awaiting_clean(lane, cx);
}

/// Gives up a run; its blocks stay dirty. `failed` is the error of its origin, if there is one.
fn drop_run(lane: &mut Lane, run: usize, failed: Option<DeviceError>, cx: &mut Cx<'_>) {
    if lane.runs[run].buf.is_some() {
        let origin = cx.facts.origin_of(lane.runs[run].first);
        cx.delta.tell(Up::RunDropped { origin });
    }
    let (first, versions) = end_run(lane, run, cx);
    let end = Flat(first.0 + versions.len() as u64);
    if let Some(error) = failed {
        // Pieces that wait for blocks that can't be read or written now must not wait for ever.
        fail_awaiting_clean(lane, first, end, error, cx);
        give_back(lane, versions.iter().map(|version| version.0).filter(|slot| *slot != NO_SLOT));
    }
    resume_awaiting_clean(lane, cx);
}

/// Lets go of a segment that is to become free, and that all blocks have left. The origin may give
/// no answer for long. So runs that have read their blocks needn't hold the segment until the
/// origin has them. Such a version is nowhere in the log any more, and nothing else is taken for
/// it.
pub(crate) fn let_go_of(lane: &mut Lane, segment: u32) {
    let segment_slots = lane.log.segment_slots();
    if lane.log.segment(segment).pins == 0 {
        return;
    }
    for (_, run) in lane.runs.iter_mut().filter(|(_, run)| run.pending == 0) {
        for (slot, _) in &mut run.versions {
            if *slot != NO_SLOT && *slot / segment_slots == segment {
                lane.log.unpin(*slot);
                *slot = NO_SLOT;
            }
        }
    }
}

fn end_run(lane: &mut Lane, run: usize, cx: &mut Cx<'_>) -> (Flat, Vec<(u32, u32)>) {
    let run = lane.runs.remove(run);
    lane.run_ranges.remove(&run.first);
    for &(slot, _) in run.versions.iter().filter(|version| version.0 != NO_SLOT) {
        lane.log.unpin(slot);
    }
    if let Some(buf) = run.buf {
        cx.free(buf, buffer_blocks(run.versions.len() as u32));
    }
    (run.first, run.versions)
}
