// SPDX-License-Identifier: MIT OR Apache-2.0
//! Order between requests that touch the same blocks: shared and exclusive locks on ranges.
//!
//! First come, first served: a lock is granted when no earlier lock, held or waiting, conflicts
//! with it. Locks are found by hashed regions of 256 blocks, as are reads under way
//! ([`crate::act::under_way`]). A range is at most [`RANGE_BLOCKS_MAX`] long, so it is in two
//! regions at most. Ranges that it overlaps share a region with it. Invariant: no two granted locks
//! conflict (test: `locks_are_fair_and_exclusive`).

use alloc::vec::Vec;
use core::ops::Range;

use slab::Slab;

use crate::organ::index::Flat;

/// The longest range that can be locked.
pub(crate) const RANGE_BLOCKS_MAX: u64 = 257;
pub(crate) const REGION_SHIFT: u32 = 8;
const _: () = assert!(RANGE_BLOCKS_MAX <= (1 << REGION_SHIFT) + 1);
/// Lists that regions are hashed to; some hundreds of requests are many.
pub(crate) const LISTS: usize = 256;

/// The holder of a lock, or the one that wants it: comes back when the lock is granted.
pub(crate) type Holder = usize;

/// Names a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockId(u32);

#[derive(Clone, Copy)]
struct Lock {
    start: u64,
    end: u64,
    exclusive: bool,
    /// Grows from lock to lock.
    ticket: u64,
    holder: Holder,
    /// Earlier locks that conflict with this one.
    blockers: u32,
}

impl Lock {
    fn regions(&self) -> Range<u64> {
        regions(self.start, self.end)
    }

    fn conflicts(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end && (self.exclusive || other.exclusive)
    }

    /// The region in which two overlapping locks meet first: a pair that shares two is to be
    /// counted once.
    fn meets(&self, other: &Self) -> u64 {
        self.start.max(other.start) >> REGION_SHIFT
    }
}

/// The locks of one lane.
pub(crate) struct Locks {
    all: Slab<Lock>,
    /// The lists: each has the locks in its regions, in no order.
    lists: Vec<Vec<u32>>,
    tickets: u64,
}

impl Default for Locks {
    fn default() -> Self {
        Self { all: Slab::new(), lists: alloc::vec![Vec::new(); LISTS], tickets: 0 }
    }
}

/// The regions of a range.
pub(crate) const fn regions(start: u64, end: u64) -> Range<u64> {
    start >> REGION_SHIFT..((end - 1) >> REGION_SHIFT) + 1
}

/// Regions side by side are in different lists: the product's upper byte grows by 158 or 159.
pub(crate) const fn list_of(region: u64) -> usize {
    (region.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

impl Locks {
    /// Asks for a lock; the flag says whether it is granted at once.
    pub(crate) fn acquire(&mut self, start: Flat, blocks: u64, exclusive: bool, holder: Holder) -> (LockId, bool) {
        debug_assert!(blocks > 0 && blocks <= RANGE_BLOCKS_MAX);
        self.tickets += 1;
        let mut lock =
            Lock { start: start.0, end: start.0 + blocks, exclusive, ticket: self.tickets, holder, blockers: 0 };
        let key = self.all.vacant_key();
        for region in lock.regions() {
            let list = &mut self.lists[list_of(region)];
            let met = |id: &&u32| {
                let other = &self.all[**id as usize];
                lock.conflicts(other) && lock.meets(other) == region
            };
            let blockers = list.iter().filter(met).count() as u32;
            lock.blockers += blockers;
            list.push(key as u32);
        }
        self.all.insert(lock);
        (LockId(key as u32), lock.blockers == 0)
    }

    /// Gives a lock back; adds the holders of those granted by it to `granted`, in the order in
    /// which they asked.
    pub(crate) fn release(&mut self, id: LockId, granted: &mut impl Extend<Holder>) {
        let gone = self.all.remove(id.0 as usize);
        let mut freed: Vec<(u64, Holder)> = Vec::new();
        for region in gone.regions() {
            let list = &mut self.lists[list_of(region)];
            if let Some(nth) = list.iter().position(|other| *other == id.0) {
                list.swap_remove(nth);
            }
            for other in list.iter() {
                let other = &mut self.all[*other as usize];
                if other.ticket > gone.ticket && gone.conflicts(other) && gone.meets(other) == region {
                    other.blockers -= 1;
                    if other.blockers == 0 {
                        freed.push((other.ticket, other.holder));
                    }
                }
            }
        }
        if freed.is_empty() {
            return;
        }
        freed.sort_unstable();
        granted.extend(freed.into_iter().map(|(_, holder)| holder));
    }

    /// Whether anybody holds or wants a part of a range alone; of at most [`RANGE_BLOCKS_MAX`]
    /// blocks.
    pub(crate) fn any_exclusive(&self, start: Flat, end: Flat) -> bool {
        self.any(start, end, |lock| lock.exclusive)
    }

    /// Whether a new lock on such a range would have to wait.
    pub(crate) fn would_wait(&self, start: Flat, end: Flat, exclusive: bool) -> bool {
        self.any(start, end, |lock| exclusive || lock.exclusive)
    }

    fn any(&self, start: Flat, end: Flat, of: impl Fn(&Lock) -> bool) -> bool {
        let within = |lock: &Lock| of(lock) && lock.start < end.0 && start.0 < lock.end;
        regions(start.0, end.0)
            .any(|region| self.lists[list_of(region)].iter().any(|id| within(&self.all[*id as usize])))
    }

    /// Locks held or waited for.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.all.len()
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use super::*;

    #[test]
    fn locks_are_fair_and_exclusive() {
        let mut locks = Locks::default();
        let mut granted = Vec::new();
        let (read, now) = locks.acquire(Flat(10), 4, false, 1);
        assert!(now);
        let (write, now) = locks.acquire(Flat(13), 2, true, 2);
        assert!(!now, "overlaps the read");
        let (late_read, now) = locks.acquire(Flat(14), 1, false, 3);
        assert!(!now, "must not overtake the waiting write");
        let (other, now) = locks.acquire(Flat(15), 100, true, 4);
        assert!(now, "touches nothing");
        locks.release(read, &mut granted);
        assert_eq!(granted, [2]);
        locks.release(write, &mut granted);
        assert_eq!(granted, [2, 3]);
        locks.release(late_read, &mut granted);
        locks.release(other, &mut granted);
        assert_eq!(granted, [2, 3]);
        assert_eq!(locks.len(), 0);
    }

    #[test]
    fn never_two_conflicting_locks() {
        let mut state = 3u64;
        let mut random = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n
        };
        let mut locks = Locks::default();
        let mut waiting: BTreeMap<Holder, (LockId, u64, u64, bool)> = BTreeMap::new();
        let mut held = BTreeMap::new();
        for holder in 0..20_000 {
            // Every other round in few blocks, then across regions.
            let (places, length) = if holder % 2 == 0 { (64, 8) } else { (1024, RANGE_BLOCKS_MAX) };
            let (start, blocks, exclusive) = (random(places), 1 + random(length), random(2) == 0);
            let (id, now) = locks.acquire(Flat(start), blocks, exclusive, holder);
            let target = if now { &mut held } else { &mut waiting };
            target.insert(holder, (id, start, blocks, exclusive));
            while held.len() > 6 || waiting.len() > 12 {
                let nth = random(held.len() as u64) as usize;
                let holder = *held.keys().nth(nth).unwrap();
                let (id, ..) = held.remove(&holder).unwrap();
                let mut granted = Vec::new();
                locks.release(id, &mut granted);
                for holder in granted {
                    held.insert(holder, waiting.remove(&holder).unwrap());
                }
            }
            for (a, first) in &held {
                for (_, second) in held.range(a + 1..) {
                    let apart = first.1 + first.2 <= second.1 || second.1 + second.2 <= first.1;
                    assert!(apart || !(first.3 || second.3), "{first:?} and {second:?}");
                }
            }
        }
    }
}
