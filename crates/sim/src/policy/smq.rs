// SPDX-License-Identifier: MIT OR Apache-2.0
//! This is dm-cache's policy SMQ as it is in Linux since 4.12, in mode writeback.
//!
//! The sources are `drivers/md/dm-cache-policy-smq.c` and `dm-cache-target.c`, which lvmcache uses.
//! These rules decide what the cache keeps:
//!
//! - A miss goes to the origin. Once a tick it moves its region of 16 units up in the queue of
//!   regions, by 1, 2 or 4 levels. The unit is promoted if the region is on the promote level or
//!   above. Promoted units start at the top level.
//! - The promote level depends on the misses of the last second. It is 0 if at least an eighth of
//!   them fell on regions in the top quarter of levels. It is 32 if a sixteenth did, else 48. A
//!   table should raise it by the cache's own hit ratio, and has no effect. Since 4.12 its result,
//!   at most 32, is used as `max(result, 64)`.
//! - If the cache is full, a miss that should be promoted is not. It only has the oldest clean unit
//!   of the lower 32 levels thrown out. If there is none, it has a dirty unit copied to the origin,
//!   which has been dirty for 10 to 20 seconds. So in the steady state at most every second miss is
//!   promoted, and fewer with many dirty units.
//! - Hits count once a minute: the unit goes up one level, in exchange for a unit that goes down.
//! - After a second without requests all dirty units are copied to the origin.
//!
//! Ticks come each second, and whenever a chosen request completes; then the next request is
//! chosen. Here a tick comes with the first access that is a millisecond after the last tick, or
//! after 32 accesses. A SATA disk takes as many at once.
//!
//! The model is kinder than the kernel. Copying takes no time and is never throttled
//! (`migration_threshold`), so a promoted unit is there at the next access. Three things are
//! missing:
//!
//! - Discards.
//! - Writes of a whole unit, with units larger than 4 KiB. The kernel promotes them without a copy
//!   while there is room.
//! - Regions smaller than 16 units, in replays. The kernel has them if all regions together would
//!   cover more than the origin.

pub(crate) mod queue;

use flashfront_engine::policy::Spec;

use self::queue::{LEVELS, Queue, Unit};
use super::contract::{Access, Build, Changes, Policy};
use super::table::{Slot, Table};

pub(super) const SPEC: Spec<Build> = Spec {
    name: "smq",
    summary: "dm-cache's: levels of units of 64 KiB, promoted if their neighbourhood is busy",
    source: "Linux, dm-cache-policy-smq.c since 4.12",
    build: Build {
        new: |capacity| Box::new(Smq::new(capacity, false)),
        unit_blocks: 16,
        foresees: false,
        is_log: false,
    },
};

pub(super) const SPEC_4K: Spec<Build> = Spec {
    name: "smq_4k",
    summary: "the same with units of 4 KiB, smaller than dm-cache allows",
    source: "Linux, dm-cache-policy-smq.c since 4.12",
    build: Build { new: |capacity| Box::new(Smq::new(capacity, true)), unit_blocks: 1, foresees: false, is_log: false },
};

const SECOND_NS: u64 = 1_000_000_000;
const HOTSPOT_PERIOD_NS: u64 = SECOND_NS;
const WRITEBACK_PERIOD_NS: u64 = 10 * SECOND_NS;
const CACHE_PERIOD_NS: u64 = 60 * SECOND_NS;
/// Beyond this long without accesses, more time changes nothing.
const GAP_NS: u64 = 2 * CACHE_PERIOD_NS;
/// How long a request takes: something between a hit on an SSD and a miss on a disk.
const REQUEST_NS: u64 = 1_000_000;
/// After this many accesses at least one has completed, even if time stands still.
const REQUESTS_AT_ONCE: u32 = 32;

const REGION_UNITS: u64 = 16;
const REGIONS_MIN: usize = 1024;
/// Levels of the queue of regions that are shorter than the others.
const TOP_LEVELS: usize = 8;
/// While this part of the cache is free, nothing is thrown out. A cache of less than 4 units never
/// throws out anything.
const FREE_PERCENT: usize = 25;

/// The policy's state and its rules. In a replay, `advance` moves the clock by the times of the
/// trace.
pub(crate) struct Smq {
    pub(crate) capacity: usize,
    /// Every write is a write of the whole unit.
    writes_whole: bool,
    region_units: u64,
    pub(crate) units: Table<Unit>,
    pub(crate) clean: Queue,
    pub(crate) dirty: Queue,
    regions_max: usize,
    regions: Table<Unit>,
    hotspots: Queue,
    /// Misses of this second, and how many fell on regions in the top quarter of levels.
    misses: u64,
    misses_on_top: u64,
    pub(crate) promote_level: u8,
    jump: u8,
    clock: Clock,
    /// The period in which a hit on a unit counts once, and its length.
    pub(crate) hits_period: u32,
    pub(crate) hits_period_ns: u64,
    /// The period of the last hit on the unit that was thrown out last. The next unit inherits it,
    /// because the kernel's mark belongs to the place in the cache and not to the unit.
    pub(crate) vacated_hit: u32,
}

/// The moments at which things are due. All are in ns.
#[derive(Default)]
struct Clock {
    last_access: Option<u64>,
    /// Number of the tick; a hit on a region counts once in each.
    tick: u32,
    last_tick: u64,
    accesses_since_tick: u32,
    next_second: u64,
    next_hotspot: u64,
    next_writeback: u64,
    next_cache: u64,
}

/// How well misses fall on regions in the top quarter of levels.
pub(crate) enum Confidence {
    Poor,
    Fair,
    Well,
}

impl Smq {
    pub(crate) fn new(capacity: usize, writes_whole: bool) -> Self {
        Self { writes_whole, ..Self::of_origin(capacity, u64::MAX) }
    }

    /// Builds the policy for an origin of `origin_units`. All regions together never cover more
    /// than that, unless they are of one unit each.
    pub(crate) fn of_origin(capacity: usize, origin_units: u64) -> Self {
        let regions_max = (capacity / 4).max(REGIONS_MIN);
        let mut region_units = REGION_UNITS;
        while region_units > 1 && region_units * regions_max as u64 > origin_units {
            region_units /= 2;
        }
        let in_top_levels = (regions_max / usize::from(LEVELS)).min(capacity / region_units as usize);
        Self {
            capacity,
            writes_whole: false,
            region_units,
            units: Table::new(),
            clean: Queue::new((0, 0)),
            dirty: Queue::new((0, 0)),
            regions_max,
            regions: Table::new(),
            hotspots: Queue::new((TOP_LEVELS, in_top_levels)),
            misses: 0,
            misses_on_top: 0,
            promote_level: LEVELS,
            jump: 1,
            clock: Clock::default(),
            hits_period: 1,
            hits_period_ns: CACHE_PERIOD_NS,
            vacated_hit: 0,
        }
    }

    fn advance(&mut self, now: u64) {
        let Some(last_access) = self.clock.last_access.replace(now) else {
            let next_writeback = now + WRITEBACK_PERIOD_NS;
            self.clock = Clock {
                last_access: Some(now),
                tick: 1,
                last_tick: now,
                next_second: now + SECOND_NS,
                next_hotspot: now,
                next_writeback,
                next_cache: now,
                ..Clock::default()
            };
            return;
        };
        if now.saturating_sub(self.clock.next_second) > GAP_NS {
            self.clock.next_second = now - GAP_NS;
        }
        while self.clock.next_second <= now {
            let second = self.clock.next_second;
            self.clock.next_second += SECOND_NS;
            self.tick(second);
            if second > last_access + SECOND_NS {
                while let Some(slot) = self.dirty.oldest(LEVELS, false) {
                    self.write_back(slot);
                }
            }
        }
        self.clock.accesses_since_tick += 1;
        if now >= self.clock.last_tick + REQUEST_NS || self.clock.accesses_since_tick >= REQUESTS_AT_ONCE {
            self.tick(now);
        }
    }

    pub(crate) fn tick(&mut self, now: u64) {
        self.clock.tick += 1;
        self.clock.last_tick = now;
        self.clock.accesses_since_tick = 0;
        if now > self.clock.next_writeback {
            self.clock.next_writeback = now + WRITEBACK_PERIOD_NS;
            self.dirty.next_period(&mut self.units);
        }
        let (divisor, jump) = match self.confidence() {
            Confidence::Poor => (4, 4),
            Confidence::Fair => (2, 2),
            Confidence::Well => (1, 1),
        };
        self.promote_level = LEVELS - LEVELS / divisor;
        if now > self.clock.next_hotspot {
            self.clock.next_hotspot = now + HOTSPOT_PERIOD_NS;
            self.jump = jump;
            self.hotspots.redistribute(&mut self.regions);
            (self.misses, self.misses_on_top) = (0, 0);
        }
        if now > self.clock.next_cache {
            self.clock.next_cache = now + self.hits_period_ns;
            self.hits_period += 1;
            self.dirty.redistribute(&mut self.units);
            self.clean.redistribute(&mut self.units);
        }
    }

    pub(crate) fn confidence(&self) -> Confidence {
        match (self.misses_on_top << 8).checked_div(self.misses).unwrap_or(0) {
            0..16 => Confidence::Poor,
            16..32 => Confidence::Fair,
            _ => Confidence::Well,
        }
    }

    pub(crate) fn hit(&mut self, slot: Slot, write: bool) {
        let unit = &mut self.units[slot];
        let was_dirty = unit.dirty;
        if std::mem::replace(&mut unit.hit, self.hits_period) != self.hits_period {
            let queue = if was_dirty { &mut self.dirty } else { &mut self.clean };
            queue.requeue(&mut self.units, slot, 1);
        }
        if write && !was_dirty {
            self.clean.remove(&mut self.units, slot);
            self.units[slot].dirty = true;
            self.dirty.push(&mut self.units, slot);
        }
    }

    /// The level of a unit's region, 0 if it isn't known.
    pub(crate) fn level_of(&self, key: u64) -> u8 {
        self.regions.find(key / self.region_units).map_or(0, |slot| self.regions[slot].level)
    }

    /// Notes a miss; returns the level of its region.
    pub(crate) fn miss(&mut self, key: u64) -> u8 {
        let region = key / self.region_units;
        self.misses += 1;
        if let Some(slot) = self.regions.find(region) {
            let unit = &mut self.regions[slot];
            self.misses_on_top += u64::from(unit.level >= LEVELS / 4 * 3);
            let first = std::mem::replace(&mut unit.hit, self.clock.tick) != self.clock.tick;
            self.hotspots.requeue(&mut self.regions, slot, if first { self.jump } else { 0 });
            return self.regions[slot].level;
        }
        let mut level = 0;
        if self.regions.len() == self.regions_max
            && let Some(oldest) = self.hotspots.oldest(LEVELS, false)
        {
            level = self.regions[oldest].level;
            self.hotspots.remove(&mut self.regions, oldest);
            self.regions.remove(oldest);
        }
        let slot = self.regions.insert(region, Unit { level, dirty: false, since: 0, hit: 0 });
        self.hotspots.push(&mut self.regions, slot);
        level
    }

    pub(crate) fn write_back(&mut self, slot: Slot) {
        self.dirty.remove(&mut self.units, slot);
        self.units[slot].dirty = false;
        self.clean.push(&mut self.units, slot);
    }

    /// Throws out a unit. If none may go, makes a dirty one clean.
    fn demote(&mut self, changes: &mut Changes) {
        if self.capacity * FREE_PERCENT / 100 == 0 {
            return;
        }
        if let Some(slot) = self.clean.oldest(LEVELS / 2, false) {
            self.clean.remove(&mut self.units, slot);
            self.vacated_hit = self.units[slot].hit;
            changes.evicted.push(self.units.remove(slot));
        } else if let Some(slot) = self.dirty.oldest(LEVELS, true) {
            self.write_back(slot);
        }
    }
}

impl Policy for Smq {
    fn access(&mut self, access: &Access, changes: &mut Changes) -> bool {
        self.advance(access.time_ns);
        if let Some(slot) = self.units.find(access.key) {
            self.hit(slot, access.write);
            return true;
        }
        let level = self.miss(access.key);
        let is_full = self.units.len() == self.capacity;
        // A write of the whole unit is the promotion: nothing is read for it.
        let overwrites = access.write && self.writes_whole;
        if level < self.promote_level && (is_full || !overwrites) {
            return false;
        }
        if is_full {
            self.demote(changes);
            return false;
        }
        let unit = Unit { level: LEVELS - 1, dirty: overwrites, since: 0, hit: self.vacated_hit };
        let slot = self.units.insert(access.key, unit);
        let queue = if overwrites { &mut self.dirty } else { &mut self.clean };
        queue.push(&mut self.units, slot);
        changes.admitted = true;
        false
    }
}
