// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a policy's blocks cost in a log: how many must be written once more so that segments become free.
//!
//! A cache on flash writes in order. What a policy drops or a client rewrites leaves a hole, and the segment with the least
//! in it is cleaned: what is left of it is written anew, into segments of its own, since what has lived long will live longer
//! (greedy cleaning, hot and cold apart; Rosenblum and Ousterhout, SOSP 1991). A policy whose queue is the log, like
//! ours, has its own way and counts for itself.

use std::collections::BTreeSet;

use hashbrown::HashMap;

/// Room beyond the policy's capacity, in parts of it, that a log needs so as not to clean all the time: an eighth, as
/// SSDs of the better kind have. It is not charged to the policies.
const SPARE: usize = 8;

/// Units of a segment: 1 MiB of blocks, but a 64th of a small cache.
const SEGMENT_UNITS_MAX: usize = 256;

const NOBODY: u64 = u64::MAX;

const NEW: usize = 0;
const CLEANED: usize = 1;

/// The units of a cache in a log.
#[derive(Debug)]
pub(super) struct Log {
    /// Key -> slot.
    places: HashMap<u64, u32>,
    /// Slot -> key.
    owners: Vec<u64>,
    live: Vec<u32>,
    /// Segments that are full, by what lives in them.
    full: BTreeSet<(u32, u32)>,
    free: Vec<u32>,
    /// Segments that were used at all: memory is for these.
    begun: u32,
    segments: u32,
    /// The open segment for what comes and the one for what is cleaned, and how much of each is used.
    open: [Option<(u32, usize)>; 2],
    segment: usize,
    /// Units that cleaning wrote.
    pub(super) copied: u64,
}

impl Log {
    pub(super) fn new(capacity: usize) -> Self {
        let segment = (capacity / 64).clamp(1, SEGMENT_UNITS_MAX);
        let segments = (capacity + capacity / SPARE).div_ceil(segment) + 4;
        Self {
            places: HashMap::new(),
            owners: Vec::new(),
            live: Vec::new(),
            full: BTreeSet::new(),
            free: Vec::new(),
            begun: 0,
            segments: segments as u32,
            open: [None; 2],
            segment,
            copied: 0,
        }
    }

    /// A unit is written, for the first time or anew.
    pub(super) fn write(&mut self, key: u64) {
        self.remove(key);
        self.append(key, NEW);
        // The last free segment takes what is left of those that are cleaned.
        while self.free.len() + ((self.segments - self.begun) as usize) < 2 && self.clean() {}
    }

    /// A unit is dropped.
    pub(super) fn remove(&mut self, key: u64) {
        let Some(slot) = self.places.remove(&key) else { return };
        self.owners[slot as usize] = NOBODY;
        let segment = slot / self.segment as u32;
        let live = &mut self.live[segment as usize];
        let before = *live;
        *live -= 1;
        if self.full.remove(&(before, segment)) {
            self.full.insert((before - 1, segment));
        }
    }

    fn append(&mut self, key: u64, stream: usize) {
        let (segment, used) = self.open[stream].unwrap_or_else(|| (self.take_free(), 0));
        let slot = segment as usize * self.segment + used;
        self.owners[slot] = key;
        self.live[segment as usize] += 1;
        self.places.insert(key, slot as u32);
        self.open[stream] = Some((segment, used + 1)).filter(|_| used + 1 < self.segment);
        if used + 1 == self.segment {
            self.full.insert((self.live[segment as usize], segment));
        }
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

    /// Makes the segment free that has least in it; false if there is none.
    fn clean(&mut self) -> bool {
        let Some((_, segment)) = self.full.pop_first() else { return false };
        for slot in segment as usize * self.segment..(segment as usize + 1) * self.segment {
            let key = std::mem::replace(&mut self.owners[slot], NOBODY);
            if key != NOBODY {
                self.append(key, CLEANED);
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
    use flashfront_device::Rng;

    use super::*;

    #[test]
    fn what_dies_in_order_costs_nothing() {
        let mut log = Log::new(10_000);
        for key in 0..100_000 {
            if key >= 10_000 {
                log.remove(key - 10_000);
            }
            log.write(key);
        }
        assert_eq!(log.copied, 0);
        assert_eq!(log.places.len(), 10_000);
    }

    #[test]
    fn what_dies_at_random_is_copied_and_nothing_is_lost() {
        for capacity in [1, 2, 7, 63, 1000, 20_000] {
            let mut log = Log::new(capacity);
            let mut rng = Rng::new(1);
            for _ in 0..20 * capacity {
                log.write(rng.below(capacity as u64));
            }
            assert!(log.places.iter().all(|(key, slot)| log.owners[*slot as usize] == *key), "{capacity}");
            let live: u32 = log.live.iter().sum();
            assert_eq!(live as usize, log.places.len(), "{capacity}");
            if capacity == 20_000 {
                // Greedy cleaning of a log 8/9 full that is rewritten uniformly copies about three for each written.
                assert!((1..5).contains(&(log.copied / (20 * capacity as u64))), "{}", log.copied);
            }
        }
    }
}
