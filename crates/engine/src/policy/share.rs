// SPDX-License-Identifier: MIT OR Apache-2.0
//! The share: how many blocks the zone of writes may have. It follows the blocks that come back.
//!
//! A ghost that the zone of writes lost makes its share grow, and a ghost of the main zone makes it
//! shrink. ARC's p does the same (Megiddo and Modha, FAST 2003). The more blocks the other zone has
//! lost than the ghost's own, the longer is the step. So the share rests where a block that either
//! zone loses is equally likely to come back. With equal steps the share would rest where equally
//! many come back. Then the zone that loses more blocks, each worth less, would have too much.
//!
//! Measured on 37 made traces, hits without / behind a page cache: 46.4 / 29.3 % with equal steps,
//! 47.0 / 29.7 % with these. On twelve real traces there are as many
//! (docs/laboratory/policy-tried.md).

use super::Zone;

/// The zone's least share at first, its least share later, and its largest share, in percent. The
/// largest share leaves room for reads, whose ghosts can then come back. (With 90 instead of 97 a
/// trace of rewrites, `br_mssql`, had 15.8 % hits instead of 18.8. The mean of twelve traces was
/// 0.05 points lower.)
const FIRST: u64 = 25;
const MIN: u64 = 1;
const MAX: u64 = 97;
/// The parts of a block, which is the shortest step, and the longest step in blocks. With four
/// blocks at most, loads of many writes had 0.9 points fewer hits, others as many
/// (docs/laboratory/policy-tried.md).
const STEP: u64 = 16;
const STEPS_MAX: u64 = 16;

pub(super) struct Share {
    /// Blocks of the cache.
    blocks: u64,
    /// Blocks of the zone of writes, in parts.
    parts: u64,
    /// The cache was full once.
    begun: bool,
    /// Blocks that the zone of writes and the main zone lost, halved together.
    lost: [u64; 2],
}

impl Share {
    pub(super) fn new(blocks: u64) -> Self {
        Self { blocks, parts: percent(blocks, FIRST), begun: false, lost: [0; 2] }
    }

    /// Begins when a block has to leave for the first time, and the zone of writes has `held`
    /// blocks. The zone keeps nine tenths of them: it shows how much is written while there is room
    /// for all. When it kept only [`FIRST`], it was emptied down to that, and had to win blocks
    /// back by misses.
    pub(super) fn begin(&mut self, held: u64) {
        if !core::mem::replace(&mut self.begun, true) {
            self.parts = (held * STEP * 9 / 10).clamp(percent(self.blocks, FIRST), percent(self.blocks, MAX));
        }
    }

    /// Whether `blocks` blocks are more than the zone of writes may have.
    pub(super) fn is_exceeded_by(&self, blocks: u64) -> bool {
        blocks * STEP > self.parts
    }

    /// Notes that a zone lost a block.
    pub(super) fn loses(&mut self, zone: Zone) {
        self.lost[usize::from(zone == Zone::Main)] += 1;
        if self.lost[0] + self.lost[1] > self.blocks {
            self.lost = self.lost.map(|lost| lost / 2);
        }
    }

    /// Notes the miss of a block that this zone lost, or had no room for.
    pub(super) fn misses(&mut self, zone: Zone) {
        let [writes, main] = self.lost.map(|lost| lost + 1);
        let step = |other: u64, own: u64| (STEP * other / own).clamp(STEP, STEP * STEPS_MAX);
        self.parts = match zone {
            Zone::Writes => (self.parts + step(main, writes)).min(percent(self.blocks, MAX)),
            Zone::Main => self.parts.saturating_sub(step(writes, main)).max(percent(self.blocks, MIN)),
        };
    }
}

/// A percentage of `blocks`, in parts.
fn percent(blocks: u64, percent: u64) -> u64 {
    blocks * STEP * percent / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With equal losses a block of each zone counts for one. A block of a zone that loses a third
    /// of the other's losses counts for three. No block counts for more than sixteen.
    #[test]
    fn a_step_is_as_long_as_the_other_zone_loses_more() {
        for (lost_writes, lost_main, grows, shrinks) in
            [(99, 99, 1, 1), (299, 99, 1, 3), (99, 299, 3, 1), (999, 9, 1, 16)]
        {
            let mut share = Share::new(10_000);
            (0..lost_writes).for_each(|_| share.loses(Zone::Writes));
            (0..lost_main).for_each(|_| share.loses(Zone::Main));
            share.misses(Zone::Writes);
            assert_eq!(share.parts, (2500 + grows) * STEP);
            share.misses(Zone::Main);
            assert_eq!(share.parts, (2500 + grows - shrinks) * STEP);
        }
    }

    #[test]
    fn it_stays_within_its_bounds() {
        let mut share = Share::new(1000);
        (0..5000).for_each(|_| share.misses(Zone::Writes));
        assert!(share.is_exceeded_by(971) && !share.is_exceeded_by(970));
        (0..5000).for_each(|_| share.misses(Zone::Main));
        assert!(share.is_exceeded_by(11) && !share.is_exceeded_by(10));
    }

    #[test]
    fn what_is_written_keeps_nine_tenths_of_what_it_had_when_the_cache_was_full_first() {
        for (held, share) in [(800, 720), (100, 250), (1000, 900)] {
            let mut share_of = Share::new(1000);
            share_of.begin(held);
            assert!(share_of.is_exceeded_by(share + 1) && !share_of.is_exceeded_by(share), "{held} at first");
            share_of.begin(10);
            assert!(!share_of.is_exceeded_by(share), "only once");
        }
    }
}
