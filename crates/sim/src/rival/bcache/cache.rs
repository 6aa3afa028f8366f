// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request goes through bcache here: lookup, allocation, the tree, the journal.
//!
//! What is dirty is brought to the origin in `destage`.

use std::collections::VecDeque;

use flashfront_engine::Time;
use hashbrown::HashMap;

use super::buckets::{BUCKET_BLOCKS, Buckets};
use super::bypass::Bypass;
use super::destage::Destage;
use super::extent::{CacheIo, Extent};
use super::index::{Found, Index};
use super::journal::{Journal, Waiter};
use super::pace::Controller;
use super::tag::{Store, Tag};
use crate::rival::rig::{Io, Rival, Stats};
use crate::system::{Ask, SystemRequest};

/// An I/O's way through bcache: lookup, allocation, bios. One after the other, as all the
/// following. Fitted to reads of 4 KiB, one at a time (119 us, 111.5 on the bare SSD).
const PATH_NS: u64 = 6_000;
/// Time for each page of a request. Fitted to reads and writes of 128 KiB, one at a time (352 us,
/// 285 bare; 399 us, 309 bare).
const PAGE_NS: u64 = 1_700;
/// The time to put a key into the tree. A worker is woken and locks a leaf, against lookups too. A
/// key that cuts another in two makes two. Fitted to random writes of 4 KiB, one and 32 in flight:
/// 10,796/s and 22,963/s in 2015. Fitted also to the mix of 8 KiB over cached data: 18,380 and
/// 9,037/s.
const INSERT_NS: u64 = 32_000;
/// Keys in the one node of a new tree (256 KiB of 24 bytes) before its root is split for the first
/// time.
const NODE_KEYS: usize = 10_900;
/// The time for which inserts of read misses fail then. Fitted to the 208 of 8192 MiB that were
/// read again in 2015, at 173,236 KB/s. They lay in one piece, as the second pass was not slowed by
/// seeks. Later inserts hardly failed. That it is a time and no number is a guess. With Linux 6.1 a
/// split among writes cost the reads after it nothing that showed.
const LOST_NS: u64 = 1_230_000_000;
/// `cutoff_writeback` and `cutoff_writeback_sync`: more of the cache in use, and writes are no
/// longer kept dirty.
const CUTOFF_PERCENT: u32 = 40;
const CUTOFF_SYNC_PERCENT: u32 = 70;
/// `CUTOFF_CACHE_ADD`: more than that, and nothing is cached.
const CUTOFF_ADD_PERCENT: u32 = 95;
/// `writeback_percent`.
const TARGET_PERCENT: u64 = 10;
/// Writers look for a bucket again after so long when all was dirty.
const STARVED_NS: u64 = 100_000_000;

/// How it is set up, and by which controller it destages.
pub(super) struct Setup {
    pub(super) cutoff_bytes: u64,
    pub(super) synchronous: bool,
    pub(super) controller: Controller,
}

/// The cache.
pub(super) struct Bcache {
    synchronous: bool,
    pub(super) buckets: Buckets,
    pub(super) index: Index,
    journal: Journal,
    bypass: Bypass,
    pub(super) destage: Destage,
    /// Parts of requests that are on their way.
    parts: HashMap<u64, u32>,
    /// The tree and its thread do one thing after the other.
    tree_free_at: Time,
    /// Waits for a bucket: whose, first block, blocks, dirty.
    starved: VecDeque<(u64, u32, u32, bool)>,
    invalidating: bool,
    /// The moment at which the root was split.
    split: Option<Time>,
    pieces: Vec<Found>,
    stats: Stats,
}

impl Bcache {
    pub(super) fn new(cache_bytes: u64, setup: &Setup) -> Self {
        let buckets = Buckets::new(cache_bytes);
        Self {
            synchronous: setup.synchronous,
            index: Index::default(),
            journal: Journal::new(buckets.journal()),
            bypass: Bypass::new(setup.cutoff_bytes),
            destage: Destage::new(buckets.bytes() / 100 * TARGET_PERCENT, setup.controller),
            parts: HashMap::new(),
            tree_free_at: Time(0),
            starved: VecDeque::new(),
            invalidating: false,
            split: None,
            pieces: Vec::new(),
            stats: Stats::default(),
            buckets,
        }
    }

    fn part_done(&mut self, number: u64, io: &mut Io<Tag>) {
        let left = self.parts.get_mut(&number).expect("a part belongs to a request that isn't answered");
        *left -= 1;
        if *left == 0 {
            self.parts.remove(&number);
            io.answer(number);
        }
    }

    /// Reads or writes the cache device, when the journal lets it.
    fn to_cache(&self, cache_io: CacheIo, tag: Tag, io: &mut Io<Tag>) {
        let held_until = self.journal.held_until();
        let CacheIo { read, place, len } = cache_io;
        let (offset, bytes) = (u64::from(place) * 4096, u64::from(len) * 4096);
        if held_until > io.now() {
            io.after(held_until.since_ns(io.now()), Tag::Held(cache_io, Box::new(tag)));
        } else if read {
            io.read_cache(offset, bytes, tag);
        } else {
            io.write_cache(offset, bytes, tag);
        }
    }

    fn read(&mut self, request: SystemRequest, io: &mut Io<Tag>) {
        let SystemRequest { number, offset, len, .. } = request;
        let (start, blocks) = ((offset / 4096) as u32, len.div_ceil(4096) as u32);
        let full = self.buckets.in_use_percent() > CUTOFF_ADD_PERCENT;
        let mut cacheable = !self.bypass.skips(io.now(), offset, len, false) && !full;
        let mut pieces = std::mem::take(&mut self.pieces);
        self.index.find(&self.buckets, start, blocks, &mut pieces);
        self.parts.insert(number, pieces.len() as u32);
        self.stats.read_blocks += u64::from(blocks);
        for &Found { start, len, place } in &pieces {
            let bytes = u64::from(len) * 4096;
            if let Some(place) = place {
                self.stats.read_hit_blocks += u64::from(len);
                self.buckets.hit(place, len);
                self.to_cache(CacheIo { read: true, place, len }, Tag::Hit(number, io.now()), io);
            } else {
                // The first miss of a request is cached, others aren't.
                let cached = std::mem::take(&mut cacheable);
                // A key that holds the place, and is replaced when the data is there
                // (`bch_btree_insert_check_key`).
                self.journal.add_to_leaf(u64::from(cached), io);
                let tag = if cached { Tag::Missed { number, start, len } } else { Tag::Part(number) };
                io.read_origin(u64::from(start) * 4096, bytes, tag);
            }
        }
        self.pieces = pieces;
    }

    fn write(&mut self, request: SystemRequest, io: &mut Io<Tag>) {
        let SystemRequest { number, offset, len, .. } = request;
        let (start, blocks) = ((offset / 4096) as u32, len.div_ceil(4096) as u32);
        let in_use = self.buckets.in_use_percent();
        let skips = self.bypass.skips(io.now(), offset, len, self.synchronous) || in_use > CUTOFF_ADD_PERCENT;
        let cutoff = if self.synchronous { CUTOFF_SYNC_PERCENT } else { CUTOFF_PERCENT };
        let dirty = (!skips && in_use <= cutoff) || self.destage.is_under_way(start, blocks);
        self.parts.insert(number, u32::from(!dirty));
        if !dirty {
            io.write_origin(offset, len, Tag::Part(number));
        }
        if skips && !dirty {
            self.index.cut(&mut self.buckets, start, blocks);
            self.journal.add(1, io);
        } else {
            self.store(number, start, blocks, dirty, io);
        }
    }

    /// Writes a client's blocks to the cache device.
    fn store(&mut self, number: u64, mut start: u32, mut blocks: u32, dirty: bool, io: &mut Io<Tag>) {
        *self.parts.entry(number).or_insert(0) += 1;
        while blocks > 0 {
            let Some(extent) = self.allocate(blocks, dirty, io) else {
                self.starved.push_back((number, start, blocks, dirty));
                return;
            };
            *self.parts.entry(number).or_insert(0) += 1;
            let store = Store { number: Some(number), start, extent };
            self.to_cache(store.extent.io(false), Tag::Stored(store, io.now()), io);
            (start, blocks) = (start + extent.len, blocks - extent.len);
        }
        self.part_done(number, io);
    }

    /// Caches what a read missed, if a bucket is ready: the client has its answer.
    fn fill(&mut self, mut start: u32, mut blocks: u32, io: &mut Io<Tag>) {
        while blocks > 0 {
            let Some(extent) = self.allocate(blocks, false, io) else { return };
            let store = Store { number: None, start, extent };
            self.to_cache(store.extent.io(false), Tag::Stored(store, io.now()), io);
            (start, blocks) = (start + extent.len, blocks - extent.len);
        }
    }

    fn allocate(&mut self, blocks: u32, dirty: bool, io: &mut Io<Tag>) -> Option<Extent> {
        let allocated = self.buckets.allocate(blocks, dirty);
        if self.buckets.wants_collection() {
            self.collect();
        }
        self.invalidate(io);
        allocated.map(|(place, len, generation)| Extent { len, place, generation, dirty })
    }

    fn collect(&mut self) {
        self.buckets.collect();
        self.index.sweep(&self.buckets);
    }

    /// Makes buckets ready if there are few: invalidates a batch and writes the new generations.
    fn invalidate(&mut self, io: &mut Io<Tag>) {
        if self.invalidating || !self.buckets.is_low() {
            return;
        }
        self.invalidating = true;
        let mut batch = self.buckets.invalidate();
        if batch.is_empty() {
            self.collect();
            batch = self.buckets.invalidate();
        }
        if batch.is_empty() {
            io.after(STARVED_NS, Tag::Starved);
            return;
        }
        // One after the other in the kernel; here all at once, and the last one written tells.
        let mut priorities = self.buckets.take_priorities(&mut batch);
        let bucket = u64::from(BUCKET_BLOCKS) * 4096;
        let last = priorities.pop().expect("a batch has buckets");
        priorities.iter().for_each(|number| io.write_cache(u64::from(*number) * bucket, bucket, Tag::Nothing));
        io.write_cache(u64::from(last) * bucket, bucket, Tag::Priorities(batch));
    }

    fn feed_starved(&mut self, io: &mut Io<Tag>) {
        for (number, start, blocks, dirty) in std::mem::take(&mut self.starved) {
            self.store(number, start, blocks, dirty, io);
            // It has counted itself again.
            self.part_done(number, io);
        }
    }

    /// Data is on the cache device: its key goes into the tree, after those before it.
    fn stored(&mut self, store: Store, io: &mut Io<Tag>) {
        let keys = 1 + self.index.splits(&self.buckets, store.start, store.extent.len);
        // Keys of fills only replace what is expected there: they are not journalled
        // (`bch_data_insert_keys`).
        if store.number.is_some() {
            self.journal.add(u64::from(keys), io);
        }
        self.insert_after(u64::from(keys), Tag::Inserted(store), io);
    }

    /// Waits for its turn at the tree, and until that has taken so long.
    pub(super) fn turn(&mut self, ns: u64, tag: Tag, io: &mut Io<Tag>) {
        self.tree_free_at = self.tree_free_at.max(io.now()).plus_ns(ns);
        io.after(self.tree_free_at.since_ns(io.now()), tag);
    }

    fn insert_after(&mut self, keys: u64, tag: Tag, io: &mut Io<Tag>) {
        self.journal.add_to_leaf(keys, io);
        self.turn(keys * INSERT_NS, tag, io);
    }

    fn inserted(&mut self, store: Store, io: &mut Io<Tag>) {
        let Store { number, start, extent } = store;
        self.buckets.unpin(extent.place);
        if let Some(number) = number {
            self.index.insert(&mut self.buckets, start, extent);
            self.part_done(number, io);
            if extent.dirty {
                self.wake(io);
            }
        } else if !self.is_lost(io.now()) {
            let mut pieces = std::mem::take(&mut self.pieces);
            self.index.find(&self.buckets, start, extent.len, &mut pieces);
            // Somebody else has cached or written it meanwhile.
            if pieces.iter().all(|piece| piece.place.is_none()) {
                self.index.insert(&mut self.buckets, start, extent);
            }
            self.pieces = pieces;
        }
        if self.split.is_none() && self.index.keys() > NODE_KEYS {
            self.split = Some(io.now());
        }
    }

    fn is_lost(&self, now: Time) -> bool {
        self.split.is_some_and(|split| now.since_ns(split) < LOST_NS)
    }
}

/// An I/O's way.
pub(super) const fn way_ns(blocks: u64) -> u64 {
    PATH_NS + blocks * PAGE_NS
}

impl Rival for Bcache {
    type Tag = Tag;

    fn submit(&mut self, request: SystemRequest, io: &mut Io<Tag>) {
        self.destage.asked();
        self.turn(way_ns(request.len.div_ceil(4096)), Tag::Arrived(request), io);
    }

    fn done(&mut self, tag: Tag, io: &mut Io<Tag>) {
        match tag {
            Tag::Nothing => {}
            Tag::Arrived(request) => match request.ask {
                Ask::Read => self.read(request, io),
                Ask::Write => self.write(request, io),
                Ask::Flush => {
                    self.parts.insert(request.number, 2);
                    io.flush_origin(Tag::Part(request.number));
                    self.journal.wait(Waiter::Client(request.number), io);
                }
            },
            Tag::Part(number) => self.part_done(number, io),
            Tag::Held(cache_io, tag) => self.to_cache(cache_io, *tag, io),
            Tag::Hit(number, since) => {
                self.bypass.note(io.now(), since, true);
                self.part_done(number, io);
            }
            Tag::Missed { number, start, len } => {
                self.part_done(number, io);
                self.fill(start, len, io);
            }
            Tag::Stored(store, since) => {
                self.bypass.note(io.now(), since, false);
                self.stored(store, io);
            }
            Tag::Inserted(store) => self.inserted(store, io),
            Tag::JournalDue => self.journal.due(io),
            Tag::Journal(stage) => {
                for waiter in self.journal.step(stage, io) {
                    match waiter {
                        Waiter::Client(number) => self.part_done(number, io),
                        Waiter::Buckets(numbers) => {
                            self.buckets.ready(numbers);
                            self.invalidating = false;
                            self.feed_starved(io);
                        }
                    }
                }
            }
            Tag::Priorities(numbers) => self.journal.wait(Waiter::Buckets(numbers), io),
            Tag::Starved => {
                self.invalidating = false;
                self.collect();
                self.invalidate(io);
            }
            Tag::Pace => self.pace(io),
            Tag::Thread => self.thread(io),
            Tag::DirtyFound(start, extent) => {
                self.journal.destaged(extent.len);
                self.to_cache(extent.io(true), Tag::DirtyRead(start, extent), io);
            }
            Tag::DirtyRead(start, extent) => {
                self.turn(way_ns(u64::from(extent.len)), Tag::DirtyCopied(start, extent), io);
            }
            Tag::DirtyCopied(start, extent) => Self::write_dirty(start, extent, io),
            Tag::DirtyWritten(start, extent) => {
                self.journal.add(1, io);
                self.insert_after(1, Tag::Cleaned(start, extent), io);
            }
            Tag::Cleaned(start, extent) => self.cleaned(start, extent, io),
        }
    }

    fn stats(&self) -> Stats {
        // Its target is no limit.
        Stats { dirty_bytes: self.index.dirty_blocks() * 4096, ..self.stats }
    }
}
