// SPDX-License-Identifier: MIT OR Apache-2.0
//! Order between requests that touch the same blocks: shared and exclusive locks on ranges.
//!
//! First come, first served: a lock is granted when no earlier lock, held or waiting, conflicts with
//! it. A range is at most [`RANGE_BLOCKS_MAX`] long, so that all overlapping ones are near in the tree.
//! Invariant: no two granted locks conflict (test: `locks_are_fair_and_exclusive`).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::index::Flat;

/// The longest range that can be locked.
pub(crate) const RANGE_BLOCKS_MAX: u64 = 257;

/// Who holds or wants a lock: comes back when it is granted.
pub(crate) type Holder = usize;

/// Names a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LockId {
    start: Flat,
    ticket: u64,
}

struct Lock {
    blocks: u64,
    exclusive: bool,
    holder: Holder,
    /// Earlier locks that conflict with this one.
    blockers: u32,
}

/// The locks of one lane.
#[derive(Default)]
pub(crate) struct Locks {
    by_start: BTreeMap<LockId, Lock>,
    tickets: u64,
}

impl Locks {
    /// Asks for a lock; the flag says whether it is granted at once.
    pub(crate) fn acquire(&mut self, start: Flat, blocks: u64, exclusive: bool, holder: Holder) -> (LockId, bool) {
        debug_assert!(blocks > 0 && blocks <= RANGE_BLOCKS_MAX);
        self.tickets += 1;
        let id = LockId { start, ticket: self.tickets };
        let mut blockers = 0;
        for (other_id, other) in Self::near(&mut self.by_start, start, blocks) {
            let overlaps = other_id.start.0 + other.blocks > start.0;
            blockers += u32::from(overlaps && (exclusive || other.exclusive));
        }
        self.by_start.insert(id, Lock { blocks, exclusive, holder, blockers });
        (id, blockers == 0)
    }

    /// Gives a lock back; adds the holders of those granted by it to `granted`, in the order in which
    /// they asked.
    pub(crate) fn release(&mut self, id: LockId, granted: &mut Vec<Holder>) {
        let Some(gone) = self.by_start.remove(&id) else { return };
        let mut freed: Vec<(u64, Holder)> = Vec::new();
        for (other_id, other) in Self::near(&mut self.by_start, id.start, gone.blocks) {
            let later = other_id.ticket > id.ticket;
            let overlaps = other_id.start.0 + other.blocks > id.start.0;
            if later && overlaps && (gone.exclusive || other.exclusive) {
                other.blockers -= 1;
                if other.blockers == 0 {
                    freed.push((other_id.ticket, other.holder));
                }
            }
        }
        freed.sort_unstable();
        granted.extend(freed.into_iter().map(|(_, holder)| holder));
    }

    /// Locks held or waited for.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.by_start.len()
    }

    fn near(
        by_start: &mut BTreeMap<LockId, Lock>,
        start: Flat,
        blocks: u64,
    ) -> impl Iterator<Item = (LockId, &mut Lock)> {
        let first = LockId { start: Flat(start.0.saturating_sub(RANGE_BLOCKS_MAX)), ticket: 0 };
        let end = LockId { start: Flat(start.0 + blocks), ticket: 0 };
        by_start.range_mut(first..end).map(|(id, lock)| (*id, lock))
    }
}

#[cfg(test)]
mod tests {
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
            let (start, blocks, exclusive) = (random(64), 1 + random(8), random(2) == 0);
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
