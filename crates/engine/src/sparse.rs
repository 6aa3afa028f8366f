// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments in which little is live are reclaimed first, whatever the policy would take next: they cost few copies and give much room.
//!
//! A log appends what is rewritten, and the old copy's place is a hole until its segment goes. Where much is rewritten, segments in the order of their
//! age were a fifth to a third holes (`fin1_leo`, `br_web2_dd`). With those of which a quarter or less is live reclaimed first (means over twelve traces and four
//! sizes, without / behind a page cache): 38.63 / 19.00 -> 38.69 / 19.12 % hits, at as many flash writes. In prototypes, in caches too small for [`SLOTS_MIN`] too: 38.71 / 19.15,
//! with an eighth 38.70 / 19.13, with two fifths 38.74 / 19.19 for 2 % more flash writes. (Segment cleaning by what is live: Rosenblum and Ousterhout, SOSP 1991.)

use alloc::collections::VecDeque;

/// The part of a segment that is live at most.
const LIVE_PART: u32 = 4;
/// Of smaller segments none is sparse. Only models have such, as samples of caches whose segments have holes that nobody can use for long; those
/// of a model whose segments are blocks would be there for use at once (half of `br_mssql`'s 10 % was said to hit 1.9 points too often).
const SLOTS_MIN: u32 = 8;
/// How many are looked at: those that can't be reclaimed yet wait for a checkpoint, or for readers to leave.
const LOOK: usize = 64;

/// Full segments of which little is live, in the order in which that came to be. A segment may be in it more than once, and may not be sparse any more.
#[derive(Default)]
pub(crate) struct Sparse(VecDeque<u32>);

impl Sparse {
    /// Whether so few live blocks of so many are sparse.
    pub(crate) const fn is(live: u32, slots: u32) -> bool {
        slots >= SLOTS_MIN && live * LIVE_PART <= slots
    }

    /// A full segment has so many live blocks now, one fewer than before.
    pub(crate) fn fell(&mut self, segment: u32, live: u32, slots: u32) {
        if slots >= SLOTS_MIN && live == slots / LIVE_PART {
            self.0.push_back(segment);
        }
    }

    /// A segment is full.
    pub(crate) fn filled(&mut self, segment: u32, live: u32, slots: u32) {
        if Self::is(live, slots) {
            self.0.push_back(segment);
        }
    }

    /// Takes out the first that can be reclaimed; `None` as an answer: it is not sparse any more.
    pub(crate) fn take(&mut self, can: impl Fn(u32) -> Option<bool>) -> Option<u32> {
        let mut at = 0;
        while at < self.0.len().min(LOOK) {
            match can(self.0[at]) {
                Some(false) => at += 1,
                Some(true) => return self.0.remove(at),
                None => _ = self.0.remove(at),
            }
        }
        None
    }

    /// Memory it takes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.0.capacity() * size_of::<u32>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_can_be_reclaimed_come_in_order_and_those_that_filled_up_again_never() {
        let mut sparse = Sparse::default();
        sparse.filled(1, 65, 256);
        sparse.fell(1, 64, 256);
        sparse.fell(1, 63, 256);
        sparse.filled(2, 3, 256);
        sparse.filled(3, 0, 256);
        sparse.filled(4, 64, 256);
        let can = |segment| match segment {
            1 => Some(false),
            2 => None,
            _ => Some(true),
        };
        assert_eq!(sparse.take(can), Some(3));
        assert_eq!(sparse.take(can), Some(4));
        assert_eq!(sparse.take(can), None);
        assert_eq!(sparse.take(|_| Some(true)), Some(1), "it has waited");
        assert_eq!(sparse.take(|_| Some(true)), None, "and was there once");
    }
}
