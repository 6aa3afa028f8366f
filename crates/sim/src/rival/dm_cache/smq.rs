// SPDX-License-Identifier: MIT OR Apache-2.0
//! dm-cache's policy smq in the target: the rules are those of the [policy](crate::policy) of that name, here with the target's ticks, and also as
//! they were before Linux 4.12.
//!
//! Since 4.12: as described there. A promotion into a full cache only makes room; the block itself isn't promoted this time.
//! Before that:
//!
//! - Regions count hits, too, not only misses.
//! - While the cache is full the promote level hangs on how many of the requests of this minute hit blocks in the top quarter of levels (0 to 16
//!   sixteenths: [`PROMOTED_LEVELS`]); with some of the levels above that: all of them if the regions foretell well, half or a quarter if not. That leaves
//!   nearly nothing of them, so that only the very busiest regions are promoted.
//! - A promotion into a full cache throws out the oldest clean block of the lowest level at once.
//! - What is promoted begins at the lowest level, so that it is the next to go but for those that came before it. (Since 4.12: at the top.)
//! - Dirty blocks are copied back from the lowest level, 10 to 20 s after they came there; when idle from all.
//!
//! Not modelled: the other threshold for writes before 4.12, and that a twentieth of the cache is kept clean then.

use super::{Chance, Policy, Verdict};
use crate::policy::smq::queue::{LEVELS, Unit};
use crate::policy::smq::{Confidence, Smq as Rules};
use crate::policy::table::Slot;

/// Which rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Before412,
    Since412,
}

/// Before 4.12, by sixteenths of requests that hit blocks in the top quarter of levels: how many levels of regions are promoted into a full cache.
const PROMOTED_LEVELS: [u8; 17] = [1, 1, 1, 2, 4, 6, 7, 8, 7, 6, 4, 4, 3, 3, 2, 2, 1];

pub(super) struct Smq {
    rules: Rules,
    version: Version,
    dirty: u64,
    /// One that must be made clean.
    forced: Option<Slot>,
    /// Requests of this minute, and those that hit blocks in the top quarter of levels.
    requests: u64,
    on_top: u64,
    period: u32,
}

impl Smq {
    pub(super) fn new(places: usize, version: Version) -> Self {
        let rules = Rules::new(places, false);
        Self { rules, version, dirty: 0, forced: None, requests: 0, on_top: 0, period: 0 }
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

    /// Throws out the oldest clean block below a level.
    fn demote(&mut self, below: u8) -> bool {
        let rules = &mut self.rules;
        let Some(slot) = rules.clean.oldest(below, false) else { return false };
        rules.clean.remove(&mut rules.units, slot);
        rules.vacated_hit = rules.units[slot].hit;
        rules.units.remove(slot);
        true
    }

    fn ask_since_412(&mut self, block: u64, overwrites: bool, chance: Chance) -> Verdict {
        let level = self.rules.miss(block);
        let is_full = self.is_full();
        if chance == Chance::Never || (level < self.rules.promote_level && (is_full || !overwrites)) {
            return Verdict::Miss;
        }
        if !is_full {
            return Verdict::Promote { place: self.insert(block, LEVELS - 1), demotes: false };
        }
        if self.demote(LEVELS / 2) {
            return Verdict::MissAndDemote;
        }
        self.forced = self.forced.or(self.rules.dirty.oldest(LEVELS, true));
        Verdict::Miss
    }

    fn ask_before_412(&mut self, block: u64, overwrites: bool, chance: Chance) -> Verdict {
        let is_full = self.is_full();
        // Asked again it must be as if it had not been noted: the level is looked at first.
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
        if is_full && !self.demote(LEVELS) {
            return Verdict::Miss;
        }
        Verdict::Promote { place: self.insert(block, 0), demotes: is_full }
    }
}

impl Policy for Smq {
    fn ask(&mut self, _now_ns: u64, block: u64, write: bool, whole: bool, chance: Chance) -> Verdict {
        let found = self.rules.units.find(block);
        if self.version == Version::Before412 {
            self.requests += 1;
            let on_top = found.is_some_and(|slot| self.rules.units[slot].level >= LEVELS / 4 * 3);
            self.on_top += u64::from(on_top);
        }
        if let Some(slot) = found {
            if self.version == Version::Before412 {
                self.rules.miss(block);
            }
            self.rules.hit(slot, false);
            return Verdict::Hit(slot);
        }
        match self.version {
            Version::Since412 => self.ask_since_412(block, write && whole, chance),
            Version::Before412 => self.ask_before_412(block, write && whole, chance),
        }
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
        let levels = match (self.version, idle) {
            (_, true) => LEVELS,
            (Version::Before412, false) => 1,
            (Version::Since412, false) => 0,
        };
        let only_settled = self.version == Version::Before412 || !idle;
        let forced = self.forced.take().filter(|slot| self.rules.units[*slot].dirty);
        let slot = forced.or_else(|| self.rules.dirty.oldest(levels, only_settled))?;
        self.rules.write_back(slot);
        self.dirty -= 1;
        Some((self.rules.units.key(slot), slot))
    }

    fn tick(&mut self, now_ns: u64) {
        self.rules.tick(now_ns);
        if self.version == Version::Since412 {
            return;
        }
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
