// SPDX-License-Identifier: MIT OR Apache-2.0
//! When an open commit is sealed, what is written then, and what follows when it is.

use alloc::vec::Vec;

use super::log::{CLEANED_WAITING_MAX, For, Note, Put, Sealed};
use crate::act::commit::open;
use crate::act::commit::unproven::{await_proof, hurry_proof};
use crate::act::mirror::Copied;
use crate::act::reclaim::stuck::full_of_lost;
use crate::cx::{Cx, blocks_span};
use crate::fact::event::Event;
use crate::fact::io::{DeviceError, Op};
use crate::format::{COMMIT_ENTRIES_MAX, CommitHeader, Entry, Stream};
use crate::lane::Lane;
use crate::organ::flying::LaneIo;
use crate::organ::measured::Measured;
use crate::organ::members::MembersState;

/// Seals the open commit of a stream if it is full, and no more are in flight than may be. Else the
/// commit waits for one of those. So a device that says of many at once that they are done has the
/// next at once.
pub(crate) fn seal_full(lane: &mut Lane, stream: Stream, cx: &mut Cx<'_>) {
    if lane.log.has_full(stream) && !lane.log.is_deep() {
        seal(lane, stream, cx);
    }
}

/// Seals the open commit of a stream and writes it.
pub(crate) fn seal(lane: &mut Lane, stream: Stream, cx: &mut Cx<'_>) {
    if lane.log.tails[stream as usize].open.is_none() {
        return;
    }
    if stream == Stream::Promoted && lane.log.takes_no_unproven() {
        // The commit stays open until an unproven one is proven.
        hurry_proof(lane, cx);
        return;
    }
    seal_now(lane, stream, cx);
}

fn seal_now(lane: &mut Lane, stream: Stream, cx: &mut Cx<'_>) {
    if cx.cache_failed() {
        // It stays open, so that its blocks can still be read.
        return;
    }
    let log = &mut lane.log;
    let Some(open) = log.tails[stream as usize].open.take() else { return };
    let first = open.header_slot + 1;
    let mut entries = Vec::with_capacity(open.blocks.len() + 8);
    for (slot, &Put { flat, dirty, checksum, era, superseded }) in (first..).zip(&open.blocks) {
        let key = cx.facts.key(flat);
        // An older version may be needed, too.
        let held = || lane.eras.as_ref().is_some_and(|eras| eras.era_of(flat, slot).is_some());
        entries.push(match (superseded, dirty) {
            (false, true) => Entry::Dirty { key, checksum, era },
            (true, true) if held() => Entry::Dirty { key, checksum, era },
            (true, _) => Entry::Dead,
            (false, false) => Entry::Clean { key, checksum },
        });
    }
    if stream == Stream::Writes {
        while entries.len() < COMMIT_ENTRIES_MAX
            && let Some(note) = log.notes.pop_front()
        {
            // Entries come after the blocks of their commit: a block that has come back is left
            // alone.
            match note {
                Note::Entry(entry) => entries.push(entry),
                Note::Dropped(flat) if lane.store.get(flat).is_some() => {}
                Note::Dropped(flat) => entries.push(Entry::Invalidate { key: cx.facts.key(flat), blocks: 1 }),
            }
        }
        while entries.len() < COMMIT_ENTRIES_MAX
            && let Some((flat, slot)) = log.cleaned.pop_front()
        {
            // Only what is still so: the slot may hold a newer, dirty version of the block by
            // now.
            if lane.store.get(flat).is_some_and(|found| found.slot == slot && !found.dirty) {
                entries.push(Entry::Cleaned { key: cx.facts.key(flat), slot });
                if cx.delta.members.state != MembersState::Single {
                    log.cleaned_sealed.push_back((log.next_seq, flat));
                }
            }
        }
        if log.cleaned.is_empty() {
            log.cleaned_since = None;
            log.cleaned.shrink_to(CLEANED_WAITING_MAX);
        }
    }
    let blocks = open.blocks.len() as u32;
    log.tails[stream as usize].used = first + blocks - first / log.segment_slots * log.segment_slots;
    let seq = log.next_seq;
    log.next_seq += 1;
    log.segment_of(first).last_seq = seq;
    if stream == Stream::Promoted {
        let blocks = open.blocks.iter().map(|block| block.flat).collect();
        await_proof(lane, seq, first, blocks, cx);
    }
    let log = &mut lane.log;
    let header = CommitHeader {
        cache_tag: cx.facts.cache_tag,
        epoch: log.epoch,
        seq,
        durable_seq: log.durable_seq,
        heads: log.heads(),
        next_segment: log.segment_after_head(stream as usize),
        lane: lane.id as u16,
        stream: stream as u8,
        unproven: log.count_unproven(),
        entries,
    };
    header.encode_into(cx.mem.bytes_mut(blocks_span(open.buf, 0, 1)));
    if stream == Stream::Writes && log.notes.is_empty() {
        for waiter in core::mem::take(&mut log.unsealed_waiters) {
            log.set_aside(waiter, seq);
        }
    }
    log.sealed.push_back(Sealed {
        seq,
        buf: open.buf,
        header_slot: open.header_slot,
        blocks,
        sealed_at: cx.now,
        written: false,
    });
    cx.delta.counters.commits += 1;
    let io = lane.ios.insert(LaneIo::Commit { seq });
    let offset = lane.offset_of(open.header_slot, cx);
    cx.delta.measure(Measured::CommitBegan, cx.now);
    let copied = if stream == Stream::Writes { Copied::All } else { Copied::Header };
    cx.cache_write(lane.id, io, offset, blocks_span(open.buf, 0, blocks + 1), copied);
}

/// A commit is written: its buffer is free, and full commits that waited for its place are sealed.
pub(crate) fn commit_done(lane: &mut Lane, seq: u64, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
    let log = &mut lane.log;
    let Some(nth) = log.sealed.iter().position(|sealed| sealed.seq == seq) else { return };
    cx.delta.gauge.commit_ended(result.is_ok(), cx.now);
    if let Err(error) = result {
        // The buffer stays, so that its blocks can still be read; nothing more is written.
        let offset = cx.facts.superblock.slot_offset(lane.id as u32, log.sealed[nth].header_slot);
        cx.event(Event::DeviceFailed { device: cx.lead(), op: Op::Write, offset, error });
        cx.fail_member(cx.lead());
        return;
    }
    log.sealed[nth].written = true;
    log.note_write(cx.now.since_ns(log.sealed[nth].sealed_at));
    log.depth.ended(log.sealed[nth].sealed_at, log.sealed.len(), cx.delta.gauge.reads.are_in_flight(), cx.now);
    while let Some(sealed) = log.sealed.front().filter(|sealed| sealed.written) {
        log.written_seq = sealed.seq;
        cx.free(sealed.buf, log.commit_blocks());
        log.sealed.pop_front();
    }
    // The place is for who was there first: else writes would have each.
    let mut streams = Stream::ALL;
    streams.sort_unstable_by_key(|stream| log.tails[*stream as usize].open.as_ref().map(|open| open.since));
    for stream in streams {
        seal_full(lane, stream, cx);
    }
}

/// Seals what somebody waits for, or what has waited long enough.
pub(crate) fn commit_step(lane: &mut Lane, cx: &mut Cx<'_>) {
    let log = &mut lane.log;
    if cx.cache_failed() {
        return;
    }
    let due = log.commit_due(cx.facts.options.commit_age_max_ns).is_some_and(|due| due <= cx.now);
    let waited_for = !log.unsealed_waiters.is_empty() || !log.notes.is_empty();
    let in_flight = log.group_seq > log.durable_seq;
    let crowded = log.cleaned.len() >= CLEANED_WAITING_MAX;
    let is_awaited = |entry: &Entry| matches!(entry, Entry::Freed { .. } | Entry::Sent { .. } | Entry::Group { .. });
    let frees = log.notes.iter().any(|note| matches!(note, Note::Entry(entry) if is_awaited(entry)));
    let frees = frees || (waited_for && full_of_lost(lane, cx));
    let log = &lane.log;
    let wanted = (due || crowded) && !log.is_deep() || waited_for && !in_flight;
    if !wanted {
        return;
    }
    let full = log.has_full(Stream::Writes);
    if full {
        seal_now(lane, Stream::Writes, cx);
    }
    // Which may have had no room for what is to be noted.
    let noted = full && lane.log.unsealed_waiters.is_empty() && lane.log.notes.is_empty();
    // A commit that is open needs no room to be sealed. At a stop nothing makes room any more, and
    // a commit without blocks leaves as many empty segments as before. Torture found a stop that
    // never ended (seed 1795940652708, breaks=30).
    let needs_none = frees || cx.facts.stopping || lane.log.tails[Stream::Writes as usize].open.is_some();
    let sealed = noted || open(lane, Stream::Writes, if needs_none { For::Freed } else { For::Cleaning }, cx);
    if sealed && !noted {
        seal_now(lane, Stream::Writes, cx);
    }
    if sealed && waited_for {
        lane.log.group_seq = lane.log.last_sealed();
    }
}

/// Seals every stream's open commit: for a stop or a checkpoint.
pub(crate) fn seal_all(lane: &mut Lane, cx: &mut Cx<'_>) {
    for stream in Stream::ALL {
        seal(lane, stream, cx);
    }
}
