// SPDX-License-Identifier: MIT OR Apache-2.0
//! Full segments in lists by how much of them is live, so that dead room is found and won back.
//!
//! A log appends blocks that are rewritten. The old copy's place is dead until its segment is free.
//! Cleaning takes the segment with the fewest live blocks, and moves all of them. So it costs
//! copies, and no block its place. (It is segment cleaning by live data: Rosenblum and Ousterhout,
//! SOSP 1991.) [`Sparse::most`] says how much may be live for that.
//!
//! Segments are in lists by sixteenths of their slots, each list in the order in which they came to
//! it. The time to find a segment, and to move one on, doesn't depend on how many there are.

use alloc::vec::Vec;

/// The number of parts of a segment that lists are for.
const PARTS: u32 = 16;
/// The most parts that are live in any list. With seven eighths live an eighth is won, and seven
/// blocks are moved for each block won. A fuller segment is never cleaned, so no block costs more
/// than seven copies. Data of eight ninths of the device that is rewritten at random needs five to
/// six copies.
const MOST: u32 = PARTS * 7 / 8;
/// The most live parts once blocks had to be dropped: five blocks that are moved win the place of
/// three. (With a half, loads of many writes have 0.7 points fewer hits, for 7 % fewer flash
/// writes. With three quarters they have 0.4 points more, for 10 % more. Others have as many hits
/// in all cases.)
const MOST_FULL: u32 = PARTS * 5 / 8;
/// Segments with at most this many live parts go first. The policy's choice and the amount of dead
/// room don't matter then. Blocks that the policy would drop are dropped, and not moved.
const LITTLE: u32 = PARTS / 4;
/// Dead room is won back while no more than nine tenths of the log are live. Cleaning a fuller log
/// would win next to nothing.
const LIVE_TENTHS: u64 = 9;
/// Smaller segments are in no list. Only models have such. If a model's segments are single blocks,
/// their dead room would be there for use at once. (Half of `br_mssql`'s 10 % was then said to hit
/// 1.9 points too often.)
const SLOTS_MIN: u32 = 4;
/// How many segments of each list are looked at. A segment that can't be reclaimed yet waits for a
/// checkpoint, for destage, or for readers to leave.
const LOOK: usize = 64;

const NONE: u32 = u32::MAX;
/// The list of a segment that is in none.
const NO_LIST: u8 = u8::MAX;

/// How a segment is linked.
#[derive(Clone, Copy)]
struct Link {
    before: u32,
    after: u32,
}

const UNLINKED: Link = Link { before: NONE, after: NONE };

/// Lists of full segments by how much of them is live.
pub(crate) struct Sparse {
    links: Vec<Link>,
    /// In which list each segment is.
    list: Vec<u8>,
    /// The first and the last segment of each list.
    ends: [Link; MOST as usize + 1],
}

impl Default for Sparse {
    fn default() -> Self {
        Self { links: Vec::new(), list: Vec::new(), ends: [UNLINKED; MOST as usize + 1] }
    }
}

impl Sparse {
    /// Whether dead room is won back in a log of `slots` slots, of which `live` are live. Then all
    /// live blocks of the segment are moved.
    pub(crate) const fn cleans(live: u64, slots: u64) -> bool {
        live * 10 <= slots * LIVE_TENTHS
    }

    /// How many sixteenths of a segment may be live if it is to go first. `cleans`: all its live
    /// blocks are moved. `dropped`: blocks had to be dropped for want of room.
    pub(crate) const fn most(cleans: bool, dropped: bool) -> u32 {
        match (cleans, dropped) {
            (true, false) => MOST,
            (true, true) => MOST_FULL,
            (false, _) => LITTLE,
        }
    }

    /// Whether so little of a segment is live that it goes first in any case.
    pub(crate) const fn is_little(live: u32, slots: u32) -> bool {
        slots >= SLOTS_MIN && live * PARTS <= slots * LITTLE
    }

    /// Notes that a full segment has `live` live blocks now, one fewer than before.
    pub(crate) fn fell(&mut self, segment: u32, live: u32, slots: u32) {
        let list = self.list.get(segment as usize).copied().unwrap_or(NO_LIST);
        let next = if list == NO_LIST { MOST } else { u32::from(list).saturating_sub(1) };
        if live * PARTS <= slots * next && u32::from(list) != next {
            self.filled(segment, live, slots);
        }
    }

    /// Notes that a segment is full, with `live` live blocks.
    pub(crate) fn filled(&mut self, segment: u32, live: u32, slots: u32) {
        self.take_out(segment);
        let list = (live * PARTS).div_ceil(slots.max(1));
        if slots < SLOTS_MIN || list > MOST {
            return;
        }
        if segment as usize >= self.list.len() {
            self.list.resize(segment as usize + 1, NO_LIST);
            self.links.resize(segment as usize + 1, UNLINKED);
        }
        self.put_last(segment, list as u8);
    }

    /// Puts a segment at the end of a list.
    fn put_last(&mut self, segment: u32, list: u8) {
        self.take_out(segment);
        let nth = segment as usize;
        let ends = &mut self.ends[usize::from(list)];
        let last = core::mem::replace(&mut ends.after, segment);
        if last == NONE {
            ends.before = segment;
        } else {
            self.links[last as usize].after = segment;
        }
        self.links[nth] = Link { before: last, after: NONE };
        self.list[nth] = list;
    }

    fn take_out(&mut self, segment: u32) {
        let nth = segment as usize;
        let Some(list) = self.list.get_mut(nth).filter(|list| **list != NO_LIST) else { return };
        let ends = &mut self.ends[usize::from(core::mem::replace(list, NO_LIST))];
        let Link { before, after } = core::mem::replace(&mut self.links[nth], UNLINKED);
        match before {
            NONE => ends.before = after,
            before => self.links[before as usize].after = after,
        }
        match after {
            NONE => ends.after = before,
            after => self.links[after as usize].before = before,
        }
    }

    /// Takes out the first segment that can be reclaimed, beginning with the fewest live blocks. At
    /// most `most` sixteenths may be live. `can` answers `None` if the segment is not full any
    /// more.
    pub(crate) fn take(&mut self, most: u32, can: impl Fn(u32) -> Option<bool>) -> Option<u32> {
        for list in 0..=most.min(MOST) as usize {
            let mut segment = self.ends[list].before;
            for _ in 0..LOOK {
                if segment == NONE {
                    break;
                }
                let after = self.links[segment as usize].after;
                match can(segment) {
                    // The next time other segments are looked at first.
                    Some(false) => self.put_last(segment, list as u8),
                    Some(true) => {
                        self.take_out(segment);
                        return Some(segment);
                    }
                    None => self.take_out(segment),
                }
                segment = after;
            }
        }
        None
    }

    /// Whether there is such a segment, among those of which at most `most` sixteenths are live.
    pub(crate) fn any(&self, most: u32, is: impl Fn(u32) -> bool) -> bool {
        let next = |segment: &u32| Some(self.links[*segment as usize].after).filter(|after| *after != NONE);
        let first = |list: u32| Some(self.ends[list as usize].before).filter(|first| *first != NONE);
        (0..=most.min(MOST)).any(|list| core::iter::successors(first(list), next).take(LOOK).any(&is))
    }

    /// Memory of the lists.
    pub(crate) fn bytes(&self) -> u64 {
        (self.links.capacity() * size_of::<Link>() + self.list.capacity()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u32 = MOST;

    #[test]
    fn the_emptiest_that_can_be_reclaimed_comes_first_and_those_that_filled_up_again_never() {
        let mut sparse = Sparse::default();
        sparse.filled(1, 240, 256);
        sparse.filled(2, 3, 256);
        sparse.filled(3, 100, 256);
        sparse.filled(4, 100, 256);
        sparse.fell(1, 225, 256);
        assert_eq!(sparse.take(ALL, |segment| (segment != 2).then_some(segment != 3)), Some(4), "2 is gone, 3 waits");
        assert_eq!(sparse.take(7, |_| Some(true)), Some(3), "it has waited");
        assert_eq!(sparse.take(ALL, |_| Some(true)), None, "of 1 too much is live");
        sparse.fell(1, 224, 256);
        assert_eq!(sparse.take(13, |_| Some(true)), None, "seven eighths of it are live");
        assert_eq!(sparse.take(14, |_| Some(true)), Some(1));
        sparse.filled(5, 50, 256);
        sparse.filled(5, 256, 256);
        assert_eq!(sparse.take(ALL, |_| Some(true)), None, "it was written anew");
        sparse.filled(6, 0, 3);
        assert_eq!(sparse.take(ALL, |_| Some(true)), None, "it is too small");
    }

    /// Compares the lists with a plain list of what each segment holds.
    #[test]
    fn segments_that_lose_blocks_one_by_one_are_where_they_belong() {
        for slots in [4, 8, 15, 256, 1000] {
            let mut sparse = Sparse::default();
            let mut live = [slots; 40];
            let mut random = 1_u64;
            let mut below = |bound: usize| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) as usize % bound
            };
            for _ in 0..20_000 {
                let segment = below(40);
                if live[segment] > 0 && below(200) > 0 {
                    live[segment] -= 1;
                    sparse.fell(segment as u32, live[segment], slots);
                } else {
                    live[segment] = slots - below(slots as usize / 2) as u32;
                    sparse.filled(segment as u32, live[segment], slots);
                }
            }
            let part = |live: u32| (live * PARTS).div_ceil(slots);
            let mut left: Vec<u32> = live.iter().map(|live| part(*live)).filter(|part| *part <= MOST).collect();
            left.sort_unstable();
            let taken = core::iter::from_fn(|| sparse.take(ALL, |_| Some(true)));
            let taken: Vec<u32> = taken.map(|segment| part(live[segment as usize])).collect();
            assert_eq!(taken, left, "{slots} slots");
        }
    }

    #[test]
    fn dead_room_is_won_back_while_a_tenth_is_dead() {
        assert!(Sparse::cleans(90, 100) && !Sparse::cleans(91, 100));
        assert_eq!([Sparse::most(true, false), Sparse::most(true, true)], [14, 10], "of sixteen");
        assert_eq!([Sparse::most(false, false), Sparse::most(false, true)], [4, 4]);
    }
}
