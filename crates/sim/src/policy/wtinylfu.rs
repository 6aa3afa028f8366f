// SPDX-License-Identifier: MIT OR Apache-2.0
//! W-TinyLFU, as in Caffeine, has an LRU window for newcomers, and a segmented LRU behind it. A
//! block gets from the window into the LRU if it was asked for more often than the LRU's victim.
//!
//! The model is what users of Caffeine meet. The window begins with 1 % of the cache. A hill
//! climber changes its size by the hit ratio of the last ten caches full of accesses. The probation
//! and the protected segment share the rest 1 : 4. Caffeine does this work in batches behind its
//! accesses; here it is done at each access.
//!
//! libCacheSim's `WTinyLFU` is another thing, and its miss ratios differ by more than those of
//! other policies. Its window keeps its size. Its filter counts misses, blocks that leave the
//! window, and hits in the main part only. The filter is halved after 32 caches full of them.

mod sketch;

use flashfront_engine::policy::Spec;

use self::sketch::Sketch;
use super::contract::{Access, Build, Changes, Policy};
use super::table::{List, Slot, Table};

pub(super) const SPEC: Spec<Build> = Spec {
    name: "wtinylfu",
    summary: "a window for newcomers, behind it only what is asked for more often than its victim",
    source: "Einziger et al., TOS 2017; Caffeine 3, with its adaptive window",
    build: Build { new: |capacity| Box::new(WTinyLfu::new(capacity)), unit_blocks: 1, foresees: false, is_log: false },
};

/// The share of the window in the cache, at first.
const WINDOW_SHARE: f64 = 0.01;
/// The share of the protected part in what is not the window.
const PROTECTED_SHARE: f64 = 0.8;
/// The climber's first step, as a share of the cache. The climber takes it again after a large
/// change.
const STEP_SHARE: f64 = 0.0625;
/// Each step is this part of the one before.
const STEP_DECAY: f64 = 0.98;
/// A change of the hit ratio for which the climber begins anew.
const RESTART_CHANGE: f64 = 0.05;
/// At one access the climber moves at most this many blocks between lists.
const MOVES_MAX: usize = 1000;
/// A block that was asked for this often, and is not let in by right, is let in by chance (1 in
/// 128). This defends against attackers who use collisions in the sketch.
const CHANCE_FROM: u64 = 6;

struct WTinyLfu {
    capacity: usize,
    table: Table<Queue>,
    /// The lists, by [`Queue`].
    lists: [List; 3],
    window_max: usize,
    protected_max: usize,
    sketch: Sketch,
    climber: Climber,
    random: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Queue {
    Window,
    Probation,
    Protected,
}
use Queue::{Probation, Protected, Window};

#[derive(Default)]
struct Climber {
    hits: usize,
    misses: usize,
    hit_ratio: f64,
    step: f64,
    /// The number of blocks by which the window shall still grow.
    growth: isize,
}

impl Climber {
    /// Decides by how much the window shall grow or shrink, once enough accesses were seen.
    fn decide(&mut self, capacity: usize, sample: usize) {
        let seen = self.hits + self.misses;
        if seen < sample {
            return;
        }
        let hit_ratio = self.hits as f64 / seen as f64;
        let change = hit_ratio - self.hit_ratio;
        let growth = if change >= 0.0 { self.step } else { -self.step };
        self.step = if change.abs() >= RESTART_CHANGE {
            (STEP_SHARE * capacity as f64).copysign(growth)
        } else {
            STEP_DECAY * growth
        };
        *self = Self { hit_ratio, growth: growth as isize, step: self.step, hits: 0, misses: 0 };
    }
}

impl WTinyLfu {
    fn new(capacity: usize) -> Self {
        let window_max = capacity - (capacity as f64 * (1.0 - WINDOW_SHARE)) as usize;
        Self {
            capacity,
            table: Table::new(),
            lists: [List::new(); 3],
            window_max,
            protected_max: ((capacity - window_max) as f64 * PROTECTED_SHARE) as usize,
            sketch: Sketch::new(capacity),
            climber: Climber { step: -STEP_SHARE * capacity as f64, ..Climber::default() },
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    fn list(&self, place: Queue) -> &List {
        &self.lists[place as usize]
    }

    fn move_to(&mut self, place: Queue, slot: Slot) {
        let from = std::mem::replace(&mut self.table[slot], place);
        self.table.unlink(&mut self.lists[from as usize], slot);
        self.table.push(&mut self.lists[place as usize], slot);
    }

    /// Compares a newcomer with the victim and evicts one of them, if the cache is over its
    /// capacity.
    fn evict(&mut self, changes: &mut Changes) {
        let mut candidate = None;
        while self.list(Window).len() > self.window_max
            && let Some(slot) = self.list(Window).oldest()
        {
            self.move_to(Probation, slot);
            candidate = Some(slot);
        }
        if self.table.len() <= self.capacity {
            return;
        }
        let victim = self.list(Probation).oldest();
        let candidate = candidate.or(self.list(Window).oldest());
        let loser = match (candidate, victim) {
            (Some(candidate), Some(victim)) if candidate != victim && self.prefers(candidate, victim) => victim,
            (Some(candidate), _) => candidate,
            (None, victim) => match victim.or(self.list(Protected).oldest()) {
                Some(victim) => victim,
                None => return,
            },
        };
        let place = self.table[loser];
        self.table.unlink(&mut self.lists[place as usize], loser);
        changes.evicted.push(self.table.remove(loser));
    }

    fn prefers(&mut self, candidate: Slot, victim: Slot) -> bool {
        let frequency = self.sketch.frequency(self.table.key(candidate));
        if frequency > self.sketch.frequency(self.table.key(victim)) {
            return true;
        }
        if frequency < CHANCE_FROM {
            return false;
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 57 == 0
    }

    fn climb(&mut self) {
        self.climber.decide(self.capacity, self.sketch.sample());
        self.demote();
        match self.climber.growth {
            0 => {}
            1.. => self.grow_window(),
            _ => self.shrink_window(),
        }
    }

    fn demote(&mut self) {
        for _ in 0..MOVES_MAX {
            if self.list(Protected).len() <= self.protected_max {
                break;
            }
            let Some(slot) = self.list(Protected).oldest() else { break };
            self.move_to(Probation, slot);
        }
    }

    fn grow_window(&mut self) {
        let wanted = self.climber.growth.unsigned_abs().min(self.protected_max);
        self.protected_max -= wanted;
        self.demote();
        let mut moved = 0;
        while moved < wanted.min(MOVES_MAX)
            && let Some(slot) = self.list(Probation).oldest().or(self.list(Protected).oldest())
        {
            self.move_to(Window, slot);
            moved += 1;
        }
        self.window_max += moved;
        self.protected_max += wanted - moved;
        self.climber.growth = (wanted - moved) as isize;
    }

    fn shrink_window(&mut self) {
        let wanted = self.climber.growth.unsigned_abs().min(self.window_max.saturating_sub(1));
        let mut moved = 0;
        while moved < wanted.min(MOVES_MAX)
            && let Some(slot) = self.list(Window).oldest()
        {
            self.move_to(Probation, slot);
            moved += 1;
        }
        self.window_max -= moved;
        self.protected_max += moved;
        self.climber.growth = -((wanted - moved) as isize);
    }
}

impl Policy for WTinyLfu {
    fn access(&mut self, access: &Access, changes: &mut Changes) -> bool {
        self.sketch.add(access.key);
        let found = self.table.find(access.key);
        if let Some(slot) = found {
            self.climber.hits += 1;
            match self.table[slot] {
                Window => self.table.touch(&mut self.lists[Window as usize], slot),
                Probation | Protected => self.move_to(Protected, slot),
            }
        } else {
            self.climber.misses += 1;
            let slot = self.table.insert(access.key, Window);
            self.table.push(&mut self.lists[Window as usize], slot);
            changes.admitted = true;
            self.evict(changes);
        }
        self.climb();
        found.is_some()
    }
}
