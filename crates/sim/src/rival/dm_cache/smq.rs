// SPDX-License-Identifier: MIT OR Apache-2.0
//! dm-cache's policy smq since Linux 4.12 serves the [target](super::since_412). Its rules are
//! those of the [policy](crate::policy::smq) of that name, with the target's ticks. What it wants
//! to have done takes its time.
//!
//! - A block that is being promoted has its place, and still misses, which count for its region. It
//!   comes to the top level when it is there.
//! - A block that is being demoted or copied back is in no queue meanwhile: it can't be chosen
//!   again, and hits don't move it.
//! - In a full cache each miss that should be promoted asks for a demotion. It does so as long as
//!   less than a quarter of the places are on their way to be free.

use hashbrown::HashSet;

use crate::policy::smq::Smq as Rules;
use crate::policy::smq::queue::{LEVELS, Unit};
use crate::policy::table::Slot;

/// Works at once, at most (`btracker_create`).
const WORKS_MAX: usize = 4096;
/// While so much is free or becomes so nothing more is thrown out (`FREE_TARGET`).
const FREE_PERCENT: u64 = 25;

/// A kind of work on a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Promote,
    Demote,
    WriteBack,
}

/// Something to be done. Blocks are numbered as on the origin, places as on the cache device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) kind: Kind,
    pub(super) block: u64,
    pub(super) place: u32,
}

pub(super) struct Smq {
    rules: Rules,
    /// What is being promoted; what is being worked at otherwise.
    promoting: HashSet<Slot>,
    pending: HashSet<Slot>,
    demoting: u64,
    dirty: u64,
}

impl Smq {
    pub(super) fn new(places: usize, origin_blocks: u64) -> Self {
        let rules = Rules::of_origin(places, origin_blocks);
        Self { rules, promoting: HashSet::new(), pending: HashSet::new(), demoting: 0, dirty: 0 }
    }

    pub(super) fn places(&self) -> u64 {
        self.rules.capacity as u64
    }

    pub(super) fn dirty_blocks(&self) -> u64 {
        self.dirty
    }

    pub(super) fn tick(&mut self, now_ns: u64) {
        self.rules.tick(now_ns);
    }

    /// A request for a block, perhaps one that overwrites all of it: where it is cached, and what
    /// shall be done besides.
    pub(super) fn ask(&mut self, block: u64, overwrites: bool) -> (Option<u32>, Option<Work>) {
        let found = self.rules.units.find(block);
        if let Some(place) = found.filter(|place| !self.promoting.contains(place)) {
            if !self.pending.contains(&place) {
                self.rules.hit(place, false);
            }
            return (Some(place), None);
        }
        let level = self.rules.miss(block);
        let is_full = self.rules.units.len() == self.rules.capacity;
        if level < self.rules.promote_level && (is_full || !overwrites) {
            return (None, None);
        }
        let work = if self.promoting.len() + self.pending.len() >= WORKS_MAX {
            None
        } else if is_full {
            self.make_room()
        } else {
            found.is_none().then(|| self.promote(block))
        };
        (None, work)
    }

    fn promote(&mut self, block: u64) -> Work {
        let unit = Unit { level: LEVELS - 1, dirty: false, since: 0, hit: self.rules.vacated_hit };
        let place = self.rules.units.insert(block, unit);
        self.promoting.insert(place);
        Work { kind: Kind::Promote, block, place }
    }

    /// Demotes the oldest clean block of the lower half of levels; without one a settled dirty one
    /// shall become clean.
    fn make_room(&mut self) -> Option<Work> {
        if self.demoting >= self.places() * FREE_PERCENT / 100 {
            return None;
        }
        let rules = &mut self.rules;
        let Some(place) = rules.clean.oldest(LEVELS / 2, false) else { return self.write_back(true) };
        rules.clean.remove(&mut rules.units, place);
        self.pending.insert(place);
        self.demoting += 1;
        Some(Work { kind: Kind::Demote, block: self.rules.units.key(place), place })
    }

    /// The oldest dirty block, if nothing was asked for a second.
    pub(super) fn next_writeback(&mut self) -> Option<Work> {
        self.write_back(false)
    }

    fn write_back(&mut self, only_settled: bool) -> Option<Work> {
        let rules = &mut self.rules;
        let place = rules.dirty.oldest(LEVELS, only_settled)?;
        rules.dirty.remove(&mut rules.units, place);
        self.pending.insert(place);
        Some(Work { kind: Kind::WriteBack, block: self.rules.units.key(place), place })
    }

    pub(super) fn complete(&mut self, work: Work) {
        let (rules, place) = (&mut self.rules, work.place);
        match work.kind {
            Kind::Promote => {
                self.promoting.remove(&place);
                rules.clean.push(&mut rules.units, place);
            }
            Kind::Demote => {
                self.pending.remove(&place);
                self.demoting -= 1;
                rules.vacated_hit = rules.units[place].hit;
                rules.units.remove(place);
            }
            Kind::WriteBack => {
                self.pending.remove(&place);
                self.dirty -= 1;
                rules.units[place].dirty = false;
                rules.clean.push(&mut rules.units, place);
            }
        }
    }

    /// The block at this place was written.
    pub(super) fn dirtied(&mut self, place: u32) {
        debug_assert!(!self.pending.contains(&place), "a block that is worked at is locked against writes");
        let rules = &mut self.rules;
        if !rules.units[place].dirty {
            rules.clean.remove(&mut rules.units, place);
            rules.units[place].dirty = true;
            rules.dirty.push(&mut rules.units, place);
            self.dirty += 1;
        }
    }
}
