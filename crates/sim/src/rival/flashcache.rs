// SPDX-License-Identifier: MIT OR Apache-2.0
//! flashcache, in mode writeback, holds blocks of 4 KiB in sets, in place. Each change of a block's
//! state is written before the answer.
//!
//! The sources are Facebook's documentation, the behaviour of its code, and the counters in the
//! logs of the comparison of 2015:
//!
//! - 256 KiB of the origin (64 blocks) belong into one of the sets of 512 blocks. A hash chooses
//!   the set, so some sets overflow while others are half empty. Within a set free places are taken
//!   first, then the next clean one in turn (FIFO).
//! - Requests are cut into blocks. Neighbours become one I/O again in the device's queue.
//! - Copies of blocks that were read don't: they are written to the cache device one by one before
//!   the answer. All blocks that were read are cached, if their set has a place that is not dirty.
//! - A write goes to the block's place, or to one that is free or clean. Without one it goes to the
//!   origin ("no room").
//! - A write to a block that wasn't dirty is answered only when the new state was written. That is
//!   one block of metadata for 256 places. It has all changes that came while the one before was
//!   written.
//! - A set that is dirty by more than 20 % is cleaned when a write comes to it, or a read some of
//!   which misses. It is also cleaned when some of it was cleaned, and once a second.
//! - Each time, two blocks in turn are cleaned, with their neighbours on the origin. Nothing is
//!   begun while 2 blocks of the set or 4 of the cache are being cleaned. In effect one piece of at
//!   most 256 KiB is cleaned at a time. Nothing slows down writers, however much is dirty.
//! - A request for a block that is being written, filled or cleaned waits. FLUSH does nothing (the
//!   real one refuses it).
//!
//! These are not modelled: writethrough and writearound, LRU, requests that are no whole blocks,
//! sequential bypass (off), lists of processes, Linux's elevator. Nor is the cleaning of blocks
//! that were not touched for 15 minutes (1 % of all cleaning).

mod clean;

use flashfront_engine::Time;
use hashbrown::HashMap;

use super::rig::{Io, Rig, Rival, SECOND_NS, Stats};
use super::spec::{Geometry, Spec};
use crate::policy::table::hash;
use crate::system::{Ask, System, SystemRequest};

/// flashcache with its default settings, as in the comparison of 2015.
pub(super) const FLASHCACHE: Spec = Spec {
    name: "flashcache",
    summary: "Facebook's flashcache, writeback, its defaults: sets of 512 blocks of 4 KiB, cleaned above 20 %",
    source: "facebookarchive/flashcache, documentation and code; geomflash, test_flashcache.log",
    cache_bytes_min: 0,
    build: |geometry| {
        let cache = Flashcache::new(geometry);
        Box::new(Rig::new(geometry, cache, |_, _| ())) as Box<dyn System>
    },
};

const BLOCK: u64 = 4096;
const SET: usize = 512;
/// Blocks of the origin that are in the same set.
const CLUSTER: u32 = 64;
/// Places that a block of metadata describes.
const PER_METADATA: usize = 256;
/// The dirty blocks of a set above which it is cleaned: 20 %.
const DIRTY_MAX: u16 = 102;
const CLEANING_IN_SET: u32 = 2;
const CLEANING_IN_ALL: u32 = 4;

/// The time of a block under the one lock that there is. Fitted to two loads of reads from the
/// cache. Random reads of 4 KiB gave 5.6 us (8,538 a second, the SSD alone 8,969). Sequential reads
/// of 128 KiB gave 5.9 us (270 MB/s, the SSD alone 448).
const BLOCK_NS: u64 = 5_800;
/// The time under the lock to clean a block, for each dirty block of its set: the set is searched
/// after each of them. And the time that cleaning a block takes beside that: another thread copies
/// each block of 4 KiB, which is read and written by itself. Both are fitted to the speed of
/// writers and of cleaning in tasks 7 to 9 of the comparison of 2015.
const CLEAN_DIRTY_NS: u64 = 150;
const CLEAN_NS: u64 = 45_000;

const NOTHING: u32 = u32::MAX;
const DIRTY: u8 = 1;
const BUSY: u8 = 2;

#[derive(Clone, Copy, Default)]
struct Set {
    /// Places that hold something.
    used: u16,
    dirty: u16,
    cleaning: u16,
    /// Where the searches for a clean place and for a dirty one to clean go on.
    next_clean: u16,
    next_dirty: u16,
}

/// Blocks that are neighbours on the origin.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The request's number, without meaning when cleaning.
    number: u64,
    block: u32,
    count: u32,
}

#[derive(Clone, Copy, Debug)]
enum Tag {
    Start(SystemRequest),
    /// A part of a request is over that is not cached, or was read from the cache.
    Served(u64),
    /// Blocks were read from the origin, to be cached.
    Missed(Run),
    /// A block of the run was written to the cache device.
    Filled(Run, usize),
    /// Blocks were written to the cache device. Metadata follows.
    Written(Run),
    /// Cleaning: a part was read, all was written to the origin, and the bookkeeping is over.
    CleanRead(Run),
    CleanWritten(Run),
    Cleaned(Run),
    /// A block of metadata was written.
    Metadata(usize),
    /// All sets are looked at.
    Sweep,
}

/// A change of state for which metadata is written.
#[derive(Clone, Copy)]
enum Change {
    Dirty(Run),
    Clean(Run),
}

struct Flashcache {
    /// The block in each place, and its state.
    blocks: Vec<u32>,
    states: Vec<u8>,
    sets: Vec<Set>,
    /// The bytes before the first place.
    metadata_bytes: u64,
    /// The number of blocks being cleaned.
    cleaning: u32,
    sweeps: bool,
    /// The moment from which the lock is free.
    free_at: Time,
    /// The number of parts left of each request.
    parts: HashMap<u64, u32>,
    /// The number of parts left of each run, by its first block.
    run_parts: HashMap<u32, u32>,
    /// Blocks of metadata being written. Each has the changes that are in it, and those that came
    /// since.
    metadata: HashMap<usize, (Vec<Change>, Vec<Change>)>,
    /// Requests that wait for a busy place: number, block, whether it is a write.
    waiting: HashMap<usize, Vec<(u64, u32, bool)>>,
    stats: Stats,
}

/// What becomes of a block of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Hit(usize),
    Put(usize),
    NoRoom,
    Wait(usize),
}

impl Flashcache {
    fn new(geometry: &Geometry) -> Self {
        let per_metadata = PER_METADATA as u64;
        let sets = (geometry.cache_bytes / BLOCK - 1) * per_metadata / (per_metadata + 1) / SET as u64;
        let places = sets as usize * SET;
        Self {
            blocks: vec![NOTHING; places],
            states: vec![0; places],
            sets: vec![Set::default(); sets as usize],
            metadata_bytes: BLOCK + places as u64 / per_metadata * BLOCK,
            cleaning: 0,
            sweeps: false,
            free_at: Time(0),
            parts: HashMap::new(),
            run_parts: HashMap::new(),
            metadata: HashMap::new(),
            waiting: HashMap::new(),
            stats: Stats::default(),
        }
    }

    fn set_of(&self, block: u32) -> usize {
        (hash(u64::from(block / CLUSTER)) % self.sets.len() as u64) as usize
    }

    fn place_at(&self, place: usize) -> u64 {
        self.metadata_bytes + place as u64 * BLOCK
    }

    /// The place of a block in a set, most likely `hint`.
    fn find(&self, set: usize, block: u32, hint: usize) -> Option<usize> {
        let places = set * SET..(set + 1) * SET;
        if places.contains(&hint) && self.blocks[hint] == block {
            return Some(hint);
        }
        const STEP: usize = 32;
        let parts = &mut self.blocks[places.clone()].chunks_exact(STEP);
        // An inner loop without an early exit is compiled to vector instructions.
        let part = parts.position(|part| part.iter().fold(false, |any, it| any | (*it == block)))?;
        let from = places.start + part * STEP;
        self.blocks[from..from + STEP].iter().position(|it| *it == block).map(|at| from + at)
    }

    /// A place for a new block: a free one, or the next clean one.
    fn room(&mut self, set: usize) -> Option<usize> {
        let first = set * SET;
        let it = &mut self.sets[set];
        if usize::from(it.used) < SET {
            it.used += 1;
            return Some(first + usize::from(it.used) - 1);
        }
        if usize::from(it.dirty) == SET {
            return None;
        }
        let from = usize::from(it.next_clean);
        let at = (from..SET).chain(0..from).find(|at| self.states[first + at] == 0);
        it.next_clean = ((at.unwrap_or(from) + 1) % SET) as u16;
        at.map(|at| first + at)
    }

    /// Decides what becomes of a block. A place that it gets is busy from now on.
    fn fate(&mut self, block: u32, hint: usize) -> Fate {
        let set = self.set_of(block);
        match self.find(set, block, hint) {
            Some(place) if self.states[place] & BUSY != 0 => Fate::Wait(place),
            Some(place) => Fate::Hit(place),
            None => match self.room(set) {
                Some(place) => {
                    self.blocks[place] = block;
                    self.states[place] = BUSY;
                    Fate::Put(place)
                }
                None => Fate::NoRoom,
            },
        }
    }

    /// Takes time under the lock. Returns how long it is until that is over.
    fn locked(&mut self, now: Time, ns: u64) -> u64 {
        self.free_at = self.free_at.max(now).plus_ns(ns);
        self.free_at.since_ns(now)
    }

    fn start(&mut self, number: u64, write: bool, blocks: std::ops::Range<u32>, io: &mut Io<Tag>) {
        let mut parts = 0;
        let mut cleans = false;
        let mut next = blocks.start;
        let mut hint = usize::MAX;
        let mut fate = self.fate(next, hint);
        while next < blocks.end {
            // A run has neighbours of the same fate. If it matters, they are neighbours in the
            // cache as well.
            let mut run = Run { number, block: next, count: 0 };
            let first = fate;
            loop {
                run.count += 1;
                next += 1;
                if let Fate::Hit(place) | Fate::Put(place) = fate {
                    hint = place + 1;
                    if write {
                        self.states[place] |= BUSY;
                    }
                }
                if next == blocks.end {
                    break;
                }
                fate = self.fate(next, hint);
                let goes_on = match (first, fate) {
                    (Fate::Hit(_), Fate::Hit(place)) => place == hint,
                    (Fate::Put(_), Fate::Put(place)) => !write || place == hint,
                    (Fate::NoRoom, Fate::NoRoom) => true,
                    _ => false,
                };
                if !goes_on {
                    break;
                }
            }
            parts += 1;
            cleans |= match first {
                Fate::Hit(_) => write,
                Fate::Put(_) | Fate::NoRoom => true,
                Fate::Wait(_) => false,
            };
            self.begin(run, first, write, io);
        }
        *self.parts.entry(number).or_insert(0) += parts;
        if !cleans {
            return;
        }
        for cluster in blocks.start / CLUSTER..blocks.end.div_ceil(CLUSTER) {
            self.clean(self.set_of(cluster * CLUSTER), io);
        }
    }

    fn begin(&mut self, run: Run, fate: Fate, write: bool, io: &mut Io<Tag>) {
        let (offset, len) = (u64::from(run.block) * BLOCK, u64::from(run.count) * BLOCK);
        match (fate, write) {
            (Fate::Hit(place), false) => {
                self.stats.read_hit_blocks += u64::from(run.count);
                io.read_cache(self.place_at(place), len, Tag::Served(run.number));
            }
            (Fate::Put(_), false) => io.read_origin(offset, len, Tag::Missed(run)),
            (Fate::NoRoom, false) => io.read_origin(offset, len, Tag::Served(run.number)),
            (Fate::Hit(place) | Fate::Put(place), true) => io.write_cache(self.place_at(place), len, Tag::Written(run)),
            (Fate::NoRoom, true) => io.write_origin(offset, len, Tag::Served(run.number)),
            (Fate::Wait(place), _) => self.waiting.entry(place).or_default().push((run.number, run.block, write)),
        }
    }

    fn served(&mut self, number: u64, io: &mut Io<Tag>) {
        let left = self.parts.get_mut(&number).expect("a request has parts until it is answered");
        *left -= 1;
        if *left == 0 {
            self.parts.remove(&number);
            io.answer(number);
        }
    }

    /// The places of a run that is in the cache.
    fn places(&self, run: Run) -> Vec<usize> {
        let mut hint = usize::MAX;
        let place = |block| {
            let place = self.find(self.set_of(block), block, hint).expect("a busy block stays where it is");
            hint = place + 1;
            place
        };
        (run.block..run.block + run.count).map(place).collect()
    }

    /// A place is no longer busy. Requests that waited for it may try again.
    fn free(&mut self, place: usize, state: u8, io: &mut Io<Tag>) {
        self.states[place] = state;
        if self.waiting.is_empty() {
            return;
        }
        for (number, block, write) in self.waiting.remove(&place).unwrap_or_default() {
            self.start(number, write, block..block + 1, io);
            self.served(number, io);
        }
    }

    fn update(&mut self, run: Run, change: Change, places: &[usize], io: &mut Io<Tag>) {
        let mut parts = 0;
        let mut last = usize::MAX;
        for place in places {
            let at = place / PER_METADATA;
            if at == last {
                continue;
            }
            (parts, last) = (parts + 1, at);
            if let Some((_, queued)) = self.metadata.get_mut(&at) {
                queued.push(change);
            } else {
                self.metadata.insert(at, (vec![change], Vec::new()));
                io.write_cache(BLOCK + at as u64 * BLOCK, BLOCK, Tag::Metadata(at));
            }
        }
        self.run_parts.insert(run.block, parts);
    }

    fn updated(&mut self, at: usize, io: &mut Io<Tag>) {
        let (written, queued) = self.metadata.remove(&at).expect("it was being written");
        if !queued.is_empty() {
            self.metadata.insert(at, (queued, Vec::new()));
            io.write_cache(BLOCK + at as u64 * BLOCK, BLOCK, Tag::Metadata(at));
        }
        for change in written {
            let (Change::Dirty(run) | Change::Clean(run)) = change;
            if !self.run_part_over(run) {
                continue;
            }
            let set = self.set_of(run.block);
            let places = self.places(run);
            match change {
                Change::Dirty(_) => {
                    for place in places {
                        self.sets[place / SET].dirty += u16::from(self.states[place] & DIRTY == 0);
                        self.stats.dirty_bytes += if self.states[place] & DIRTY == 0 { BLOCK } else { 0 };
                        self.free(place, DIRTY, io);
                    }
                    self.served(run.number, io);
                }
                Change::Clean(_) => {
                    self.sets[set].dirty -= run.count as u16;
                    self.sets[set].cleaning -= run.count as u16;
                    self.cleaning -= run.count;
                    self.stats.dirty_bytes -= u64::from(run.count) * BLOCK;
                    for place in places {
                        self.free(place, 0, io);
                    }
                    self.clean(set, io);
                }
            }
        }
    }

    fn run_part_over(&mut self, run: Run) -> bool {
        let left = self.run_parts.get_mut(&run.block).expect("a run has parts until it is over");
        *left -= 1;
        let over = *left == 0;
        if over {
            self.run_parts.remove(&run.block);
        }
        over
    }
}

impl Rival for Flashcache {
    type Tag = Tag;

    fn submit(&mut self, request: SystemRequest, io: &mut Io<Tag>) {
        if request.ask == Ask::Flush {
            io.answer(request.number);
            return;
        }
        if request.ask == Ask::Read {
            self.stats.read_blocks += request.len / BLOCK;
        }
        let ns = self.locked(io.now(), request.len / BLOCK * BLOCK_NS);
        io.after(ns, Tag::Start(request));
    }

    fn done(&mut self, tag: Tag, io: &mut Io<Tag>) {
        match tag {
            Tag::Start(SystemRequest { number, ask, offset, len }) => {
                let blocks = (offset / BLOCK) as u32..((offset + len) / BLOCK) as u32;
                self.start(number, ask == Ask::Write, blocks, io);
            }
            Tag::Served(number) => self.served(number, io),
            Tag::Missed(run) => {
                self.run_parts.insert(run.block, run.count);
                let mut hint = usize::MAX;
                for block in run.block..run.block + run.count {
                    let place = self.find(self.set_of(block), block, hint).expect("a busy block stays where it is");
                    hint = place + 1;
                    io.write_cache(self.place_at(place), BLOCK, Tag::Filled(run, place));
                }
            }
            Tag::Filled(run, place) => {
                self.free(place, 0, io);
                if self.run_part_over(run) {
                    self.served(run.number, io);
                }
            }
            Tag::Written(run) => {
                let places = self.places(run);
                let clean = places.iter().any(|place| self.states[*place] & DIRTY == 0);
                if clean {
                    self.update(run, Change::Dirty(run), &places, io);
                } else {
                    for place in places {
                        self.free(place, DIRTY, io);
                    }
                    self.served(run.number, io);
                }
            }
            Tag::CleanRead(run) => {
                if self.run_part_over(run) {
                    let (offset, len) = (u64::from(run.block) * BLOCK, u64::from(run.count) * BLOCK);
                    io.write_origin(offset, len, Tag::CleanWritten(run));
                }
            }
            Tag::CleanWritten(run) => {
                let searched = u64::from(self.sets[self.set_of(run.block)].dirty);
                let count = u64::from(run.count);
                let ns = self.locked(io.now(), count * searched * CLEAN_DIRTY_NS) + count * CLEAN_NS;
                io.after(ns, Tag::Cleaned(run));
            }
            Tag::Cleaned(run) => {
                let places = self.places(run);
                self.update(run, Change::Clean(run), &places, io);
            }
            Tag::Metadata(at) => self.updated(at, io),
            Tag::Sweep => {
                self.sweeps = false;
                for set in 0..self.sets.len() {
                    self.clean(set, io);
                    if self.sweeps {
                        break;
                    }
                }
            }
        }
    }

    fn stats(&self) -> Stats {
        self.stats
    }
}

#[cfg(test)]
mod tests;
