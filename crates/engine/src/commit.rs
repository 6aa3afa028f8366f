// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log of a lane: blocks are appended to open commits in RAM, which are sealed when they are full and a place in flight is free, written, and
//! made durable in order.
//!
//! Rules, each needed by recovery (docs/format.md):
//! - A commit's number is given when it is sealed; its entries are judged then, so that a block
//!   superseded in the meantime (perhaps in another stream) is written as dead.
//! - Each header says where every stream's next commit will start, so that replay can follow the
//!   log without searching. A stream therefore always has its next segment reserved.
//! - A clean block is committed only when its content is durable on the origin: promoted blocks wait
//!   for the origin's flush if anything was written there directly.
//! - A FLUSH that comes while a commit made for FLUSHes is in flight shares the next one.

mod depth;
mod durable;
mod log;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::canary::Canary;
use crate::event::Event;
use crate::format::{COMMIT_ENTRIES_MAX, CommitHeader, Entry, STREAMS, Stream};
use crate::index::{Flat, Found};
use crate::io::{DeviceError, Op};
use crate::lane::{Lane, LaneIo};
use crate::measured::Measured;
use crate::memory::{Buf, Span};
use crate::mirror::Copied;
use crate::policy::{HITS_MAX, Zone};
use crate::shared::{Cx, FlushWaiter, Origin, blocks_span};
use crate::types::{BLOCK_BYTES, SegmentId, Time};
use depth::Depth;

/// Commits of a lane at once, of so many lanes: those in flight, one for each stream, and one for "freed" entries alone.
pub(crate) const fn commits_most(lanes: u32) -> usize {
    Depth::most(lanes) + STREAMS + 1
}

/// A rest of a segment smaller than this is not used: a header would take a quarter of it or more.
const USABLE_SLOTS_MIN: u32 = 4;
/// Free segments that only "freed" entries may use, so that reclaim can always go on, and that after
/// a crash there are enough to start with: the three next ones of the streams and three of these.
const META_SEGMENTS: usize = 4;
/// Free segments that promotion and survivors leave to writes; below the watermark of reclaim.
const WRITES_SEGMENTS: usize = META_SEGMENTS + 2;
/// "Cleaned" entries that may wait for a commit before one is written for them alone. While as many are in flight as may be there
/// is none: then commits are opened for half as many blocks, and take as many of these entries. A segment of 1 MiB
/// holds 252 blocks in two such commits, as it does in one.
const CLEANED_WAITING_MAX: usize = COMMIT_ENTRIES_MAX;
/// Commits that may be written without a flush of the cache device, which bounds what replay
/// has to verify.
const UNFLUSHED_COMMITS_MAX: u64 = 64;

/// What a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Empty and ready.
    Free,
    /// A stream's open or next segment.
    Open,
    /// Full.
    Closed,
    /// Under reclaim.
    Victim,
    /// Given up; the entry that says so is not durable yet, or a read of it is in flight.
    Freeing,
}

/// A segment at run time.
#[derive(Clone, Copy)]
pub(crate) struct Segment {
    /// Blocks of it in the index.
    pub(crate) live: u32,
    /// Dirty ones among them.
    pub(crate) dirty: u32,
    /// Reads and destage runs that need it to stay.
    pub(crate) pins: u32,
    /// Its blocks are on both members of a mirrored cache.
    pub(crate) mirrored: bool,
    pub(crate) state: State,
    /// What it is filled with.
    pub(crate) zone: Zone,
    /// Its last commit.
    pub(crate) last_seq: u64,
    /// Blocks that were put in it because one beside them missed.
    pub(crate) neighbours: u32,
}

impl Segment {
    /// Whether most of its slots, of so many, were filled with neighbours.
    pub(crate) const fn is_of_neighbours(&self, slots: u32) -> bool {
        self.neighbours > slots / 2
    }
}

/// Who waits for a commit to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// A FLUSH.
    Request(usize),
    /// A durable write.
    Piece(usize),
    /// A direct write whose range was dropped from the cache.
    Invalidated(usize),
    /// A direct write that replaced lost blocks.
    Replaced(usize),
    /// A segment that was freed.
    Freed(u32),
    /// A destage run whose blocks must not reach the origin before.
    Run(usize),
    /// A damaged clean block that was dropped.
    Dropped(Flat),
}

/// Where a block's bytes are right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a commit that is not written yet.
    Ram(Buf, u32),
    Device,
}

/// An entry without a block, to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Note {
    /// About a range that is locked until this is durable, or about a segment.
    Entry(Entry),
    /// A block was dropped because it was damaged; it may come back at any time.
    Dropped(Flat),
}

struct Open {
    buf: Buf,
    /// Slots that it may take, with the header's.
    size: u32,
    header_slot: u32,
    /// One per data block, in slot order.
    blocks: Vec<(Flat, bool, u32)>,
    since: Time,
}

impl Open {
    fn is_full(&self) -> bool {
        self.blocks.len() as u32 + 1 == self.size
    }
}

struct Sealed {
    seq: u64,
    buf: Buf,
    header_slot: u32,
    blocks: u32,
    sealed_at: Time,
    written: bool,
}

#[derive(Default)]
struct Tail {
    segment: Option<u32>,
    /// Slots of the segment that are used.
    used: u32,
    next_segment: Option<u32>,
    open: Option<Open>,
    /// The open commit takes no more and waits for this many origins' flushes.
    awaited_flushes: u32,
    /// One of them failed.
    flush_failed: bool,
}

/// The log of one lane.
pub(crate) struct Log {
    segment_slots: u32,
    pub(crate) segments: Vec<Segment>,
    free: VecDeque<u32>,
    tails: [Tail; STREAMS],
    sealed: VecDeque<Sealed>,
    depth: Depth,
    commits_most: usize,
    pub(crate) epoch: u64,
    pub(crate) next_seq: u64,
    pub(crate) written_seq: u64,
    pub(crate) durable_seq: u64,
    /// What the flush of the cache device in flight will make durable.
    pub(crate) flushing_seq: u64,
    waiters: BTreeMap<u64, Vec<Waiter>>,
    /// Those who wait for what is in no sealed commit yet.
    unsealed_waiters: Vec<Waiter>,
    /// Entries without blocks, for the next commit.
    notes: VecDeque<Note>,
    cleaned: VecDeque<(Flat, u32)>,
    cleaned_since: Option<Time>,
    /// The last commit that was sealed because somebody waited.
    group_seq: u64,
    /// Segments filled, ever, and when the last checkpoint was finished.
    filled: u64,
    filled_at_checkpoint: u64,
}

impl Lane {
    /// Appends a dirty block, of which the index knows this, to the writes and maps it there; false if there is no room now.
    pub(crate) fn append_write(&mut self, flat: Flat, found: Option<Found>, from: Span, cx: &mut Cx<'_>) -> bool {
        if cx.shared.cache_failed {
            return false;
        }
        if found.is_some_and(|found| self.overwrite_in_place(flat, found, from, cx)) {
            return true;
        }
        if !self.open(Stream::Writes, false, cx) {
            return false;
        }
        let hits = match found {
            None => self.policy.write_missed(flat.0),
            Some(found) => self.policy.rewritten(self.log.segment_of(found.slot).zone, found.hits),
        };
        self.append(Stream::Writes, flat, true, hits, from, cx)
    }

    /// Appends a block to a stream and maps it there; false if there is no room now.
    pub(crate) fn append(
        &mut self,
        stream: Stream,
        flat: Flat,
        dirty: bool,
        hits: u8,
        from: Span,
        cx: &mut Cx<'_>,
    ) -> bool {
        if cx.shared.cache_failed || !self.open(stream, false, cx) {
            return false;
        }
        let Some(open) = self.log.tails[stream as usize].open.as_mut() else { return false };
        let place = open.blocks.len() as u32 + 1;
        let slot = open.header_slot + place;
        let buf = open.buf;
        let checksum = cx.shared.seal(flat, cx.mem.copy_summed(from, buf, place * BLOCK_BYTES as u32));
        open.blocks.push((flat, dirty, checksum));
        let checksum = self.index.kept(checksum);
        self.map(flat, Found { slot, dirty, hits, checksum }, cx);
        self.seal_full(stream, cx);
        true
    }

    /// A dirty block that is still in the open commit is rewritten there.
    fn overwrite_in_place(&mut self, flat: Flat, found: Found, from: Span, cx: &mut Cx<'_>) -> bool {
        let Some(open) = self.log.tails[Stream::Writes as usize].open.as_mut() else { return false };
        let place = found.slot.wrapping_sub(open.header_slot);
        if found.slot <= open.header_slot || place > open.blocks.len() as u32 {
            return false;
        }
        let checksum = cx.shared.seal(flat, cx.mem.copy_summed(from, open.buf, place * BLOCK_BYTES as u32));
        open.blocks[place as usize - 1].2 = checksum;
        let checksum = self.index.kept(checksum);
        let hits = (found.hits + 1).min(HITS_MAX);
        self.index.insert(flat, Found { checksum, hits, ..found });
        self.rewritten.insert(flat);
        true
    }

    /// Makes sure that the stream has an open commit with room. `privileged`: may use the segments
    /// kept for "freed" entries.
    fn open(&mut self, stream: Stream, privileged: bool, cx: &mut Cx<'_>) -> bool {
        let log = &mut self.log;
        let buffer_blocks = log.commit_blocks();
        let tail = &log.tails[stream as usize];
        if let Some(open) = &tail.open {
            return tail.awaited_flushes == 0 && !open.is_full();
        }
        // The last place is for "freed" entries.
        if cx.shared.cache_failed || log.commits() + usize::from(!privileged) >= log.commits_most {
            return false;
        }
        let full = tail.used + USABLE_SLOTS_MIN > log.segment_slots;
        let enough = match stream {
            _ if privileged => !full || !log.free.is_empty(),
            // Also a segment that a privileged commit took from the reserve is kept for its like.
            Stream::Writes => log.free.len() >= META_SEGMENTS + usize::from(full),
            Stream::Promoted | Stream::Survivors => !full || log.free.len() > WRITES_SEGMENTS,
        };
        if !enough {
            return false;
        }
        if full {
            let next = log.take_free(stream as usize);
            let tail = &mut log.tails[stream as usize];
            let full = core::mem::replace(&mut tail.segment, core::mem::replace(&mut tail.next_segment, next));
            tail.used = 0;
            if let Some(full) = full {
                let segment = &mut log.segments[full as usize];
                segment.state = State::Closed;
                self.policy.sealed(SegmentId(full), segment.zone);
                self.reclaim.sparse.filled(full, segment.live, log.segment_slots);
                log.filled += 1;
            }
        }
        let tail = &mut log.tails[stream as usize];
        let Some(segment) = tail.segment else { return false };
        let crowded = stream == Stream::Writes && log.cleaned.len() >= CLEANED_WAITING_MAX;
        let blocks_max = if crowded { COMMIT_ENTRIES_MAX / 2 } else { COMMIT_ENTRIES_MAX };
        let size = (log.segment_slots - tail.used).min(blocks_max as u32 + 1);
        let header_slot = segment * log.segment_slots + tail.used;
        if !cx.shared.planted(Canary::StaleInRam) {
            self.ram_front.forget(header_slot..header_slot + size);
        }
        tail.open = Some(Open {
            buf: cx.alloc(buffer_blocks),
            size,
            header_slot,
            blocks: Vec::with_capacity(size as usize - 1),
            since: cx.now,
        });
        true
    }

    /// Seals the open commit of a stream if it is full, and no more are in flight than may be: else it waits for one of those, so that a device that
    /// says of many at once that they are done has the next at once.
    fn seal_full(&mut self, stream: Stream, cx: &mut Cx<'_>) {
        if self.log.has_full(stream) && !self.log.is_deep() {
            self.seal(stream, cx);
        }
    }

    /// Seals the open commit of a stream and writes it.
    pub(crate) fn seal(&mut self, stream: Stream, cx: &mut Cx<'_>) {
        let tail = &mut self.log.tails[stream as usize];
        if tail.open.is_none() || tail.awaited_flushes > 0 {
            return;
        }
        if stream == Stream::Promoted && !cx.shared.planted(Canary::FillNotFlushed) {
            let waiter = FlushWaiter::Promoted(self.id);
            let waits = |origin: &mut Origin| u32::from(origin.await_durable(waiter));
            tail.awaited_flushes = cx.shared.origins.iter_mut().map(waits).sum();
            if tail.awaited_flushes > 0 {
                return;
            }
        }
        self.seal_now(stream, cx);
    }

    /// An origin's flush that promoted blocks waited for is over. Nothing was appended meanwhile, so
    /// it covers them; if it failed they are dropped.
    pub(crate) fn promoted_flushed(&mut self, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
        let tail = &mut self.log.tails[Stream::Promoted as usize];
        tail.awaited_flushes -= 1;
        tail.flush_failed |= result.is_err();
        if tail.awaited_flushes > 0 {
            return;
        }
        if core::mem::take(&mut tail.flush_failed) {
            let (first, blocks) = match &tail.open {
                Some(open) => (open.header_slot + 1, open.blocks.iter().map(|block| block.0).collect::<Vec<_>>()),
                None => return,
            };
            for (slot, flat) in (first..).zip(blocks) {
                if self.index.get(flat).is_some_and(|found| found.slot == slot) {
                    self.unmap(flat, cx);
                }
            }
        }
        self.seal_now(Stream::Promoted, cx);
    }

    fn seal_now(&mut self, stream: Stream, cx: &mut Cx<'_>) {
        if cx.shared.cache_failed {
            // It stays open, so that its blocks can still be read.
            return;
        }
        let log = &mut self.log;
        let Some(open) = log.tails[stream as usize].open.take() else { return };
        let first = open.header_slot + 1;
        let mut entries = Vec::with_capacity(open.blocks.len() + 8);
        for (nth, &(flat, dirty, checksum)) in open.blocks.iter().enumerate() {
            let current = self.index.get(flat).is_some_and(|found| found.slot == first + nth as u32);
            let key = cx.shared.key(flat);
            entries.push(match (current, dirty) {
                (false, _) => Entry::Dead,
                (true, true) => Entry::Dirty { key, checksum },
                (true, false) => Entry::Clean { key, checksum },
            });
        }
        if stream == Stream::Writes {
            while entries.len() < COMMIT_ENTRIES_MAX
                && let Some(note) = log.notes.pop_front()
            {
                // Entries come after the blocks of their commit: a block that has come back is left alone.
                match note {
                    Note::Entry(entry) => entries.push(entry),
                    Note::Dropped(flat) if self.index.get(flat).is_some() => {}
                    Note::Dropped(flat) => entries.push(Entry::Invalidate { key: cx.shared.key(flat), blocks: 1 }),
                }
            }
            while entries.len() < COMMIT_ENTRIES_MAX
                && let Some((flat, slot)) = log.cleaned.pop_front()
            {
                // Only what is still so: the slot may hold a newer, dirty version of the block by now.
                if self.index.get(flat).is_some_and(|found| found.slot == slot && !found.dirty) {
                    entries.push(Entry::Cleaned { key: cx.shared.key(flat), slot });
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
        let header = CommitHeader {
            cache_tag: cx.shared.cache_tag,
            epoch: log.epoch,
            seq,
            durable_seq: log.durable_seq,
            heads: log.heads(),
            next_segment: log.segment_after_head(stream as usize),
            lane: self.id as u16,
            stream: stream as u8,
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
        cx.shared.counters.commits += 1;
        let io = self.ios.insert(LaneIo::Commit { seq });
        let offset = cx.shared.superblock.slot_offset(self.id as u32, open.header_slot);
        cx.shared.measure(Measured::CommitBegan, cx.now);
        let copied = if stream == Stream::Writes { Copied::All } else { Copied::Header };
        cx.cache_write(self.id, io, offset, blocks_span(open.buf, 0, blocks + 1), copied);
    }

    pub(crate) fn commit_done(&mut self, seq: u64, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
        let log = &mut self.log;
        let Some(at) = log.sealed.iter().position(|sealed| sealed.seq == seq) else { return };
        cx.shared.gauge.commit_ended(result.is_ok(), cx.now);
        if let Err(error) = result {
            // The buffer stays, so that its blocks can still be read; nothing more is written.
            let offset = cx.shared.superblock.slot_offset(self.id as u32, log.sealed[at].header_slot);
            cx.event(Event::DeviceFailed { device: cx.lead(), op: Op::Write, offset, error });
            cx.fail_member(cx.lead());
            return;
        }
        log.sealed[at].written = true;
        log.depth.ended(log.sealed[at].sealed_at, log.sealed.len(), cx.shared.gauge.reads.are_in_flight(), cx.now);
        while let Some(sealed) = log.sealed.front().filter(|sealed| sealed.written) {
            log.written_seq = sealed.seq;
            cx.free(sealed.buf, log.commit_blocks());
            log.sealed.pop_front();
        }
        // The place is for who was there first: else writes would have each.
        let mut streams = Stream::ALL;
        streams.sort_unstable_by_key(|stream| log.tails[*stream as usize].open.as_ref().map(|open| open.since));
        for stream in streams {
            self.seal_full(stream, cx);
        }
    }

    /// Seals what somebody waits for, or what has waited long enough.
    pub(crate) fn commit_step(&mut self, cx: &mut Cx<'_>) {
        let log = &mut self.log;
        if cx.shared.cache_failed {
            return;
        }
        let due = log.commit_due(cx.shared.options.commit_age_max_ns).is_some_and(|due| due <= cx.now);
        let waited_for = !log.unsealed_waiters.is_empty() || !log.notes.is_empty();
        let in_flight = log.group_seq > log.durable_seq;
        let crowded = log.cleaned.len() >= CLEANED_WAITING_MAX;
        let frees = log.notes.iter().any(|note| matches!(note, Note::Entry(Entry::Freed { .. })));
        let frees = frees || (waited_for && self.full_of_lost(cx));
        let log = &self.log;
        let wanted = (due || crowded) && !log.is_deep() || waited_for && !in_flight;
        if !wanted {
            return;
        }
        let full = log.has_full(Stream::Writes);
        if full {
            self.seal_now(Stream::Writes, cx);
        }
        // Which may have had no room for what is to be noted.
        let noted = full && self.log.unsealed_waiters.is_empty() && self.log.notes.is_empty();
        let sealed = noted || self.open(Stream::Writes, frees, cx);
        if sealed && !noted {
            self.seal_now(Stream::Writes, cx);
        }
        if sealed && waited_for {
            self.log.group_seq = self.log.last_sealed();
        }
    }

    /// Seals every stream's open commit: for a stop or a checkpoint.
    pub(crate) fn seal_all(&mut self, cx: &mut Cx<'_>) {
        for stream in Stream::ALL {
            self.seal(stream, cx);
        }
    }
}
