// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locality: whether misses lie side by side. A miss counts if its unit was missed before. That
//! must be so recent that the unit would still be in the cache, if all of it had been brought then.
//!
//! Only a sample of the units is counted, each with all of its misses.

use alloc::vec::Vec;

use crate::policy::mix;

/// Units that are remembered, of a large cache. Half of them are in use, as most collisions forget
/// a unit.
const UNITS: u64 = 4096;
/// The fewest misses of sampled units for a judgement, and the number from which on older ones
/// count half.
const SEEN_MIN: u64 = 128;
const SEEN_MAX: u64 = 1024;
/// The part of misses that must be in a unit that was missed before. It grows by 25 percent of the
/// misses each time that the answer was misleading.
const AGAIN_PERCENT: u64 = 25;
const AGAIN_PERCENT_MAX: u64 = 75;

/// Where the blocks begin that are read together with those from `from` to `to`, as many as a unit
/// has. They begin with their unit. If the blocks lie in two units, they begin at `from`.
pub(crate) const fn begin_of_unit(from: u64, to: u64, unit: u64) -> u64 {
    let begin = from / unit * unit;
    if to > begin + unit { from } else { begin }
}

/// The misses of a lane, as a measure of locality.
pub(crate) struct Locality {
    /// Unit and number of its last miss, at the place that its hash names.
    units: Vec<(u64, u64)>,
    /// Slots of the lane.
    slots: u64,
    misses: u64,
    /// Misses of sampled units, and how many of these units came again.
    seen: u64,
    again: u64,
}

impl Locality {
    /// Makes it for a lane of `slots` slots.
    pub(crate) fn new(slots: u64) -> Self {
        let units = alloc::vec![(u64::MAX, 0); UNITS as usize];
        Self { units, slots, misses: 0, seen: 0, again: 0 }
    }

    /// Notes that a unit of `unit_blocks` blocks was missed. Returns whether its neighbours should
    /// have been brought. `misled`: how often such an answer was in vain.
    pub(crate) fn missed(&mut self, unit: u64, unit_blocks: u64, misled: u32) -> bool {
        self.misses += 1;
        // Half of the cache in whole units.
        let window = (self.slots / 2 / unit_blocks.max(1)).max(1);
        let hash = mix(unit);
        if !(hash >> 32).is_multiple_of((2 * window / UNITS).max(1)) {
            return false;
        }
        let place = &mut self.units[(hash % UNITS) as usize];
        let again = place.0 == unit && self.misses - place.1 <= window;
        *place = (unit, self.misses);
        self.seen += 1;
        self.again += u64::from(again);
        if self.seen >= SEEN_MAX {
            (self.seen, self.again) = (self.seen / 2, self.again / 2);
        }
        let percent = (AGAIN_PERCENT * (1 + u64::from(misled))).min(AGAIN_PERCENT_MAX);
        self.seen >= SEEN_MIN && self.again * 100 >= percent * self.seen
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.units.len() * size_of::<(u64, u64)>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads random blocks of `units` units. Returns how many misses it takes until neighbours are
    /// wanted.
    fn misses(units: u64, misled: u32) -> Option<u64> {
        let mut locality = Locality::new(1 << 16);
        let mut state = 7;
        (1..100_000).find(|_| {
            state = mix(state + 1);
            locality.missed(state % units, 16, misled)
        })
    }

    #[test]
    fn misses_side_by_side_are_told_from_scattered_ones() {
        // The cache has room for 4,096 units, and half of that is what counts.
        assert!(misses(2048, 0).is_some_and(|misses| misses < 4000), "{:?}", misses(2048, 0));
        assert_eq!(misses(32_768, 0), None);
        assert_eq!(misses(4096, 3), None, "who was misled is careful");
    }
}
