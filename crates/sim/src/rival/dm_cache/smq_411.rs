// SPDX-License-Identifier: MIT OR Apache-2.0
//! dm-cache's policy smq before Linux 4.12 has the queues of the [policy](crate::policy::smq) of
//! that name, and other rules.
//!
//! - Regions count hits, too, not only misses.
//! - A hit on a block counts once in 10 s. Levels get equal lengths again as often. (Since 4.12:
//!   once a minute.)
//! - While the cache is full the promote level depends on the requests of these 10 s. The share of
//!   them that hit blocks in the top quarter of levels, in sixteenths, chooses a number of levels
//!   ([`PROMOTED_LEVELS`]). Regions in that many top levels are promoted if regions foretell well,
//!   else only in half or a quarter of them. So only the very busiest regions are promoted.
//! - A promotion into a full cache throws out a clean block at once. It is the oldest of the lowest
//!   level, among blocks that have been in their level for 60 to 120 s. If there is none, nothing
//!   is promoted.
//! - A promoted block begins at the lowest level. So it is the next to go, after those that came
//!   before it. (Since 4.12 it begins at the top.)
//! - Dirty blocks are copied back from the lowest level, 10 to 20 s after they came there. When
//!   idle they are copied back from all levels.
//!
//! The other threshold for writes is not modelled, nor that a twentieth of the cache is kept clean.

use super::until_411::{Chance, Policy, Verdict};
use crate::policy::smq::queue::{LEVELS, Unit};
use crate::policy::smq::{Confidence, Smq as Rules};

/// The number of levels of regions that are promoted into a full cache. The index is the share of
/// requests that hit blocks in the top quarter of levels, in sixteenths.
const PROMOTED_LEVELS: [u8; 17] = [1, 1, 1, 2, 4, 6, 7, 8, 7, 6, 4, 4, 3, 3, 2, 2, 1];

pub(super) struct Smq {
    rules: Rules,
    dirty: u64,
    /// Requests of these 10 s, and those that hit blocks in the top quarter of levels.
    requests: u64,
    on_top: u64,
    period: u32,
    next_demotion_ns: u64,
}

const HITS_PERIOD_NS: u64 = 10_000_000_000;
const DEMOTE_PERIOD_NS: u64 = 60_000_000_000;

impl Smq {
    pub(super) fn new(places: usize, origin_blocks: u64) -> Self {
        let mut rules = Rules::of_origin(places, origin_blocks);
        rules.hits_period_ns = HITS_PERIOD_NS;
        Self { rules, dirty: 0, requests: 0, on_top: 0, period: 0, next_demotion_ns: DEMOTE_PERIOD_NS }
    }

    fn is_full(&self) -> bool {
        self.rules.units.len() == self.rules.capacity
    }

    /// Puts a block into the cache, at a level.
    fn insert(&mut self, block: u64, level: u8) -> u32 {
        let unit = Unit { level, dirty: false, since: 0, hit: self.rules.vacated_hit };
        let slot = self.rules.units.insert(block, unit);
        self.rules.clean.push(&mut self.rules.units, slot);
        slot
    }

    /// Throws out the oldest clean block that has been in its level for long enough.
    fn demote(&mut self) -> bool {
        let rules = &mut self.rules;
        let Some(slot) = rules.clean.oldest(LEVELS, true) else { return false };
        rules.clean.remove(&mut rules.units, slot);
        rules.vacated_hit = rules.units[slot].hit;
        rules.units.remove(slot);
        true
    }

    fn admit(&mut self, block: u64, overwrites: bool, chance: Chance) -> Verdict {
        let is_full = self.is_full();
        // With `Later` the request is asked again, and must not have been noted before. So the
        // level is looked at first.
        let level = if chance == Chance::Later { self.rules.level_of(block) } else { self.rules.miss(block) };
        if level < self.rules.promote_level && (is_full || !overwrites) {
            if chance == Chance::Later {
                self.rules.miss(block);
            }
            return Verdict::Miss;
        }
        match chance {
            Chance::Later => return Verdict::Later,
            Chance::Never => return Verdict::Miss,
            Chance::Now => (),
        }
        if is_full && !self.demote() {
            return Verdict::Miss;
        }
        Verdict::Promote { place: self.insert(block, 0), demotes: is_full }
    }
}

impl Policy for Smq {
    fn ask(&mut self, _now_ns: u64, block: u64, write: bool, whole: bool, chance: Chance) -> Verdict {
        let found = self.rules.units.find(block);
        self.requests += 1;
        let on_top = found.is_some_and(|slot| self.rules.units[slot].level >= LEVELS / 4 * 3);
        self.on_top += u64::from(on_top);
        if let Some(slot) = found {
            self.rules.miss(block);
            self.rules.hit(slot, false);
            return Verdict::Hit(slot);
        }
        self.admit(block, write && whole, chance)
    }

    fn dirtied(&mut self, block: u64) {
        let rules = &mut self.rules;
        let slot = rules.units.find(block).expect("what is written in the cache is there");
        if !rules.units[slot].dirty {
            rules.clean.remove(&mut rules.units, slot);
            rules.units[slot].dirty = true;
            rules.dirty.push(&mut rules.units, slot);
            self.dirty += 1;
        }
    }

    fn next_writeback(&mut self, idle: bool) -> Option<(u64, u32)> {
        let slot = self.rules.dirty.oldest(if idle { LEVELS } else { 1 }, true)?;
        self.rules.write_back(slot);
        self.dirty -= 1;
        Some((self.rules.units.key(slot), slot))
    }

    fn tick(&mut self, now_ns: u64) {
        if now_ns > self.next_demotion_ns {
            self.next_demotion_ns = now_ns + DEMOTE_PERIOD_NS;
            self.rules.clean.next_period(&mut self.rules.units);
        }
        self.rules.tick(now_ns);
        let levels = if self.is_full() {
            PROMOTED_LEVELS[(16 * self.on_top).checked_div(self.requests).unwrap_or(0) as usize]
        } else {
            LEVELS / 2
        };
        self.rules.promote_level = LEVELS
            - match self.rules.confidence() {
                Confidence::Poor => levels / 4,
                Confidence::Fair => levels / 2,
                Confidence::Well => levels,
            };
        if self.period != self.rules.hits_period {
            self.period = self.rules.hits_period;
            (self.requests, self.on_top) = (0, 0);
        }
    }

    fn dirty(&self) -> u64 {
        self.dirty
    }
}
