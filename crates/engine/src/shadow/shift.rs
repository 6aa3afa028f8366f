// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells that all that clients ask for has changed, to data that would fit. This is known long
//! before an LRU has shown to be ahead.
//!
//! Only reads count, as the gate is for them. The first sign: hits fall to a quarter of what they
//! were. A scan does that, too. So what came since must be asked for again, as often as data that
//! fits would be. Of n random blocks of N about n^2 / 2N come twice (the birthday problem). In a
//! cache of 4,096 blocks eight repetitions among the first 256 reads are enough. An LRU is half a
//! hit of a hundred ahead after four hundred reads, and each of these would be missed once more by
//! then.

/// Hits lately are a mean over this part of a cache full of accesses, those before over all of it.
const LATELY_PART: f64 = 64.0;
/// They have fallen below this part of what they were, and have recovered above that one.
const FALLEN: f64 = 0.25;
const RECOVERED: f64 = 0.5;
/// Fewer hits than that say nothing when they fall, nor do those of a smaller sample.
const USUAL_MIN: f64 = 0.05;
const BLOCKS_MIN: f64 = 2048.0;
/// At least so many must be asked for again: fewer may be chance.
const AGAIN_MIN: f64 = 8.0;
/// After accesses to new blocks for this part of the cache it begins anew, while hits stay low.
const GIVEN_UP: f64 = 0.25;

#[derive(Debug)]
pub(super) struct Shift {
    blocks: f64,
    /// Hits in an access.
    lately: f64,
    usual: f64,
    fallen: Option<Fallen>,
}

/// Since the hits fell.
#[derive(Debug)]
struct Fallen {
    when: u64,
    /// Accesses to blocks that were not there then, and those among them that were not the first.
    new: f64,
    again: f64,
}

impl Shift {
    pub(super) fn new(blocks: f64) -> Self {
        Self { blocks, lately: 0.0, usual: 0.0, fallen: None }
    }

    /// Counts a read at a moment `now`, counted in accesses. `since`: the moment since when an LRU
    /// has the block. `hit`: the cache has the block. Returns whether all that is asked for has
    /// changed; the answer stays yes until [`Self::end`], for a while.
    pub(super) fn count(&mut self, now: u64, since: Option<u64>, hit: bool) -> bool {
        self.note(hit);
        let short = self.blocks / LATELY_PART;
        let Some(fallen) = &mut self.fallen else {
            if self.usual > USUAL_MIN && self.lately < self.usual * FALLEN && self.blocks >= BLOCKS_MIN {
                // It takes about that long to show.
                self.fallen = Some(Fallen { when: now.saturating_sub(short as u64), new: 0.0, again: 0.0 });
            }
            return false;
        };
        if since.unwrap_or(now) >= fallen.when {
            fallen.new += 1.0;
            fallen.again += f64::from(u8::from(since.is_some()));
        }
        let fits = fallen.new * fallen.new < 2.0 * fallen.again * self.blocks;
        let changed = fits && fallen.again >= AGAIN_MIN;
        if self.lately > self.usual * RECOVERED || fallen.new > self.blocks * GIVEN_UP {
            self.fallen = None;
        }
        changed
    }

    /// A read, and whether the cache has the block.
    pub(super) fn note(&mut self, hit: bool) {
        let hit = f64::from(u8::from(hit));
        self.usual += (hit - self.usual) / self.blocks;
        self.lately += (hit - self.lately) * LATELY_PART / self.blocks;
    }

    /// The change is known.
    pub(super) fn end(&mut self) {
        self.fallen = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::mix;
    use crate::shadow::lru::Lru;

    const BLOCKS: u64 = 1 << 12;

    /// A cache hits what is hot, and then gets these reads, each of which misses. Returns after how
    /// many of them the change is noticed.
    fn noticed(reads: impl Iterator<Item = u64>) -> Option<usize> {
        let (mut shift, mut lru) = (Shift::new(BLOCKS as f64), Lru::new(BLOCKS as usize));
        for now in 0..4 * BLOCKS {
            let since = lru.touch(now % 1000, now);
            assert!(!shift.count(now, since, now >= 1000));
        }
        reads.enumerate().position(|(nth, key)| {
            let now = 4 * BLOCKS + nth as u64;
            shift.count(now, lru.touch(key, now), false)
        })
    }

    fn random(blocks: u64) -> impl Iterator<Item = u64> {
        (0..4 * BLOCKS).map(move |nth| (1 << 40) + mix(nth) % blocks)
    }

    #[test]
    fn other_data_that_fits_is_noticed_after_a_few_repetitions() {
        let after = noticed(random(BLOCKS * 8 / 10)).expect("it fits");
        assert!((100..500).contains(&after), "{after} reads");
    }

    #[test]
    fn a_scan_a_loop_and_data_that_does_not_fit_are_no_change() {
        assert_eq!(noticed((1 << 40)..(1 << 40) + 4 * BLOCKS), None, "a scan");
        assert_eq!(noticed((0..4 * BLOCKS).map(|nth| (1 << 40) + nth % (BLOCKS * 11 / 10))), None, "a loop");
        assert_eq!(noticed(random(8 * BLOCKS)), None, "data of eight caches");
    }

    #[test]
    fn a_cache_that_recovers_has_seen_no_change() {
        let mut shift = Shift::new(BLOCKS as f64);
        let mut count = |times: u64, hit, since: Option<u64>| (0..times).any(|_| shift.count(BLOCKS, since, hit));
        assert!(!count(BLOCKS, true, Some(0)));
        assert!(!count(200, false, None), "hits have fallen");
        assert!(!count(200, true, Some(0)), "and recovered");
        assert!(!count(20, false, Some(BLOCKS)), "so repetitions mean nothing");
        assert!(count(200, false, Some(BLOCKS)), "until hits fall again");
    }
}
