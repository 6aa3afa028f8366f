// SPDX-License-Identifier: MIT OR Apache-2.0
//! dm-writeboost 2.2 (Akira Hayakawa): writes gather in RAM by 127 blocks and go to a ring of segments in one piece.
//!
//! - Modes: write-back; with `read_cache_threshold`, what is read is cached too (`dm-writeboost-readcache`).
//! - Admission: every write. Reads: single blocks of 4 KiB; a run of more is cancelled. 2048 of them are staged, then written all together.
//! - Placement: a ring, first in, first out; reads don't keep anything. A block that is written again in the open segment stays where it is.
//! - Metadata I/O: none but the segment's own first block.
//! - Destage: oldest segments first, up to 32 in a batch, but no more than there are empty ones and one; sorted within the batch, then a flush of the
//!   origin. While the origin was busy for less than `writeback_threshold` of the last second (70 %: the documentation's), or a writer waits.
//! - FLUSH: the open segment is closed as it is, and has its slot; then a flush of the cache device. FLUSHes that come meanwhile share the next one.
//! - Bypass: none. Memory: eight segments (4 MiB), and about 1 % of the cache for its tables (the author's figure).
//!
//! Not modelled: parts of blocks (everything is whole 4 KiB here), `sync_data_interval`, the superblock's record, replay, errors.

use std::collections::VecDeque;

use flashfront_engine::Time;
use hashbrown::HashMap;

use super::{Geometry, Io, Rig, Rival, Spec, Stats};
use crate::system::{Ask, System, SystemRequest};

mod table;
#[cfg(test)]
mod tests;

use table::{SEGMENT_BLOCKS, Table};

/// A block's way under the one lock. Fitted to random writes on a RAM disk by one job (1458.7 MB/s, 2013).
const LOCK_NS: u64 = 2_700;
/// The same when several jobs wait for it and sleep. Fitted to four jobs (370.7 MB/s).
const CONTENDED_NS: u64 = 10_700;
/// More requests than that wait only if they come from several jobs: the depth of one in those runs.
const ONE_JOB: u32 = 32;
/// `NR_RAMBUF_POOL`: segments in RAM.
const BUFFERS: u64 = 8;
/// `nr_max_batched_writeback`.
const BATCH_MAX: u64 = 32;
/// `writeback_threshold`, in percent: what the documentation shows. By default it is 0, and nothing is written back before the ring is full.
const THRESHOLD: u64 = 70;
const SECOND_NS: u64 = 1_000_000_000;
/// `nr_read_cache_cells`.
const CELLS: usize = 2048;
/// The longest write to the origin that neighbours are merged to.
const MERGED_BLOCKS: u32 = 128;

pub(super) const SPEC: Spec = Spec {
    name: "dm-writeboost",
    summary: "dm-writeboost 2.2, writeback_threshold 70, no read cache",
    source: "its documentation and sources; mail to dm-devel (2013)",
    build: |geometry| build(geometry, THRESHOLD, 0),
};

pub(super) const SPEC_READCACHE: Spec = Spec {
    name: "dm-writeboost-readcache",
    summary: "the same with read_cache_threshold 1",
    source: "its documentation and sources",
    build: |geometry| build(geometry, THRESHOLD, 1),
};

fn build(geometry: &Geometry, writeback_threshold: u64, read_cache_threshold: u32) -> Box<dyn System> {
    let writeboost = Writeboost::new(geometry, writeback_threshold, read_cache_threshold);
    Box::new(Rig::new(geometry, writeboost, |_, io| io.after(SECOND_NS, Tag::Second)))
}

/// What an I/O or a moment is for.
#[derive(Debug)]
enum Tag {
    /// A request has had the lock.
    Arrived(SystemRequest),
    /// A part of a read from the cache device.
    Part(u64),
    /// A part of a read from the origin.
    Missed { number: u64, start: u32, len: u32 },
    /// A segment is on the cache device.
    Segment,
    /// The cache device was flushed for those who wait.
    Barrier,
    /// The next segment of a batch is in RAM.
    BatchRead,
    /// A run of blocks is on the origin.
    BatchWritten,
    /// And durable there.
    BatchFlushed,
    /// A second is over.
    Second,
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
    /// Of the origin's last second, in percent.
    writeback_threshold: u64,
    read_cache_threshold: u32,
    lock_free_at: Time,
    queued: u32,
    /// Numbers of segments since the beginning: the open one, the last on the cache device, the last on the origin.
    open: u64,
    flushed: u64,
    written_back: u64,
    /// Blocks of the open segment that are taken, and of those that wait to be written.
    filled: u32,
    closed: VecDeque<u32>,
    segment_under_way: bool,
    /// Writes that wait for a segment: number, next block, blocks.
    writers: VecDeque<(u64, u32, u32)>,
    /// FLUSHes: those that wait for their turn; those of this turn, and the segment that they wait for.
    barriers: Vec<u64>,
    barrier: Vec<u64>,
    barrier_segment: u64,
    batch: Option<Batch>,
    allowed: bool,
    /// When the origin began to be busy, with how many I/Os, and for how long before in this second.
    busy_since: Time,
    busy_ios: u32,
    busy_ns: u64,
    /// Parts of reads that are on their way.
    parts: HashMap<u64, u32>,
    /// Blocks that were read once; `None`: cancelled.
    cells: Vec<Option<u32>>,
    /// On their way from the cells into segments.
    injected: VecDeque<u32>,
    run_end: u32,
    run: u32,
    stats: Stats,
}

impl Writeboost {
    fn new(geometry: &Geometry, writeback_threshold: u64, read_cache_threshold: u32) -> Self {
        Self {
            table: Table::new(geometry.origin_bytes, geometry.cache_bytes),
            writeback_threshold,
            read_cache_threshold,
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
            busy_since: Time(0),
            busy_ios: 0,
            busy_ns: 0,
            parts: HashMap::new(),
            cells: Vec::new(),
            injected: VecDeque::new(),
            run_end: 0,
            run: 0,
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
        // One part for the blocks that are in RAM, and so that there is one.
        self.parts.insert(number, 1);
        let (mut at, end) = (start, start + blocks);
        while at < end {
            let slot = self.table.slot_of(at);
            let follows = |next: &u32| match slot {
                Some(slot) => self.table.slot_of(*next) == Some(slot + (next - at)),
                None => self.table.slot_of(*next).is_none(),
            };
            // Neighbours are merged by the queue below.
            let len = 1 + (at + 1..end).take_while(follows).count() as u32;
            let bytes = u64::from(len) * 4096;
            match slot {
                Some(slot) if self.in_ram(slot) => self.stats.read_hit_blocks += u64::from(len),
                Some(slot) => {
                    self.stats.read_hit_blocks += u64::from(len);
                    *self.parts.entry(number).or_insert(0) += 1;
                    io.read_cache(u64::from(self.table.place_of(slot)) * 4096, bytes, Tag::Part(number));
                }
                None => {
                    *self.parts.entry(number).or_insert(0) += 1;
                    self.origin_began(io.now());
                    io.read_origin(u64::from(at) * 4096, bytes, Tag::Missed { number, start: at, len });
                }
            }
            at += len;
        }
        self.part_done(number, io);
    }

    /// Whether a slot's segment is still in a buffer.
    fn in_ram(&self, slot: u32) -> bool {
        let segment = u64::from(slot / SEGMENT_BLOCKS);
        let count = self.table.segments();
        // Of the last numbers, the one that has this place.
        let number = self.open - (self.open + count - segment % count) % count;
        number > self.flushed
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
        while let Some(&block) = self.injected.front() {
            // What was written meanwhile is newer.
            if self.table.slot_of(block).is_none() && !self.put(block, false, io) {
                self.destage(io);
                return;
            }
            self.injected.pop_front();
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

    /// Puts a block into the open segment; false: there is none.
    fn put(&mut self, block: u32, dirty: bool, io: &mut Io<Tag>) -> bool {
        let first = self.table.first_slot(self.open);
        if let Some(slot) = self.table.slot_of(block).filter(|slot| (first..first + SEGMENT_BLOCKS).contains(slot)) {
            self.table.set(slot, block, dirty);
            return true;
        }
        if self.filled == SEGMENT_BLOCKS && !self.close(io) {
            return false;
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
        self.open = next;
        self.filled = 0;
        self.table.reuse(next);
        self.write_segment(io);
        true
    }

    /// One segment after the other goes to the cache device.
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
        let waits = !(self.writers.is_empty() && self.barriers.is_empty() && self.injected.is_empty());
        waits && (self.open + 1).saturating_sub(self.table.segments()) > self.written_back
    }

    /// Begins a batch if there is reason to.
    fn destage(&mut self, io: &mut Io<Tag>) {
        let candidates = self.flushed - self.written_back;
        if self.batch.is_some() || candidates == 0 || !(self.allowed || self.is_urged()) {
            return;
        }
        let empty = self.table.segments().saturating_sub(self.open - self.written_back);
        let segments = candidates.min(BATCH_MAX).min(empty + 1);
        self.batch = Some(Batch { segments, ..Batch::default() });
        self.batch_read(io);
    }

    /// Reads the next segment of the batch that has something dirty; behind the last, writes all of it, sorted.
    fn batch_read(&mut self, io: &mut Io<Tag>) {
        let Some(batch) = &mut self.batch else { return };
        while batch.read < batch.segments {
            batch.read += 1;
            let slot = self.table.first_slot(self.written_back + batch.read);
            if self.table.dirty_of(slot, &mut batch.blocks) {
                let bytes = u64::from(SEGMENT_BLOCKS) * 4096;
                io.read_cache(u64::from(self.table.place_of(slot)) * 4096, bytes, Tag::BatchRead);
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
            self.batch_done(io);
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

    /// A block was read from the origin: staged, unless it is one of a run.
    fn stage(&mut self, start: u32, len: u32, io: &mut Io<Tag>) {
        // While the cells are emptied nothing is staged.
        if !self.injected.is_empty() {
            return;
        }
        for block in start..start + len {
            self.run = if block == self.run_end { self.run + 1 } else { 1 };
            self.run_end = block + 1;
            self.cells.push(Some(block).filter(|_| self.run <= self.read_cache_threshold));
            if self.run == self.read_cache_threshold + 1 {
                // Those before it in the run as well.
                let from = self.cells.len().saturating_sub(self.run as usize);
                self.cells[from..].fill(None);
            }
        }
        if self.cells.len() >= CELLS {
            self.injected.extend(self.cells.drain(..).flatten());
            self.go_on(io);
        }
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
            Tag::Missed { number, start, len } => {
                self.origin_ended(io.now());
                self.part_done(number, io);
                if self.read_cache_threshold > 0 {
                    self.stage(start, len, io);
                }
            }
            Tag::Segment => {
                self.segment_under_way = false;
                self.flushed += 1;
                if !self.barrier.is_empty() && self.flushed == self.barrier_segment {
                    io.flush_cache(Tag::Barrier);
                }
                self.write_segment(io);
                self.go_on(io);
                self.destage(io);
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
            Tag::Second => {
                if self.busy_ios > 0 {
                    self.busy_ns += io.now().since_ns(self.busy_since);
                    self.busy_since = io.now();
                }
                self.allowed = std::mem::take(&mut self.busy_ns) < SECOND_NS / 100 * self.writeback_threshold;
                self.destage(io);
                io.after(SECOND_NS, Tag::Second);
            }
        }
    }

    fn stats(&self) -> Stats {
        Stats { dirty_bytes: self.table.dirty_blocks() * 4096, ..self.stats }
    }
}
