// SPDX-License-Identifier: MIT OR Apache-2.0
//! dm-writeboost 2.2 (Akira Hayakawa) gathers writes in RAM, 127 blocks at a time. It writes them
//! in one piece to a ring of segments.
//!
//! - Modes: write-back. With `read_cache_threshold`, blocks that are read are cached, too
//!   (`dm-writeboost-readcache`).
//! - Admission: every write. Of reads, blocks that miss are staged. 2048 of them are written all
//!   together (`cells`).
//! - Placement: a ring, first in, first out; reads don't keep anything. A block that is written
//!   again in the open segment stays where it is.
//! - Reads: a block of the open segment is read from the origin, and its dirty parts are laid over
//!   that. A block of a segment that waits to be written is read from the cache device once it is
//!   there (`process_read`).
//! - Metadata I/O: none but the segment's own first block.
//! - Destage, what: the oldest segments first, up to 32 in a batch, but at most one more than there
//!   are empty segments. Each is read whole, even if nothing in it is dirty. Dirty blocks are
//!   written sorted within the batch; then the origin is flushed.
//! - Destage, when: while the origin was busy for less than `writeback_threshold` of the last
//!   second (70 %: the documentation's), or while a writer waits. The thread looks once a second if
//!   it finds nothing.
//! - FLUSH: the open segment is closed as it is, and takes a whole place in the ring. A flush of
//!   the cache device follows. FLUSHes that come meanwhile share the next flush.
//! - Bypass: none. Memory: eight segments (4 MiB), and about 1 % of the cache for tables (author).
//!
//! A reader of the open segment submits nothing else meanwhile (`fill_payload_by_backing` waits).
//! This is not modelled, so such reads are too fast here. Nor are: the empty first segment, parts
//! of blocks, `sync_data_interval`, the superblock's record, replay, errors.

use std::collections::VecDeque;

use flashfront_engine::Time;
use hashbrown::HashMap;

use super::rig::{Io, Rig, Rival, SECOND_NS, Stats};
use super::spec::{Geometry, Spec};
use crate::system::{Ask, System, SystemRequest};

mod cells;
mod table;
#[cfg(test)]
mod tests;

use cells::Cells;
use table::{SEGMENT_BLOCKS, Table};

/// The time of a block under the one lock. Fitted to random writes on a RAM disk by one job (1458.7
/// MB/s, 2013).
const LOCK_NS: u64 = 2_700;
/// The time under the lock while several jobs wait and sleep. Fitted to four jobs (370.7 MB/s).
const CONTENDED_NS: u64 = 10_700;
/// Requests of one job that wait at most: its depth in those runs. If more wait, they come from
/// several jobs.
const ONE_JOB: u32 = 32;
/// `NR_RAMBUF_POOL`: segments in RAM.
const BUFFERS: u64 = 8;
/// `nr_max_batched_writeback`.
const BATCH_MAX: u64 = 32;
/// `writeback_threshold` in percent, as the documentation shows it. The default is 0, with which
/// nothing is written back before the ring is full.
const THRESHOLD: u64 = 70;
/// Neighbours are merged to writes of at most this length to the origin.
const MERGED_BLOCKS: u32 = 128;

pub(super) const SPEC: Spec = Spec {
    name: "dm-writeboost",
    summary: "dm-writeboost 2.2, writeback_threshold 70, no read cache",
    source: "its documentation and sources; mail to dm-devel (2013)",
    cache_bytes_min: 0,
    build: |geometry| build(geometry, THRESHOLD, 0),
};

pub(super) const SPEC_READCACHE: Spec = Spec {
    name: "dm-writeboost-readcache",
    summary: "the same with read_cache_threshold 1",
    source: "its documentation and sources",
    cache_bytes_min: 0,
    build: |geometry| build(geometry, THRESHOLD, 1),
};

fn build(geometry: &Geometry, writeback_threshold: u64, read_cache_threshold: u32) -> Box<dyn System> {
    let writeboost = Writeboost::new(geometry, writeback_threshold, read_cache_threshold);
    Box::new(Rig::new(geometry, writeboost, |_, io| {
        io.after(SECOND_NS, Tag::Second);
        io.after(SECOND_NS, Tag::Wake(0));
    }))
}

/// What an I/O or a moment is for.
#[derive(Debug)]
enum Tag {
    /// A request has had the lock.
    Arrived(SystemRequest),
    /// A part of a read from the cache device is over.
    Part(u64),
    /// A part of a read from the origin is over. `cells` of its blocks have cells.
    Missed { number: u64, cells: usize },
    /// A segment is on the cache device.
    Segment,
    /// The cache device was flushed for the requests that wait.
    Barrier,
    /// The next segment of a batch is in RAM.
    BatchRead,
    /// A run of blocks is on the origin.
    BatchWritten,
    /// The batch is durable on the origin.
    BatchFlushed,
    /// The destaging thread has slept enough, if it wasn't woken since.
    Wake(u64),
    /// A second is over.
    Second,
}

/// A part of a read that waits until a segment is on the cache device.
#[derive(Debug)]
struct Early {
    segment: u64,
    number: u64,
    offset: u64,
    bytes: u64,
}

/// A batch on its way to the origin.
#[derive(Debug, Default)]
struct Batch {
    segments: u64,
    read: u64,
    writing: usize,
    /// Slots, and the blocks of the origin in them.
    blocks: Vec<(u32, u32)>,
}

struct Writeboost {
    table: Table,
    /// The part of the last second in percent. While the origin was busy for less, destage is
    /// allowed.
    writeback_threshold: u64,
    lock_free_at: Time,
    queued: u32,
    /// Numbers of segments since the beginning: the open one, the last one on the cache device, and
    /// the last one on the origin.
    open: u64,
    flushed: u64,
    written_back: u64,
    /// The blocks taken in the open segment, and in each of those that wait to be written.
    filled: u32,
    closed: VecDeque<u32>,
    /// Blocks of each segment of the ring.
    lens: Vec<u32>,
    segment_under_way: bool,
    /// Writes that wait for a segment: number, next block, blocks.
    writers: VecDeque<(u64, u32, u32)>,
    /// FLUSHes that wait for their turn, FLUSHes of this turn, and the segment that these wait for.
    barriers: Vec<u64>,
    barrier: Vec<u64>,
    barrier_segment: u64,
    batch: Option<Batch>,
    allowed: bool,
    /// The number of times that the thread went to sleep.
    naps: u64,
    /// When the origin began to be busy, with how many I/Os, and how long it was busy before in
    /// this second.
    busy_since: Time,
    busy_ios: u32,
    busy_ns: u64,
    /// Parts of reads that are on their way.
    parts: HashMap<u64, u32>,
    early: Vec<Early>,
    cells: Cells,
    stats: Stats,
}

impl Writeboost {
    fn new(geometry: &Geometry, writeback_threshold: u64, read_cache_threshold: u32) -> Self {
        let table = Table::new(geometry.origin_bytes, geometry.cache_bytes);
        Self {
            lens: vec![0; table.segments() as usize],
            table,
            writeback_threshold,
            lock_free_at: Time(0),
            queued: 0,
            open: 1,
            flushed: 0,
            written_back: 0,
            filled: 0,
            closed: VecDeque::new(),
            segment_under_way: false,
            writers: VecDeque::new(),
            barriers: Vec::new(),
            barrier: Vec::new(),
            barrier_segment: 0,
            batch: None,
            allowed: false,
            naps: 0,
            busy_since: Time(0),
            busy_ios: 0,
            busy_ns: 0,
            parts: HashMap::new(),
            early: Vec::new(),
            cells: Cells::new(read_cache_threshold),
            stats: Stats::default(),
        }
    }

    fn origin_began(&mut self, now: Time) {
        if self.busy_ios == 0 {
            self.busy_since = now;
        }
        self.busy_ios += 1;
    }

    fn origin_ended(&mut self, now: Time) {
        self.busy_ios -= 1;
        if self.busy_ios == 0 {
            self.busy_ns += now.since_ns(self.busy_since);
        }
    }

    fn part_done(&mut self, number: u64, io: &mut Io<Tag>) {
        let left = self.parts.get_mut(&number).expect("a part belongs to a read that isn't answered");
        *left -= 1;
        if *left == 0 {
            self.parts.remove(&number);
            io.answer(number);
        }
    }

    fn read(&mut self, number: u64, start: u32, blocks: u32, io: &mut Io<Tag>) {
        self.stats.read_blocks += u64::from(blocks);
        // This call holds a part, too, so that the read has at least one.
        self.parts.insert(number, 1);
        let (mut at, end) = (start, start + blocks);
        while at < end {
            let slot = self.readable_slot(at);
            let follows = |next: &u32| match slot {
                Some(slot) => self.readable_slot(*next) == Some(slot + (next - at)),
                None => self.readable_slot(*next).is_none(),
            };
            // The queue below merges neighbours.
            let len = 1 + (at + 1..end).take_while(follows).count() as u32;
            let bytes = u64::from(len) * 4096;
            *self.parts.entry(number).or_insert(0) += 1;
            if let Some(slot) = slot {
                self.stats.read_hit_blocks += u64::from(len);
                let (segment, offset) = (self.segment_of(slot), u64::from(self.table.place_of(slot)) * 4096);
                if segment > self.flushed {
                    self.early.push(Early { segment, number, offset, bytes });
                } else {
                    io.read_cache(offset, bytes, Tag::Part(number));
                }
            } else {
                let Self { table, cells, .. } = self;
                let cells = (at..at + len).filter(|block| table.slot_of(*block).is_none() && cells.reserve(*block));
                let cells = cells.count();
                self.origin_began(io.now());
                io.read_origin(u64::from(at) * 4096, bytes, Tag::Missed { number, cells });
            }
            at += len;
        }
        self.part_done(number, io);
    }

    /// The slot where a block can be read now or soon. `None` if the block is in the open segment.
    fn readable_slot(&self, block: u32) -> Option<u32> {
        self.table.slot_of(block).filter(|slot| self.segment_of(*slot) != self.open)
    }

    /// The number of a slot's segment since the beginning.
    fn segment_of(&self, slot: u32) -> u64 {
        let segment = u64::from(slot / SEGMENT_BLOCKS);
        let count = self.table.segments();
        // Of the latest numbers, this one has the place.
        self.open - (self.open + count - segment % count) % count
    }

    /// Goes on with the writers that wait.
    fn go_on(&mut self, io: &mut Io<Tag>) {
        while let Some((number, start, blocks)) = self.writers.pop_front() {
            let placed = (start..start + blocks).take_while(|block| self.put(*block, true, io)).count() as u32;
            if placed < blocks {
                self.writers.push_front((number, start + placed, blocks - placed));
                self.destage(io);
                return;
            }
            io.answer(number);
        }
        while let Some(block) = self.cells.next() {
            if !self.put(block, false, io) {
                self.destage(io);
                return;
            }
            self.cells.pop();
        }
        if self.barrier.is_empty() && !self.barriers.is_empty() {
            let segment = self.open;
            if self.close(io) {
                self.barrier = std::mem::take(&mut self.barriers);
                self.barrier_segment = segment;
            } else {
                self.destage(io);
            }
        }
    }

    /// Puts a block into the open segment. Returns false if there is no open segment with room.
    fn put(&mut self, block: u32, dirty: bool, io: &mut Io<Tag>) -> bool {
        let first = self.table.first_slot(self.open);
        if let Some(slot) = self.table.slot_of(block).filter(|slot| (first..first + SEGMENT_BLOCKS).contains(slot)) {
            self.table.set(slot, block, dirty);
            return true;
        }
        if self.filled == SEGMENT_BLOCKS && !self.close(io) {
            return false;
        }
        if dirty && self.table.slot_of(block).is_none() {
            self.cells.cancel(block);
        }
        let slot = self.table.first_slot(self.open) + self.filled;
        self.table.set(slot, block, dirty);
        self.filled += 1;
        true
    }

    /// Closes the open segment and takes the next, if a buffer and a place in the ring are free.
    fn close(&mut self, io: &mut Io<Tag>) -> bool {
        let next = self.open + 1;
        let old = next.saturating_sub(self.table.segments());
        if next > self.flushed + BUFFERS || old > self.written_back {
            return false;
        }
        self.closed.push_back(self.filled);
        let count = self.table.segments();
        self.lens[(self.open % count) as usize] = self.filled;
        self.open = next;
        self.filled = 0;
        self.table.reuse(next);
        self.write_segment(io);
        true
    }

    /// Segments go one after the other to the cache device.
    fn write_segment(&mut self, io: &mut Io<Tag>) {
        if !self.segment_under_way
            && let Some(filled) = self.closed.pop_front()
        {
            self.segment_under_way = true;
            let slot = self.table.first_slot(self.flushed + 1);
            let offset = u64::from(self.table.place_of(slot) - 1) * 4096;
            io.write_cache(offset, u64::from(1 + filled) * 4096, Tag::Segment);
        }
    }

    /// Whether a writer waits for a place in the ring.
    fn is_urged(&self) -> bool {
        let waits = !(self.writers.is_empty() && self.barriers.is_empty()) || self.cells.are_emptied();
        waits && (self.open + 1).saturating_sub(self.table.segments()) > self.written_back
    }

    /// Begins a batch if there is reason to. If not, the thread sleeps a second, or until a writer
    /// waits.
    fn destage(&mut self, io: &mut Io<Tag>) {
        if self.batch.is_some() {
            return;
        }
        self.naps += 1;
        let candidates = self.flushed - self.written_back;
        if candidates == 0 || !(self.allowed || self.is_urged()) {
            io.after(SECOND_NS, Tag::Wake(self.naps));
            return;
        }
        let empty = self.table.segments().saturating_sub(self.open - self.written_back);
        let segments = candidates.min(BATCH_MAX).min(empty + 1);
        self.batch = Some(Batch { segments, ..Batch::default() });
        self.batch_read(io);
    }

    /// Reads the next segment of the batch. After the last, writes their dirty blocks, sorted.
    fn batch_read(&mut self, io: &mut Io<Tag>) {
        let Some(batch) = &mut self.batch else { return };
        while batch.read < batch.segments {
            batch.read += 1;
            let number = self.written_back + batch.read;
            let slot = self.table.first_slot(number);
            self.table.dirty_of(slot, &mut batch.blocks);
            let blocks = self.lens[(number % self.table.segments()) as usize];
            if blocks > 0 {
                io.read_cache(u64::from(self.table.place_of(slot)) * 4096, u64::from(blocks) * 4096, Tag::BatchRead);
                return;
            }
        }
        batch.blocks.sort_unstable_by_key(|(_, block)| *block);
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for (_, block) in &batch.blocks {
            match runs.last_mut() {
                Some((start, len)) if *start + *len == *block && *len < MERGED_BLOCKS => *len += 1,
                _ => runs.push((*block, 1)),
            }
        }
        batch.writing = runs.len();
        for (start, len) in &runs {
            self.origin_began(io.now());
            io.write_origin(u64::from(*start) * 4096, u64::from(*len) * 4096, Tag::BatchWritten);
        }
        if runs.is_empty() {
            io.flush_origin(Tag::BatchFlushed);
        }
    }

    fn batch_done(&mut self, io: &mut Io<Tag>) {
        let batch = self.batch.take().expect("a batch that is done was begun");
        for (slot, block) in batch.blocks {
            self.table.clean(slot, block);
        }
        self.written_back += batch.segments;
        self.go_on(io);
        self.destage(io);
    }
}

impl Rival for Writeboost {
    type Tag = Tag;

    fn submit(&mut self, request: SystemRequest, io: &mut Io<Tag>) {
        self.queued += 1;
        let each = if self.queued > ONE_JOB { CONTENDED_NS } else { LOCK_NS };
        let ns = request.len.div_ceil(4096).max(1) * each;
        self.lock_free_at = self.lock_free_at.max(io.now()).plus_ns(ns);
        io.after(self.lock_free_at.since_ns(io.now()), Tag::Arrived(request));
    }

    fn done(&mut self, tag: Tag, io: &mut Io<Tag>) {
        match tag {
            Tag::Arrived(SystemRequest { number, ask, offset, len }) => {
                self.queued -= 1;
                let (start, blocks) = ((offset / 4096) as u32, len.div_ceil(4096) as u32);
                match ask {
                    Ask::Read => self.read(number, start, blocks, io),
                    Ask::Write => {
                        self.writers.push_back((number, start, blocks));
                        if self.writers.len() == 1 {
                            self.go_on(io);
                        }
                    }
                    Ask::Flush => {
                        self.barriers.push(number);
                        self.go_on(io);
                    }
                }
            }
            Tag::Part(number) => self.part_done(number, io),
            Tag::Missed { number, cells } => {
                self.origin_ended(io.now());
                self.part_done(number, io);
                if self.cells.ended(cells) {
                    self.go_on(io);
                }
            }
            Tag::Segment => {
                self.segment_under_way = false;
                self.flushed += 1;
                if !self.barrier.is_empty() && self.flushed == self.barrier_segment {
                    io.flush_cache(Tag::Barrier);
                }
                self.write_segment(io);
                let flushed = self.flushed;
                let ready = self.early.extract_if(.., |early| early.segment <= flushed);
                ready.for_each(|it| io.read_cache(it.offset, it.bytes, Tag::Part(it.number)));
                self.go_on(io);
            }
            Tag::Barrier => {
                self.barrier.drain(..).for_each(|number| io.answer(number));
                self.go_on(io);
            }
            Tag::BatchRead => self.batch_read(io),
            Tag::BatchWritten => {
                self.origin_ended(io.now());
                let batch = self.batch.as_mut().expect("a batch is written until it is done");
                batch.writing -= 1;
                if batch.writing == 0 {
                    io.flush_origin(Tag::BatchFlushed);
                }
            }
            Tag::BatchFlushed => self.batch_done(io),
            Tag::Wake(nap) if nap != self.naps => {}
            Tag::Wake(_) => self.destage(io),
            Tag::Second => {
                if self.busy_ios > 0 {
                    self.busy_ns += io.now().since_ns(self.busy_since);
                    self.busy_since = io.now();
                }
                self.allowed = std::mem::take(&mut self.busy_ns) < SECOND_NS / 100 * self.writeback_threshold;
                io.after(SECOND_NS, Tag::Second);
            }
        }
    }

    fn stats(&self) -> Stats {
        Stats { dirty_bytes: self.table.dirty_blocks() * 4096, ..self.stats }
    }
}
