// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log of a lane: blocks are appended to open commits in RAM, which are sealed when they are full and a place in flight is free, written, and
//! made durable in order.
//!
//! Rules, each needed by recovery (docs/internals/format.md):
//! - A commit's number is given when it is sealed; its entries are judged then, so that a block
//!   superseded in the meantime (perhaps in another stream) is written as dead.
//! - Each header says where every stream's next commit will start, so that replay can follow the
//!   log without searching. A stream therefore always has its next segment reserved.
//! - Replay takes a clean block only if its content is durable on the origin: a header says of how many commits of promoted blocks that was not
//!   known (see `unproven`).
//! - A FLUSH that comes while a commit made for FLUSHes is in flight shares the next one.

mod depth;
mod durable;
mod log;
mod seal;
mod unproven;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::canary::Canary;
use crate::cx::Cx;
use crate::format::{COMMIT_ENTRIES_MAX, Entry, STREAMS, Stream};
use crate::index::{Flat, Found};
use crate::lane::Lane;
use crate::memory::{Buf, Span};
use crate::organ::members;
use crate::policy::{HITS_MAX, Zone};
use crate::types::{BLOCK_BYTES, SegmentId, Time};
use depth::Depth;
use unproven::Unproven;

/// Commits of a lane at once, of so many lanes: those in flight, one for each stream, and one for "freed" entries alone.
pub(crate) const fn commits_most(lanes: u32) -> usize {
    Depth::most(lanes) + STREAMS + 1
}

/// A rest of a segment smaller than this is not used: a header would take a quarter of it or more.
const USABLE_SLOTS_MIN: u32 = 4;
/// Free segments that a crash needs: an opening gives each stream two in which nothing is live, and finds the streams' next ones, and these. Nothing may begin a
/// segment with live blocks while there are fewer.
const CRASH_SEGMENTS: usize = STREAMS;
/// Free segments that only "freed" entries may use, so that reclaim can always go on: one more, which they may begin.
const META_SEGMENTS: usize = CRASH_SEGMENTS + 1;
/// Free segments that clients' writes leave to dirty blocks that reclaim moves: with one it gains as much as it moves, again and again, also where
/// nothing can be destaged.
const MOVES_SEGMENTS: usize = 1;
/// Free segments that promotion and survivors leave to writes; below the watermark of reclaim.
const WRITES_SEGMENTS: usize = META_SEGMENTS + MOVES_SEGMENTS + 1;
/// "Cleaned" entries that may wait for a commit before one is written for them alone. While as many are in flight as may be there
/// is none: then commits are opened for half as many blocks, and take as many of these entries. A segment of 1 MiB
/// holds 252 blocks in two such commits, as it does in one.
const CLEANED_WAITING_MAX: usize = COMMIT_ENTRIES_MAX;
/// Commits that may be written without a flush of the cache device, which bounds what replay
/// has to verify.
const UNFLUSHED_COMMITS_MAX: u64 = 64;

/// What a commit of the writes is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// "Freed" entries.
    Freed,
    /// Dirty blocks that are moved where nothing can be destaged: room comes of it, too.
    Moves,
    /// Clients' blocks, and all else.
    Clients,
}

impl For {
    /// How many free segments there must be for it; `full`: it takes one of them.
    const fn needs(self, full: bool) -> usize {
        match self {
            Self::Freed => full as usize,
            // What is left of a segment it may have also where there are just as many as a crash needs: an opening may have left no more.
            Self::Moves if !full => CRASH_SEGMENTS,
            Self::Moves => META_SEGMENTS + 1,
            Self::Clients => META_SEGMENTS + MOVES_SEGMENTS + full as usize,
        }
    }
}

/// What a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Empty and ready.
    Free,
    /// A stream's open or next segment.
    Open,
    /// Full, with a commit that is not proven yet.
    Unproven,
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
    /// All its blocks are on both members of a mirrored cache, also those that are clean by now.
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

    /// Whether replay could do without it, after a checkpoint that covers the commits before this one.
    pub(crate) fn is_evictable(&self, covered: u64) -> bool {
        self.state == State::Closed && self.last_seq < covered
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
}

/// The log of one lane.
pub(crate) struct Log {
    segment_slots: u32,
    pub(crate) segments: Vec<Segment>,
    free: VecDeque<u32>,
    tails: [Tail; STREAMS],
    sealed: VecDeque<Sealed>,
    /// Commits of promoted blocks that replay is not to take yet.
    unproven: VecDeque<Unproven>,
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
    /// Of a cache on two devices: what commits say that are not durable yet, with their numbers.
    cleaned_sealed: VecDeque<(u64, Flat)>,
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
        if !self.open(Stream::Writes, For::Clients, cx) {
            return false;
        }
        let hits = match found {
            None => self.policy.write_missed(flat.0),
            Some(found) => self.policy.rewritten(self.log.segment_of(found.slot).zone, found.hits),
        };
        self.put(Stream::Writes, flat, true, hits, from, cx)
    }

    /// Appends a clean block to a stream and maps it there; false if there is no room now.
    pub(crate) fn append_clean(&mut self, stream: Stream, flat: Flat, hits: u8, from: Span, cx: &mut Cx<'_>) -> bool {
        !cx.shared.cache_failed && self.open(stream, For::Clients, cx) && self.put(stream, flat, false, hits, from, cx)
    }

    /// Appends a block to the open commit of a stream and maps it there; false if there is none.
    pub(crate) fn put(
        &mut self,
        stream: Stream,
        flat: Flat,
        dirty: bool,
        hits: u8,
        from: Span,
        cx: &mut Cx<'_>,
    ) -> bool {
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

    /// Makes sure that the stream has an open commit with room.
    pub(crate) fn open(&mut self, stream: Stream, what_for: For, cx: &mut Cx<'_>) -> bool {
        let log = &mut self.log;
        let buffer_blocks = log.commit_blocks();
        let tail = &log.tails[stream as usize];
        if let Some(open) = &tail.open {
            // What was opened for what is moved, in the last segment that is kept for that, isn't for others.
            let is_kept = stream == Stream::Writes && log.free.len() < what_for.needs(false);
            return !open.is_full() && !is_kept;
        }
        // The last place is for "freed" entries.
        if cx.shared.cache_failed || log.commits() + usize::from(what_for != For::Freed) >= log.commits_most {
            return false;
        }
        let full = tail.used + USABLE_SLOTS_MIN > log.segment_slots;
        let enough = match stream {
            // Also a segment that a commit took from the reserve is kept for its like.
            Stream::Writes => log.free.len() >= what_for.needs(full),
            Stream::Promoted | Stream::Survivors if full => log.free.len() > WRITES_SEGMENTS,
            Stream::Promoted | Stream::Survivors => tail.used > 0 || log.free.len() >= CRASH_SEGMENTS,
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
                let waits = log.is_unproven(full);
                let segment = &mut log.segments[full as usize];
                segment.state = if waits { State::Unproven } else { State::Closed };
                self.policy.sealed(SegmentId(full), segment.zone);
                self.reclaim.sparse.filled(full, segment.live, log.segment_slots);
                log.filled += 1;
            }
        }
        let tail = &mut log.tails[stream as usize];
        let Some(segment) = tail.segment else { return false };
        if tail.used == 0 {
            // A segment that was begun with one device stays so: a mirror that comes later lacks what was clean by then.
            log.segments[segment as usize].mirrored =
                stream == Stream::Writes && cx.shared.members.state != members::State::Single;
        }
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
}
