// SPDX-License-Identifier: MIT OR Apache-2.0
//! What volumes do with their blocks, as the hand of reclaim sees it.
//!
//! The hand passes each block of the cache about once in a turn of the log. A volume of which no
//! block had a hit for some turns is not used. A volume of which the policy would give up no block
//! in that time has room enough.

use alloc::vec::Vec;

/// Turns of the log after which a volume sleeps, or has room enough. A volume that is read once a
/// night is used, if the log takes less than a turn in three hours.
const TURNS: u64 = 8;

/// What volumes do with their blocks.
#[derive(Default)]
pub(crate) struct Demand {
    /// Victims so far.
    victims: u64,
    /// By the places of origins.
    seen: Vec<Seen>,
}

/// The numbers of the last victims with such a block.
#[derive(Clone, Copy, Default)]
struct Seen {
    hit: u64,
    given_up: u64,
}

impl Demand {
    /// The hand passes another segment, of so many. Says whether it begins a turn.
    pub(crate) const fn next_victim(&mut self, segments: usize) -> bool {
        self.victims += 1;
        self.victims.is_multiple_of(segments as u64)
    }

    /// The segment has a block of that origin, with so many hits. Says whether the policy keeps it.
    pub(crate) fn see(&mut self, origin: usize, hits: u8, keeps: bool) {
        if self.seen.len() <= origin {
            self.seen.resize(origin + 1, Seen::default());
        }
        let seen = &mut self.seen[origin];
        if hits > 0 {
            seen.hit = self.victims;
        }
        if !keeps {
            seen.given_up = self.victims;
        }
    }

    fn of(&self, origin: usize) -> Seen {
        self.seen.get(origin).copied().unwrap_or_default()
    }

    /// Whether the origin's blocks have hits, in a log of so many segments.
    pub(crate) fn is_used(&self, origin: usize, segments: usize) -> bool {
        self.victims - self.of(origin).hit < TURNS * segments as u64
    }

    /// Whether the policy would give up blocks of the origin.
    pub(crate) fn wants_room(&self, origin: usize, segments: usize) -> bool {
        self.victims - self.of(origin).given_up < TURNS * segments as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(demand: &mut Demand, turns: usize) {
        let began = (0..turns * 4).filter(|_| demand.next_victim(4)).count();
        assert_eq!(began, turns);
    }

    #[test]
    fn a_volume_is_used_until_the_hand_went_round_some_times_without_a_hit() {
        let mut demand = Demand::default();
        assert!(demand.is_used(3, 4) && demand.wants_room(3, 4), "nothing is known yet");
        pass(&mut demand, 8);
        assert!(!demand.is_used(3, 4));
        demand.see(3, 1, true);
        pass(&mut demand, 7);
        assert!(demand.is_used(3, 4) && !demand.is_used(2, 4));
        pass(&mut demand, 1);
        assert!(!demand.is_used(3, 4));
    }

    #[test]
    fn a_volume_wants_room_until_the_hand_went_round_and_gave_up_nothing_of_it() {
        let mut demand = Demand::default();
        pass(&mut demand, 8);
        assert!(!demand.wants_room(0, 4));
        demand.see(0, 0, false);
        pass(&mut demand, 7);
        assert!(demand.wants_room(0, 4) && !demand.wants_room(1, 4));
        pass(&mut demand, 1);
        assert!(!demand.wants_room(0, 4));
    }
}
