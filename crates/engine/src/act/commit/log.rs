// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log of a lane: its segments, the heads of its streams, its open and sealed commits, and
//! their waiters.
//!
//! Invariant: a slot belongs to one segment, and a segment is free only when nothing in it is live
//! (checked by `check`).

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::depth::Depth;
use super::end::End;
use super::proofs::Unproven;
use crate::fact::memory::Buf;
use crate::fact::types::{BLOCK_BYTES, Time};
use crate::format::{COMMIT_ENTRIES_MAX, Entry, NO_SLOT, STREAMS, Stream, Superblock};
use crate::organ::index::Flat;
use crate::organ::segment::{Segment, SegmentState};
use crate::organ::waiter::Waiter;
use crate::policy::Zone;

/// The most commits of a lane at once, where there are `lanes` lanes. These are the commits in
/// flight, one for each stream, and one for "freed" entries alone.
pub(crate) const fn commits_most(lanes: u32) -> usize {
    Depth::most(lanes) + STREAMS + 1
}

/// The fewest slots at the end of a segment that are used. In fewer slots a header would take a
/// quarter of them or more.
pub(super) const USABLE_SLOTS_MIN: u32 = 4;
/// Free segments that a crash needs. An opening gives each stream two segments in which nothing is
/// live. It finds the streams' next segments, and these. No segment with live blocks may be begun
/// while there are fewer.
pub(super) const CRASH_SEGMENTS: usize = STREAMS;
/// Free segments that only "freed" entries may use, so that reclaim can always go on: one more,
/// which they may begin.
pub(super) const META_SEGMENTS: usize = CRASH_SEGMENTS + 1;
/// Free segments that clients' writes leave to dirty blocks that reclaim moves. With one such
/// segment reclaim gains as much as it moves, again and again, also where nothing can be destaged.
pub(super) const MOVES_SEGMENTS: usize = 1;
/// Free segments that promotion and survivors leave to writes; below the watermark of reclaim.
pub(super) const WRITES_SEGMENTS: usize = META_SEGMENTS + MOVES_SEGMENTS + 1;
/// "Cleaned" entries that may wait for a commit before a commit is written for them alone. No such
/// commit is written while as many commits are in flight as may be. Then commits are opened for
/// half as many blocks, and take as many of these entries. A segment of 1 MiB holds 252 blocks in
/// two such commits, as it does in one.
pub(super) const CLEANED_WAITING_MAX: usize = COMMIT_ENTRIES_MAX;
/// Commits that may be written without a flush of the cache device. This bounds how much replay has
/// to verify.
pub(super) const UNFLUSHED_COMMITS_MAX: u64 = 64;

/// What a commit of the writes is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// "Freed" entries.
    Freed,
    /// Dirty blocks that are moved where nothing can be destaged: this makes room, too.
    Moves,
    /// Blocks of a segment that is cleaned, and entries that something waits for.
    Cleaning,
    /// Clients' blocks, which leave room for cleaning, and all else.
    Clients,
}

impl For {
    /// How many free segments a commit for this needs. `full`: the commit takes one of them.
    pub(super) const fn needs(self, full: bool) -> usize {
        match self {
            Self::Freed => full as usize,
            // Moves may use the rest of a segment also while there are just as many free segments
            // as a crash needs. An opening may have left no more.
            Self::Moves if !full => CRASH_SEGMENTS,
            Self::Moves => META_SEGMENTS + 1,
            Self::Clients | Self::Cleaning => META_SEGMENTS + MOVES_SEGMENTS + full as usize,
        }
    }
}

/// Where a block's bytes are right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bytes {
    /// In a commit that is not written yet.
    Ram(Buf, u32),
    OnDevice,
}

/// An entry without a block, to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Note {
    /// About a range that is locked until this is durable, or about a segment.
    Entry(Entry),
    /// A block was dropped because it was damaged; it may come back at any time.
    Dropped(Flat),
}

/// A block in a commit.
pub(super) struct Put {
    pub(super) flat: Flat,
    pub(super) checksum: u32,
    /// The low half of the era that needs a dirty block.
    pub(super) era: u32,
    pub(super) dirty: bool,
    /// The index names another slot for the block by now, or none.
    pub(super) superseded: bool,
}

/// A commit that takes blocks.
pub(super) struct Open {
    pub(super) buf: Buf,
    /// Slots that it may take, with the header's.
    pub(super) size: u32,
    pub(super) header_slot: u32,
    /// An entry for each data block, in slot order.
    pub(super) blocks: Vec<Put>,
    pub(super) since: Time,
}

impl Open {
    pub(super) fn is_full(&self) -> bool {
        self.blocks.len() as u32 + 1 == self.size
    }
}

/// A commit that is being written.
pub(super) struct Sealed {
    pub(super) seq: u64,
    pub(super) buf: Buf,
    pub(super) header_slot: u32,
    pub(super) blocks: u32,
    pub(super) sealed_at: Time,
    pub(super) written: bool,
}

/// An end of the log.
#[derive(Default)]
pub(super) struct Tail {
    pub(super) segment: Option<u32>,
    /// Slots of the segment that are used.
    pub(super) used: u32,
    pub(super) next_segment: Option<u32>,
    pub(super) open: Option<Open>,
}

/// The log of one lane.
pub(crate) struct Log {
    pub(super) segment_slots: u32,
    pub(super) segments: Vec<Segment>,
    /// Free segments. The ones that are to stay empty come last.
    pub(super) free: VecDeque<u32>,
    /// The segments that are to stay empty, while the end of the log is emptied.
    pub(super) end: End,
    pub(super) tails: [Tail; STREAMS],
    pub(super) sealed: VecDeque<Sealed>,
    /// Commits of promoted blocks that replay is not to take yet.
    pub(super) unproven: VecDeque<Unproven>,
    pub(super) depth: Depth,
    pub(super) commits_most: usize,
    pub(crate) epoch: u64,
    pub(crate) next_seq: u64,
    pub(crate) written_seq: u64,
    pub(crate) durable_seq: u64,
    pub(super) waiters: BTreeMap<u64, Vec<Waiter>>,
    /// Waiters for entries that no sealed commit holds yet.
    pub(super) unsealed_waiters: Vec<Waiter>,
    /// Waiters for the record that this cache must not be replayed.
    pub(super) awaiting_record: Vec<Waiter>,
    /// Entries without blocks, for the next commit.
    pub(super) notes: VecDeque<Note>,
    pub(super) cleaned: VecDeque<(Flat, u32)>,
    pub(super) cleaned_since: Option<Time>,
    /// Blocks that commits call clean and that are not durable so yet, with the commits' numbers.
    /// Only a cache on two devices has them.
    pub(super) cleaned_sealed: VecDeque<(u64, Flat)>,
    /// The last commit that was sealed because somebody waited.
    pub(super) group_seq: u64,
    /// Segments filled, ever, and when the last checkpoint was finished.
    pub(super) filled: u64,
    pub(super) filled_at_checkpoint: u64,
}

impl Log {
    pub(crate) fn new(superblock: &Superblock) -> Self {
        // Nothing is free before replay has said so.
        let segment = Segment {
            live: 0,
            dirty: 0,
            pins: 0,
            mirrored: false,
            state: SegmentState::Closed,
            zone: Zone::Main,
            last_seq: 0,
            neighbours: 0,
        };
        Self {
            end: End::default(),
            segment_slots: superblock.segment_blocks,
            segments: alloc::vec![segment; superblock.segments_per_lane as usize],
            free: VecDeque::new(),
            tails: Default::default(),
            sealed: VecDeque::new(),
            unproven: VecDeque::new(),
            depth: Depth::of(superblock.lanes),
            commits_most: commits_most(superblock.lanes),
            epoch: superblock.epoch,
            next_seq: 1,
            written_seq: 0,
            durable_seq: 0,
            waiters: BTreeMap::new(),
            unsealed_waiters: Vec::new(),
            awaiting_record: Vec::new(),
            notes: VecDeque::new(),
            cleaned: VecDeque::new(),
            cleaned_since: None,
            cleaned_sealed: VecDeque::new(),
            group_seq: 0,
            filled: 0,
            filled_at_checkpoint: 0,
        }
    }

    /// Starts the log after replay: commits are numbered from `next_seq`, and each stream gets a
    /// segment and its successor.
    pub(crate) fn start(&mut self, next_seq: u64) {
        self.next_seq = next_seq;
        (self.written_seq, self.durable_seq) = (next_seq - 1, next_seq - 1);
        for (nth, segment) in self.segments.iter_mut().enumerate() {
            segment.state = if segment.live == 0 { SegmentState::Free } else { SegmentState::Closed };
            if segment.live == 0 {
                self.free.push_back(nth as u32);
            }
        }
    }

    /// Gives each stream its two segments; false if there are too few free ones.
    pub(crate) fn open_streams(&mut self) -> bool {
        if self.free.len() < 2 * STREAMS {
            return false;
        }
        for stream in 0..STREAMS {
            let (segment, next) = (self.take_free(stream), self.take_free(stream));
            self.tails[stream] = Tail { segment, next_segment: next, ..Tail::default() };
        }
        true
    }

    /// Whether a stream takes a block now, in its open commit or in one that may be opened. `left`:
    /// free segments that must be left beside those that the stream has to leave.
    pub(crate) fn takes(&self, stream: Stream, what_for: For, left: usize) -> bool {
        let tail = &self.tails[stream as usize];
        if let Some(open) = &tail.open {
            // A commit in the last segment that is kept for moves isn't for other blocks.
            let is_kept = stream == Stream::Writes && self.free.len() < what_for.needs(false) + left;
            return !open.is_full() && !is_kept;
        }
        if self.lacks_commits(what_for) {
            return false;
        }
        let full = self.is_segment_full(stream);
        let free = if full && what_for == For::Clients { self.free_to_clients() } else { self.free.len() };
        match stream {
            // Also a segment that a commit took from the reserve is kept for commits of the same
            // kind.
            Stream::Writes => free >= what_for.needs(full) + left,
            _ if full && what_for == For::Cleaning => free >= what_for.needs(full),
            Stream::Promoted | Stream::Survivors if full => free > WRITES_SEGMENTS + left.min(1),
            Stream::Promoted | Stream::Survivors => tail.used > 0 || free >= CRASH_SEGMENTS,
        }
    }

    /// Whether a stream takes no block because of the commits in flight, which will end.
    pub(crate) fn waits_for_commit(&self, stream: Stream) -> bool {
        let tail = &self.tails[stream as usize];
        let full = tail.open.as_ref().map_or_else(|| self.lacks_commits(For::Cleaning), Open::is_full);
        full && !self.sealed.is_empty()
    }

    /// Whether no buffer is left for a commit. The last one is for "freed" entries.
    fn lacks_commits(&self, what_for: For) -> bool {
        self.commits() + usize::from(what_for != For::Freed) >= self.commits_most
    }

    /// Whether a stream's next commit begins a segment.
    pub(super) fn is_segment_full(&self, stream: Stream) -> bool {
        self.tails[stream as usize].used + USABLE_SLOTS_MIN > self.segment_slots
    }

    /// Whether as many commits are in flight as may be.
    pub(super) fn is_deep(&self) -> bool {
        self.sealed.len() >= self.depth.get()
    }

    /// Whether the log takes no write at this moment because of the commits in flight.
    pub(crate) fn saturated(&self) -> bool {
        self.is_deep() && self.has_full(Stream::Writes)
    }

    /// Whether the open commit of a stream takes no more.
    pub(super) fn has_full(&self, stream: Stream) -> bool {
        self.tails[stream as usize].open.as_ref().is_some_and(Open::is_full)
    }

    /// Commits that have a buffer.
    pub(super) fn commits(&self) -> usize {
        self.sealed.len() + self.tails.iter().filter(|tail| tail.open.is_some()).count()
    }

    /// Blocks of each commit's buffer, however many blocks the commit takes. With buffers of many
    /// sizes each size would want chunks of memory of its own.
    pub(super) fn commit_blocks(&self) -> u32 {
        self.segment_slots.min(COMMIT_ENTRIES_MAX as u32 + 1)
    }

    /// Whether reclaim may move dirty blocks. It may not move them into segments that are kept for
    /// clients' writes.
    pub(crate) fn has_room_to_move(&self) -> bool {
        self.free.len() > WRITES_SEGMENTS
    }

    /// Whether all live blocks of a segment can be moved, if nothing else is written.
    pub(crate) fn has_room_to_clean(&self, segment: &Segment) -> bool {
        // Dirty blocks need a header, and so does a "freed" entry.
        let begins = |stream, slots: u32| usize::from(slots > 0 && slots + 2 > self.rest(stream));
        let (dirty, clean) = (segment.dirty, segment.live - segment.dirty);
        self.free.len() >= For::Cleaning.needs(false) + begins(Stream::Writes, dirty) + begins(Stream::Survivors, clean)
    }

    /// The free segments with which `at_once` segments may be cleaned at once.
    pub(crate) const fn segments_to_clean(&self, at_once: usize) -> usize {
        For::Cleaning.needs(true) + at_once + 1
    }

    /// Slots that are left of a stream's segment.
    fn rest(&self, stream: Stream) -> u32 {
        let tail = &self.tails[stream as usize];
        let filled = |open: &Open| open.header_slot % self.segment_slots + 1 + open.blocks.len() as u32;
        self.segment_slots - tail.open.as_ref().map_or(tail.used, filled)
    }

    /// How many dirty blocks have room to be moved where clients' writes have none. At worst each
    /// block needs a header.
    pub(crate) fn room_to_compact(&self) -> u32 {
        let rest = self.rest(Stream::Writes);
        let rest = if rest < USABLE_SLOTS_MIN { 0 } else { rest };
        let slots = match self.free.len() {
            free if free >= For::Moves.needs(true) => rest + self.segment_slots,
            free if free >= META_SEGMENTS => rest,
            // The "freed" entry of the moved blocks is to find room in the same segment.
            free if free >= For::Moves.needs(false) => rest.saturating_sub(USABLE_SLOTS_MIN),
            _ => 0,
        };
        slots / 2
    }

    /// Memory of the segment table, and of the blocks that wait to be recorded as clean.
    pub(crate) fn bytes(&self) -> u64 {
        let cleaned = self.cleaned.capacity() * size_of::<(Flat, u32)>();
        (self.segments.len() * size_of::<Segment>() + cleaned) as u64
    }

    /// Where a slot's bytes are.
    pub(crate) fn bytes_of(&self, slot: u32) -> Bytes {
        let within = |header: u32, blocks: u32| slot > header && slot - header <= blocks;
        for open in self.tails.iter().filter_map(|tail| tail.open.as_ref()) {
            if within(open.header_slot, open.blocks.len() as u32) {
                return Bytes::Ram(open.buf, (slot - open.header_slot) * BLOCK_BYTES as u32);
            }
        }
        for sealed in &self.sealed {
            if within(sealed.header_slot, sealed.blocks) {
                return Bytes::Ram(sealed.buf, (slot - sealed.header_slot) * BLOCK_BYTES as u32);
            }
        }
        Bytes::OnDevice
    }

    /// Whether a slot is in a commit that is not sealed: its bytes may still change in place.
    pub(crate) fn unsealed(&self, slot: u32) -> bool {
        self.tails
            .iter()
            .filter_map(|tail| tail.open.as_ref())
            .any(|open| slot > open.header_slot && slot - open.header_slot <= open.blocks.len() as u32)
    }

    /// The index names another slot for the block in this one from now on, or none.
    pub(crate) fn supersede(&mut self, slot: u32) {
        for open in self.tails.iter_mut().filter_map(|tail| tail.open.as_mut()) {
            if let Some(put) = open.blocks.get_mut(slot.wrapping_sub(open.header_slot + 1) as usize) {
                put.superseded = true;
            }
        }
    }

    /// The blocks in commits that are not sealed: each with its slot, and whether it is superseded.
    pub(crate) fn unsealed_blocks(&self) -> impl Iterator<Item = (Flat, u32, bool)> {
        let open = self.tails.iter().filter_map(|tail| tail.open.as_ref());
        open.flat_map(|open| {
            (open.header_slot + 1..).zip(&open.blocks).map(|(slot, it)| (it.flat, slot, it.superseded))
        })
    }

    /// Where each stream's next commit will start.
    pub(crate) fn heads(&self) -> [u32; STREAMS] {
        core::array::from_fn(|stream| self.head(stream))
    }

    fn head(&self, stream: usize) -> u32 {
        let tail = &self.tails[stream];
        if let Some(open) = &tail.open {
            return open.header_slot;
        }
        match (tail.segment, tail.next_segment) {
            (Some(segment), _) if tail.used + USABLE_SLOTS_MIN <= self.segment_slots => {
                segment * self.segment_slots + tail.used
            }
            (_, Some(next)) => next * self.segment_slots,
            _ => NO_SLOT,
        }
    }

    /// The segments that the streams will most likely fill behind their heads'.
    pub(crate) fn next_segments(&self) -> [u32; STREAMS] {
        core::array::from_fn(|stream| self.segment_after_head(stream))
    }

    /// The segment that a stream fills behind its head's: its reserved one. If the head is there
    /// already, the next segment that any stream will take.
    pub(super) fn segment_after_head(&self, stream: usize) -> u32 {
        let reserved = self.tails[stream].next_segment;
        let after = reserved.filter(|next| self.head(stream) / self.segment_slots != *next);
        after.or_else(|| self.free.front().copied()).unwrap_or(NO_SLOT)
    }

    /// Puts an entry without a block into the next commit.
    pub(crate) fn note(&mut self, note: Note) {
        self.notes.push_back(note);
    }

    /// Remembers to record that a version is on the origin. If a crash loses this note, that does
    /// no harm.
    pub(crate) fn note_cleaned(&mut self, flat: Flat, slot: u32, now: Time) {
        self.cleaned.push_back((flat, slot));
        self.cleaned_since.get_or_insert(now);
    }

    /// Blocks that are clean, though the log may still end before it says so.
    pub(crate) fn cleaned_lately(&self) -> BTreeSet<Flat> {
        self.cleaned.iter().map(|it| it.0).chain(self.cleaned_sealed.iter().map(|it| it.1)).collect()
    }

    /// Whether the log may still end before the commit that a slot is in.
    pub(crate) fn lacks(&self, slot: u32) -> bool {
        self.last_seq_of([slot].into_iter()) > self.durable_seq || self.unsealed(slot)
    }

    pub(crate) fn last_sealed(&self) -> u64 {
        self.next_seq - 1
    }

    /// When the oldest thing that waits for a commit will have waited long enough.
    pub(crate) fn commit_due(&self, age_max_ns: u64) -> Option<Time> {
        let open = self.tails[Stream::Writes as usize].open.as_ref().map(|open| open.since);
        open.into_iter().chain(self.cleaned_since).min().map(|since| since.plus_ns(age_max_ns))
    }

    /// Whether the cache device should be flushed now.
    pub(crate) fn wants_flush(&self) -> bool {
        let waited_for = self.waiters.first_key_value().is_some_and(|(&seq, _)| seq <= self.written_seq);
        let grouped = self.group_seq > self.durable_seq && self.group_seq <= self.written_seq;
        waited_for || grouped || self.written_seq - self.durable_seq >= UNFLUSHED_COMMITS_MAX
    }

    /// Whether anything is open, sealed and unwritten, or waited for.
    pub(crate) fn quiet(&self) -> bool {
        self.sealed.is_empty()
            && !self.awaits_proof()
            && self.waiters.is_empty()
            && self.unsealed_waiters.is_empty()
            && self.notes.is_empty()
            && self.tails.iter().all(|tail| tail.open.is_none())
    }

    pub(crate) const fn segments_since_checkpoint(&self) -> u64 {
        self.filled - self.filled_at_checkpoint
    }

    pub(crate) const fn mark_checkpoint(&mut self) {
        self.filled_at_checkpoint = self.filled;
    }

    pub(crate) fn set_aside(&mut self, waiter: Waiter, seq: u64) {
        self.waiters.entry(seq).or_default().push(waiter);
    }
}
