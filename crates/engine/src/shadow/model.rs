// SPDX-License-Identifier: MIT OR Apache-2.0
//! A model of the cache: the policy over a log, without data, devices and time.
//!
//! The log is the cache. A block that is rewritten leaves a hole until its segment is reclaimed.
//! Free and half-full segments hold nothing, and what is copied forward counts. As in the engine,
//! segments with little in them go first, and what clients wrote there is moved. The model has a
//! window, too.
//!
//! The model differs from the engine:
//! - There are no commit headers (0.4 % of a segment), and there is one lane.
//! - Dirty blocks are taken for destaged when their segment is reclaimed.
//! - Neighbours of a miss ([`Shape::read_around_blocks`]) come into the window also while there is
//!   room, and from beyond the origin's end. They come when the request is over.
//! - A model that sees a sample of such units sees what lies in them. [`Unseen`] others take the
//!   places in its window.
//!
//! `sim` replays traces against the model, and the shadow runs small ones of it.

mod log;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use super::totals::{Occupancy, Totals};
use super::unseen::Unseen;
use crate::fact::types::Time;
use crate::organ::budget::Budget;
use crate::organ::chains::Chains;
use crate::organ::locality::begin_of_unit;
use crate::organ::sparse::Sparse;
use crate::policy::{self, Capacity, HITS_MAX, Hold, Policy, Window, Zone};

/// What a model is made of.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Segments of the log.
    pub segments: u32,
    /// Blocks of each.
    pub segment_blocks: u32,
    /// Segments that reclaim keeps free; with only one nothing is copied forward.
    pub free_segments: u32,
    /// Blocks of the window.
    pub window_blocks: usize,
    /// For how many blocks each stands: 1, but in a model that sees a sample.
    pub stands_for: u32,
    /// Blocks that are read around a miss, as from a disk: 1 for none. A model that sees a sample
    /// sees all blocks of such a unit, or none.
    pub read_around_blocks: u64,
}

impl Shape {
    /// Blocks of the log.
    #[must_use]
    pub fn blocks(self) -> u64 {
        u64::from(self.segments) * u64::from(self.segment_blocks)
    }
}

/// What became of an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaction {
    /// The block was in the cache, or in the window.
    pub hit: bool,
    /// The block was in the window.
    pub waited: bool,
    /// The block was not in the cache, and now is.
    pub admitted: bool,
}

/// A cache that knows which blocks it would hold.
pub struct Model {
    policy: Box<dyn Policy>,
    window: Window,
    blocks: Chains,
    /// Slot of the log -> key.
    owners: Vec<u64>,
    /// Slot of the log -> what is known of the block.
    notes: Vec<Note>,
    segment_blocks: usize,
    /// What each segment is filled with.
    zones: Vec<Zone>,
    /// Blocks that are in each segment, and whether it is full and not under reclaim.
    live: Vec<(u32, bool)>,
    /// Blocks that are in all of them.
    live_all: u64,
    sparse: Sparse,
    free: Vec<u32>,
    /// Segments that were used at all: memory is for these.
    begun: u32,
    segments: u32,
    free_wanted: usize,
    /// Each zone's open segment, and how much of it is used.
    open: [Option<(u32, usize)>; 2],
    /// Never needed to drop a block yet.
    room: bool,
    evicted: Vec<u64>,
    read_around_blocks: u64,
    /// Runs of blocks that this request missed.
    missed: Vec<Range<u64>>,
    unseen: Unseen,
    /// What may be written to flash, if that is bounded, and the time.
    budget: Option<Budget>,
    now: Time,
    totals: Totals,
    dirty: u64,
    /// Blocks that were written once more because little else was live in their segment.
    cleaned: u64,
}

#[derive(Clone, Copy, Default)]
struct Note {
    hits: u8,
    dirty: bool,
}

impl Model {
    /// An empty cache of that shape under a policy.
    #[must_use]
    pub fn new(shape: Shape, policy: policy::Build) -> Self {
        let Shape { segments, segment_blocks, free_segments, window_blocks, stands_for, read_around_blocks } = shape;
        Self {
            policy: policy(Capacity { segments, segment_blocks, stands_for }),
            window: Window::of(window_blocks),
            blocks: Chains::default(),
            owners: Vec::new(),
            notes: Vec::new(),
            segment_blocks: segment_blocks as usize,
            zones: Vec::new(),
            live: Vec::new(),
            live_all: 0,
            sparse: Sparse::default(),
            free: Vec::new(),
            begun: 0,
            segments,
            free_wanted: free_segments as usize,
            open: [None; 2],
            room: true,
            evicted: Vec::new(),
            read_around_blocks,
            missed: Vec::new(),
            unseen: Unseen::beside(stands_for),
            budget: None,
            now: Time(0),
            totals: Totals::default(),
            dirty: 0,
            cleaned: 0,
        }
    }

    /// A block is read.
    pub fn read(&mut self, key: u64) -> Reaction {
        self.evicted.clear();
        self.totals.accesses += 1;
        self.totals.reads += 1;
        let outcome = if let Some(slot) = self.find(key) {
            self.touch(slot);
            Reaction { hit: true, ..Reaction::default() }
        } else {
            self.read_missed(key)
        };
        self.totals.hits += u64::from(outcome.hit);
        self.totals.read_hits += u64::from(outcome.hit);
        self.totals.origin_read_blocks += u64::from(!outcome.hit);
        outcome
    }

    /// A block is read by a stream that passes the cache.
    pub fn read_past(&mut self, key: u64) {
        self.evicted.clear();
        let found = self.find(key);
        if let Some(slot) = found {
            self.touch(slot);
        }
        let hit = found.is_some() || self.wait_again(key);
        self.totals.accesses += 1;
        self.totals.reads += 1;
        self.totals.hits += u64::from(hit);
        self.totals.read_hits += u64::from(hit);
        self.totals.origin_read_blocks += u64::from(!hit);
    }

    /// A block is written, in writeback mode.
    pub fn write(&mut self, key: u64) -> Reaction {
        self.evicted.clear();
        let found = self.find(key);
        let waited = found.is_none() && self.window.find(key).is_some();
        let hits = self.write_hits(key, found).unwrap_or_else(|| self.policy.write_missed(key));
        let was_dirty = found.is_some_and(|slot| self.notes[slot as usize].dirty);
        self.dirty += u64::from(!was_dirty);
        self.append(key, Zone::Writes, Note { hits, dirty: true });
        self.totals.absorbed_blocks += 1;
        self.reclaim();
        let outcome = Reaction { hit: found.is_some() || waited, waited, admitted: found.is_none() };
        self.totals.accesses += 1;
        self.totals.hits += u64::from(outcome.hit);
        self.totals.write_hits += u64::from(found.is_some());
        outcome
    }

    /// A block is written, in writethrough mode. The block is kept if it was there, else offered
    /// like a block that was read.
    pub fn write_through(&mut self, key: u64) {
        self.evicted.clear();
        let found = self.find(key);
        let waited = found.is_none() && self.window.find(key).is_some();
        self.totals.accesses += 1;
        self.totals.hits += u64::from(found.is_some() || waited);
        self.totals.origin_write_blocks += 1;
        if let Some(hits) = self.write_hits(key, found) {
            self.clean(found);
            self.append(key, Zone::Main, Note { hits, dirty: false });
            self.totals.fill_blocks += 1;
            self.reclaim();
        } else {
            self.offer(key);
        }
    }

    /// A block is written past the cache, which forgets it.
    pub fn write_past(&mut self, key: u64) {
        self.evicted.clear();
        self.totals.accesses += 1;
        self.totals.origin_write_blocks += 1;
        self.window.forget(key..key + 1);
        if let Some(slot) = self.find(key) {
            self.clean(Some(slot));
            self.remove(slot);
            self.evicted.push(key);
        }
    }

    /// Limits the bytes that are written to flash in a day, as far as reads can be declined. The
    /// daemon's `flash_writes_per_day` also counts commit headers and checkpoints.
    pub const fn limit_flash_writes(&mut self, bytes_per_day: u64) {
        self.budget = Some(Budget::new(bytes_per_day, self.now));
    }

    /// What is asked for next is asked for then; only a budget needs to know.
    pub const fn time_is(&mut self, now: Time) {
        self.now = now;
    }

    /// Holds the policy's gate open, or lets go of it.
    pub fn hold_gate(&mut self, hold: Hold) {
        self.policy.hold_gate(hold);
    }

    /// The blocks that the last access drove out.
    #[must_use]
    pub fn evicted(&self) -> &[u64] {
        &self.evicted
    }

    /// What was counted, and what is still dirty written to the origin.
    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals { origin_write_blocks: self.totals.origin_write_blocks + self.dirty, ..self.totals }
    }

    /// What its log holds now.
    #[must_use]
    pub fn occupancy(&self) -> Occupancy {
        let full = self.live.iter().filter(|(_, full)| *full).count() * self.segment_blocks;
        let open: usize = self.open.iter().flatten().map(|(_, used)| used).sum();
        let dead_blocks = (full + open) as u64 - self.live_all;
        Occupancy { live_blocks: self.live_all, dead_blocks, cleaned_blocks: self.cleaned }
    }

    /// Whether it has needed to drop a block: until then all is kept that is asked for.
    #[must_use]
    pub fn filled(&self) -> bool {
        !self.room
    }

    /// Memory it takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let slots = self.owners.capacity() * size_of::<u64>() + self.notes.capacity() * size_of::<Note>();
        // A segment is in a queue of the policy too, which has room for twice as many.
        let segments = self.zones.capacity() + self.free.capacity() * size_of::<u32>();
        let segments = segments + self.live.capacity() * size_of::<(u32, bool)>();
        let evicted = self.evicted.capacity() * size_of::<u64>();
        let tables = (slots + segments + evicted) as u64 + self.sparse.bytes();
        tables + self.blocks.bytes() + self.window.bytes() + self.policy.bytes()
    }

    fn find(&self, key: u64) -> Option<u32> {
        self.blocks.find(key, &self.owners)
    }

    fn touch(&mut self, slot: u32) {
        let note = &mut self.notes[slot as usize];
        note.hits = (note.hits + 1).min(HITS_MAX);
    }

    /// A block that is dirty is written to the origin.
    fn clean(&mut self, slot: Option<u32>) {
        let Some(slot) = slot else { return };
        if core::mem::take(&mut self.notes[slot as usize].dirty) {
            self.dirty -= 1;
            self.totals.origin_write_blocks += 1;
        }
    }

    /// The hits with which a block is written anew. `None`: the block was not there, and the window
    /// forgets it.
    fn write_hits(&mut self, key: u64, found: Option<u32>) -> Option<u8> {
        if let Some(slot) = found {
            let zone = self.zones[slot as usize / self.segment_blocks];
            return Some(self.policy.rewritten(zone, self.notes[slot as usize].hits));
        }
        self.window.forget(key..key + 1);
        None
    }

    /// Whether a block waits in the window, where it is seen once more.
    fn wait_again(&mut self, key: u64) -> bool {
        let Some(place) = self.window.find(key) else { return false };
        self.window.read(place, &mut *self.policy);
        true
    }

    fn read_missed(&mut self, key: u64) -> Reaction {
        let Some(place) = self.window.find(key) else {
            match self.missed.last_mut() {
                _ if self.read_around_blocks <= 1 => {}
                Some(run) if run.end == key => run.end += 1,
                _ => self.missed.push(key..key + 1),
            }
            return Reaction { admitted: self.offer(key), ..Reaction::default() };
        };
        let mut admitted = false;
        if self.window.read(place, &mut *self.policy) {
            match self.admit(key) {
                Ok(()) => {
                    self.window.forget(key..key + 1);
                    admitted = true;
                }
                Err(seen) => self.window.stays(place, seen),
            }
        }
        Reaction { hit: true, waited: true, admitted }
    }

    /// Ends a request: neighbours of its misses come, by one read for each run, as in
    /// [`crate::act::neighbours`]. Returns how many more blocks were read than were missed.
    pub fn neighbours_come(&mut self) -> u64 {
        self.neighbours_come_of(0..0)
    }

    /// Neighbours come of a request for these blocks, in a model that sees a sample of the units.
    /// Blocks of other units are taken for missed beside a block that was missed, and nothing comes
    /// there.
    pub(super) fn neighbours_come_of(&mut self, asked: Range<u64>) -> u64 {
        let (mut more, around) = (0, self.read_around_blocks);
        let mut last_unit = None;
        let missed = core::mem::take(&mut self.missed);
        for run in &missed {
            let (run, seen) = self.completed(run.clone(), &asked);
            let unit = run.start / around;
            let begin = begin_of_unit(run.start, run.end, around);
            // Of two runs in one unit the second waits for the first one's read, and is no
            // neighbour.
            if run.end - run.start >= around || last_unit == Some(unit) || !self.window.wants_neighbours(unit) {
                continue;
            }
            last_unit = Some(unit);
            let absent = |key: &u64| self.find(*key).is_none() && self.window.find(*key).is_none();
            let start = (begin.max(seen.start)..run.start).find(absent).unwrap_or(run.start);
            let end = (run.end..(begin + around).min(seen.end)).rev().find(absent).map_or(run.end, |last| last + 1);
            more += (run.start - start) + (end - run.end);
            for key in (start..run.start).chain(run.end..end) {
                if self.find(key).is_none() && self.window.find(key).is_none() {
                    self.neighbour_comes(key);
                }
            }
        }
        self.forget_missed(missed);
        self.totals.origin_read_blocks += more;
        more
    }

    /// A run that was missed with what is not seen of it, and the blocks that are seen.
    fn completed(&self, mut run: Range<u64>, asked: &Range<u64>) -> (Range<u64>, Range<u64>) {
        if !self.unseen.exist() {
            return (run, 0..u64::MAX);
        }
        let unit = run.start / self.read_around_blocks * self.read_around_blocks;
        let seen = unit..unit + self.read_around_blocks;
        if run.start == seen.start {
            run.start = run.start.min(asked.start);
        }
        if run.end == seen.end {
            run.end = run.end.max(asked.end);
        }
        (run, seen)
    }

    fn neighbour_comes(&mut self, key: u64) {
        self.unseen.one_came();
        if let Some((_, Some((key, seen)))) = self.window.put_neighbour(key) {
            self.policy.left_window(key, seen);
        }
    }

    /// The request is over, and no neighbours come.
    pub(super) fn alone(&mut self) {
        let missed = core::mem::take(&mut self.missed);
        self.forget_missed(missed);
    }

    /// Its memory is kept.
    fn forget_missed(&mut self, mut missed: Vec<Range<u64>>) {
        missed.clear();
        self.missed = missed;
    }

    /// The whole cache was asked for `accesses` blocks since this was last told.
    pub(super) fn time_passes(&mut self, accesses: u64) {
        let others = self.unseen.pass(accesses);
        self.window.others_come(others, &mut *self.policy);
    }

    /// Puts a clean block that is not in the log there, if the policy admits the block. Else
    /// returns how often it was seen.
    fn admit(&mut self, key: u64) -> Result<(), u8> {
        let verdict = self.policy.missed(key, self.room);
        if !verdict.admit {
            return Err(verdict.seen);
        }
        if self.budget.as_mut().is_some_and(|budget| !budget.allows(self.now)) {
            return Err(self.policy.refused(verdict.seen));
        }
        self.append(key, Zone::Main, Note::default());
        self.totals.fill_blocks += 1;
        self.reclaim();
        Ok(())
    }

    /// Offers the policy a clean block that is nowhere; returns whether it is in the log now.
    fn offer(&mut self, key: u64) -> bool {
        let Err(seen) = self.admit(key) else { return true };
        self.unseen.one_came();
        match self.window.put(key, seen) {
            Some((_, None)) => {}
            Some((_, Some((key, seen)))) => self.policy.left_window(key, seen),
            None => self.policy.left_window(key, seen),
        }
        false
    }
}
