// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts what a policy's blocks cost in a log: how many must be written once more so that segments
//! become free.
//!
//! A cache on flash writes in order. A block that a policy drops or a client rewrites leaves a
//! hole. The segment with the fewest live blocks is cleaned: those blocks are written anew. They
//! go into segments of their own, because blocks that have lived long will live longer. This is
//! greedy cleaning with hot and cold apart (Rosenblum and Ousterhout, SOSP 1991). A policy whose
//! queue is the log, like ours, has its own way and counts for itself.

use hashbrown::HashMap;

/// The room beyond the policy's capacity is an eighth of the capacity, as in SSDs of the better
/// kind. A log needs it so as not to clean all the time. Policies aren't charged for it.
const SPARE: usize = 8;

/// Units of a segment: 1 MiB of blocks. A small cache has segments of a 64th of its size.
const SEGMENT_UNITS_MAX: usize = 256;

const NOBODY: u64 = u64::MAX;

const NEW: usize = 0;
const CLEANED: usize = 1;

/// The units of a cache in a log.
#[derive(Debug)]
pub(super) struct Log {
    places: HashMap<u64, Logged>,
    /// The key in each slot.
    owners: Vec<u64>,
    live: Vec<u32>,
    full: Full,
    free: Vec<u32>,
    /// The number of segments that were used at all. Only they take memory.
    begun: u32,
    segments: u32,
    /// The open segment for new units and the open segment for cleaned units, and how much of each
    /// is used.
    open: [Option<(u32, usize)>; 2],
    segment: usize,
    /// Units that cleaning wrote.
    pub(super) copied: u64,
    /// Units that are dirty.
    pub(super) dirty: u64,
}

/// The place of a unit in the log.
#[derive(Clone, Copy, Debug)]
struct Logged {
    slot: u32,
    /// The flag stands here, where there is room for it. A set of its own would cost one more look
    /// into RAM at each access.
    dirty: bool,
}

/// The full segments and their numbers of holes, as a tournament. One more hole rarely changes the
/// winner, even among a few segments, so most updates end early.
#[derive(Debug)]
struct Full {
    /// Entries from `segments` on are one more than the holes of each segment, or 0 for a segment
    /// that is not full. The entries before have the greater one of each pair.
    most: Vec<u32>,
    segments: usize,
}

impl Full {
    fn new(segments: usize) -> Self {
        let segments = segments.next_power_of_two();
        Self { most: vec![0; 2 * segments], segments }
    }

    fn has(&self, segment: u32) -> bool {
        self.most[self.segments + segment as usize] > 0
    }

    fn set(&mut self, segment: u32, holes_and_one: u32) {
        let mut at = self.segments + segment as usize;
        self.most[at] = holes_and_one;
        while at > 1 {
            let most = self.most[at].max(self.most[at ^ 1]);
            at /= 2;
            if std::mem::replace(&mut self.most[at], most) == most {
                break;
            }
        }
    }

    /// Takes the first of the segments with the most holes out of the tournament.
    fn take(&mut self) -> Option<u32> {
        let mut at = 1;
        while at < self.segments {
            at *= 2;
            at += usize::from(self.most[at] < self.most[at + 1]);
        }
        let segment = (at - self.segments) as u32;
        self.has(segment).then(|| {
            self.set(segment, 0);
            segment
        })
    }
}

impl Log {
    pub(super) fn new(capacity: usize) -> Self {
        let segment = (capacity / 64).clamp(1, SEGMENT_UNITS_MAX);
        let segments = (capacity + capacity / SPARE).div_ceil(segment) + 4;
        Self {
            places: HashMap::new(),
            owners: Vec::new(),
            live: Vec::new(),
            full: Full::new(segments),
            free: Vec::new(),
            begun: 0,
            segments: segments as u32,
            open: [None; 2],
            segment,
            copied: 0,
            dirty: 0,
        }
    }

    /// Writes a unit, for the first time or anew.
    pub(super) fn write(&mut self, key: u64, dirty: bool) {
        let slot = self.append(key, NEW);
        self.dirty += u64::from(dirty);
        if let Some(before) = self.places.insert(key, Logged { slot, dirty }) {
            self.leave(before);
        }
        // The last free segment takes the live units of segments that are cleaned.
        while self.free.len() + ((self.segments - self.begun) as usize) < 2 && self.clean() {}
    }

    /// Places that no longer hold a unit, in segments that are not free.
    pub(super) fn dead(&self) -> u64 {
        let open: usize = self.open.iter().flatten().map(|(_, used)| used).sum();
        let open_segments = self.open.iter().flatten().count();
        let full = self.begun as usize - self.free.len() - open_segments;
        (full * self.segment + open - self.places.len()) as u64
    }

    /// Makes a unit dirty where it is.
    pub(super) fn soil(&mut self, key: u64) {
        if let Some(place) = self.places.get_mut(&key) {
            self.dirty += u64::from(!std::mem::replace(&mut place.dirty, true));
        }
    }

    /// Drops a unit. Returns whether it was dirty.
    pub(super) fn remove(&mut self, key: u64) -> bool {
        self.places.remove(&key).is_some_and(|place| {
            self.leave(place);
            place.dirty
        })
    }

    fn leave(&mut self, place: Logged) {
        self.dirty -= u64::from(place.dirty);
        self.owners[place.slot as usize] = NOBODY;
        let segment = place.slot / self.segment as u32;
        self.live[segment as usize] -= 1;
        if self.full.has(segment) {
            self.fill(segment);
        }
    }

    /// Notes how many units live in a segment that is full.
    fn fill(&mut self, segment: u32) {
        self.full.set(segment, self.segment as u32 + 1 - self.live[segment as usize]);
    }

    fn append(&mut self, key: u64, stream: usize) -> u32 {
        let (segment, used) = self.open[stream].unwrap_or_else(|| (self.take_free(), 0));
        let slot = segment as usize * self.segment + used;
        self.owners[slot] = key;
        self.live[segment as usize] += 1;
        self.open[stream] = Some((segment, used + 1)).filter(|_| used + 1 < self.segment);
        if used + 1 == self.segment {
            self.fill(segment);
        }
        slot as u32
    }

    fn take_free(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            assert!(self.begun < self.segments, "cleaning keeps one free");
            self.begun += 1;
            self.live.push(0);
            self.owners.resize(self.begun as usize * self.segment, NOBODY);
            self.begun - 1
        })
    }

    /// Frees the segment that has the fewest live units. Returns false if no segment is full.
    fn clean(&mut self) -> bool {
        let Some(segment) = self.full.take() else { return false };
        for slot in segment as usize * self.segment..(segment as usize + 1) * self.segment {
            let key = std::mem::replace(&mut self.owners[slot], NOBODY);
            if key != NOBODY {
                let slot = self.append(key, CLEANED);
                if let Some(place) = self.places.get_mut(&key) {
                    place.slot = slot;
                }
                self.copied += 1;
            }
        }
        self.live[segment as usize] = 0;
        self.free.push(segment);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BTreeSet;

    use flashfront_device::Rng;

    use super::*;

    #[test]
    fn what_dies_in_order_costs_nothing() {
        let mut log = Log::new(10_000);
        for key in 0..100_000 {
            if key >= 10_000 {
                log.remove(key - 10_000);
            }
            log.write(key, false);
        }
        assert_eq!(log.copied, 0);
        assert_eq!(log.places.len(), 10_000);
    }

    #[test]
    fn the_first_segment_with_the_most_holes_is_taken() {
        for segments in [1, 2, 3, 64, 100] {
            let (mut full, mut order, mut rng) = (Full::new(segments), BTreeSet::new(), Rng::new(1));
            for _ in 0..3000 {
                let (segment, holes) = (rng.below(segments as u64) as u32, rng.below(8) as u32);
                let before = order.iter().copied().find(|it: &(Reverse<u32>, u32)| it.1 == segment);
                assert_eq!(full.has(segment), before.is_some());
                before.map(|it| order.remove(&it));
                full.set(segment, holes + 1);
                order.insert((Reverse(holes), segment));
                if rng.below(3) == 0 {
                    assert_eq!(full.take(), order.pop_first().map(|it| it.1));
                }
            }
            while let Some((_, segment)) = order.pop_first() {
                assert_eq!(full.take(), Some(segment), "{segments}");
            }
            assert_eq!(full.take(), None);
        }
    }

    #[test]
    fn what_is_dirty_stays_so_until_it_is_dropped() {
        let mut log = Log::new(1000);
        (0..1000).for_each(|key| log.write(key, key % 2 == 0));
        log.soil(1);
        log.soil(2);
        log.soil(2000);
        // The others are rewritten until each of these was copied.
        let mut rng = Rng::new(1);
        (0..50_000).for_each(|_| log.write(10 + rng.below(990), false));
        assert!(log.copied > 0);
        assert_eq!([0, 1, 2, 3, 4, 2000].map(|key| log.remove(key)), [true, true, true, false, true, false]);
        assert_eq!(log.dirty, 2, "6 and 8");
    }

    #[test]
    fn what_dies_at_random_is_copied_and_nothing_is_lost() {
        for capacity in [1, 2, 7, 63, 1000, 20_000] {
            let mut log = Log::new(capacity);
            let mut rng = Rng::new(1);
            for _ in 0..20 * capacity {
                log.write(rng.below(capacity as u64), false);
            }
            assert!(log.places.iter().all(|(key, place)| log.owners[place.slot as usize] == *key), "{capacity}");
            let live: u32 = log.live.iter().sum();
            assert_eq!(live as usize, log.places.len(), "{capacity}");
            if capacity == 20_000 {
                // Greedy cleaning of a log 8/9 full that is rewritten uniformly copies about three
                // units for each unit written.
                assert!((1..5).contains(&(log.copied / (20 * capacity as u64))), "{}", log.copied);
            }
        }
    }
}
