// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places that the origins of a cache share: of what needs a buffer, or would be too much at once.
//!
//! Who finds none waits, in a queue of its origin. Invariant: an origin that answers nothing leaves
//! places for the others (test: `an_origin_that_is_away_stops_no_other`).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// At most one in so many places is kept for origins that have none: hundreds of idle volumes must
/// leave something for those at work.
const KEPT_PART: u32 = 4;

/// Whether an origin that has `own` places may have one more, where all together have those of
/// `taken`.
///
/// Its first place it may always have: one is kept for that. Of the other places it has two thirds
/// of those that are left, at most. So an origin that is slow leaves some (A. Choudhury and E.
/// Hahne, "Dynamic Queue Length Thresholds", 1998). An origin that is alone has all.
pub(crate) fn is_left(most: u32, own: u32, taken: impl Iterator<Item = u32>) -> bool {
    let (mut origins, mut all, mut kept) = (0, 0, 0);
    for it in taken {
        (origins, all, kept) = (origins + 1, all + it, kept + u32::from(it == 0));
    }
    let free = u32::saturating_sub(most, all);
    let kept = kept.min(most / KEPT_PART);
    if own == 0 || origins == 1 { free > 0 } else { own < 2 * free.saturating_sub(kept) }
}

/// Places, and who waits for one.
pub(crate) struct Places<T> {
    most: u32,
    origins: Vec<Of<T>>,
    /// Which origin has its turn first.
    turn: usize,
}

/// What an origin has of them.
struct Of<T> {
    taken: u32,
    waiting: VecDeque<T>,
}

impl<T> Places<T> {
    pub(crate) fn new(most: u32, origins: usize) -> Self {
        let origins = (0..origins).map(|_| Of { taken: 0, waiting: VecDeque::new() }).collect();
        Self { most, origins, turn: 0 }
    }

    /// There is one origin more.
    pub(crate) fn add_origin(&mut self) {
        self.origins.push(Of { taken: 0, waiting: VecDeque::new() });
    }

    /// Whether one more of this origin may begin.
    pub(crate) fn is_left(&self, origin: usize) -> bool {
        is_left(self.most, self.origins[origin].taken, self.origins.iter().map(|it| it.taken))
    }

    /// Whether others of this origin wait already.
    pub(crate) fn is_waited_for(&self, origin: usize) -> bool {
        !self.origins[origin].waiting.is_empty()
    }

    pub(crate) fn take(&mut self, origin: usize) {
        self.origins[origin].taken += 1;
    }

    pub(crate) fn give_back(&mut self, origin: usize, places: u32) {
        self.origins[origin].taken -= places;
    }

    /// Puts one at the end of its origin's queue.
    pub(crate) fn wait(&mut self, origin: usize, what: T) {
        self.origins[origin].waiting.push_back(what);
    }

    /// Takes out what waited and may begin now; the origins have their turns.
    pub(crate) fn next(&mut self) -> Option<T> {
        let count = self.origins.len();
        let mut turns = (0..count).map(|nth| (self.turn + nth) % count);
        let origin = turns.find(|&origin| self.is_waited_for(origin) && self.is_left(origin))?;
        self.turn = (origin + 1) % count;
        self.origins[origin].waiting.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_alone_has_all_of_them_and_of_several_each_leaves_some() {
        let mut places = Places::new(16, 1);
        places.wait(0, ());
        let taken = |places: &mut Places<()>, origin: usize| {
            while places.is_left(origin) {
                places.take(origin);
            }
            places.origins[origin].taken
        };
        assert_eq!(taken(&mut places, 0), 16);
        assert_eq!(places.next(), None);
        places.give_back(0, 1);
        assert_eq!(places.next(), Some(()));

        let mut places = Places::new(16, 3);
        assert_eq!(taken(&mut places, 0), 10, "of 16 one is kept for each of the others");
        assert_eq!(taken(&mut places, 1), 4);
        assert_eq!(taken(&mut places, 2), 2);
    }

    #[test]
    fn a_thousand_idle_origins_leave_places_for_one_at_work() {
        let mut places = Places::<()>::new(16, 1000);
        while places.is_left(0) {
            places.take(0);
        }
        assert_eq!(places.origins[0].taken, 8);
        assert!(places.is_left(1), "the first place of another one");
    }

    #[test]
    fn who_waits_has_its_origins_turn() {
        let mut places = Places::new(4, 2);
        for nth in 0..3 {
            places.wait(0, (0, nth));
            places.wait(1, (1, nth));
        }
        let begun: Vec<_> = core::iter::from_fn(|| {
            let next = places.next()?;
            places.take(next.0);
            Some(next)
        })
        .collect();
        assert_eq!(begun, [(0, 0), (1, 0), (0, 1), (1, 1)]);
        places.give_back(1, 2);
        assert_eq!(
            places.next(),
            Some((1, 2)),
            "the other has two of four, and leaves the last but for the first of this one"
        );
    }
}
