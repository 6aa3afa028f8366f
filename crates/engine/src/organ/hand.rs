// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hand that sweeps over a lane's index, for volumes that have their largest part.

/// The hand of a lane.
#[derive(Default)]
pub(crate) struct Hand {
    /// The next part of the index.
    part: usize,
    /// The hand has nothing to do until a volume comes near its largest part, or the parts change
    /// from those with this number.
    asleep: Option<u64>,
    /// The hand moves until each volume has its margin again.
    moves: bool,
    /// Parts that the hand passed since it last dropped a block.
    in_vain: usize,
    /// The hand found nothing to drop while the lane had so many clean blocks, and rests until the
    /// lane has another number.
    rests_at: Option<u64>,
}

/// Laps in which each block has lost all its hits.
const LAPS: usize = 4;

impl Hand {
    /// A volume has come near its largest part.
    pub(crate) const fn wake(&mut self) {
        self.asleep = None;
    }

    /// Whether there is nothing to do, where the parts have this number and the lane so many clean
    /// blocks.
    pub(crate) fn is_idle(&mut self, parts_number: u64, clean: u64) -> bool {
        if self.asleep == Some(parts_number) || self.rests_at == Some(clean) {
            return true;
        }
        (self.asleep, self.rests_at) = (None, None);
        false
    }

    /// Whether the hand moves already.
    pub(crate) const fn moves(&self) -> bool {
        self.moves
    }

    /// The hand moves, or sleeps until the parts have another number.
    pub(crate) const fn set_moves(&mut self, moves: bool, parts_number: u64) {
        self.moves = moves;
        if !moves {
            self.asleep = Some(parts_number);
        }
    }

    /// The part of the index that the hand looks at next, of so many.
    pub(crate) const fn next(&mut self, parts: usize) -> usize {
        let part = self.part % parts;
        self.part = part + 1;
        self.in_vain += 1;
        part
    }

    /// A step of the hand is over. `dropped`: it dropped a block. `clean`: the clean blocks of the
    /// lane, which has so many parts.
    pub(crate) const fn stepped(&mut self, dropped: bool, parts: usize, clean: u64) {
        if dropped {
            self.in_vain = 0;
        } else if self.in_vain > LAPS * parts {
            self.in_vain = 0;
            self.rests_at = Some(clean);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_that_finds_nothing_rests_until_something_changes() {
        let mut hand = Hand::default();
        assert!(!hand.is_idle(0, 10));
        hand.set_moves(true, 0);
        for _ in 0..=LAPS * 2 {
            hand.next(2);
        }
        hand.stepped(false, 2, 10);
        assert!(hand.is_idle(0, 10));
        assert!(!hand.is_idle(0, 11));
        hand.set_moves(false, 0);
        assert!(hand.is_idle(0, 12));
        assert!(!hand.is_idle(1, 12), "the parts are others");
        hand.set_moves(false, 1);
        hand.wake();
        assert!(!hand.is_idle(1, 12));
    }
}
