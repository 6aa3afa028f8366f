// SPDX-License-Identifier: MIT OR Apache-2.0
//! SMQ's queue has 64 LRU lists, one above the other. A block that is asked for swaps places with
//! one of a higher level.
//!
//! From time to time the levels get equal lengths again. So levels rank the entries of a queue
//! against each other, without a counter that would have to be aged. In each level entries are kept
//! apart by when they came into it: in this period, the one before, or earlier. The kernel does the
//! same with two sentinels in each list.

use super::super::table::{List, Slot, Table};

pub(crate) const LEVELS: u8 = 64;

/// What a queue must know of an entry.
pub(crate) struct Unit {
    pub(crate) level: u8,
    /// Whether the block was changed since it was copied to the origin.
    pub(crate) dirty: bool,
    /// The period of the queue when it came into its level.
    pub(crate) since: u32,
    /// The last period of hits in which it was asked for.
    pub(crate) hit: u32,
}

/// By when entries came into the level: earlier, in the last period, in this one.
type Level = [List; 3];

pub(crate) struct Queue {
    levels: Vec<Level>,
    len: usize,
    period: u32,
    /// The lengths that the levels shall have.
    targets: [usize; LEVELS as usize],
    /// The sum of the targets.
    targets_of: usize,
    /// Levels at the top that are shorter than the others, and how many entries they have together.
    top: (usize, usize),
}

impl Queue {
    /// An empty one, whose `top` levels shall have so many entries together.
    pub(crate) fn new(top: (usize, usize)) -> Self {
        let levels = vec![[List::new(); 3]; LEVELS.into()];
        Self { levels, len: 0, period: 0, targets: [0; LEVELS as usize], targets_of: 0, top }
    }

    fn group(&self, unit: &Unit) -> usize {
        2 - (self.period - unit.since).min(2) as usize
    }

    fn level_len(&self, level: u8) -> usize {
        self.levels[usize::from(level)].iter().map(List::len).sum()
    }

    /// Puts it at the end of its level.
    pub(crate) fn push(&mut self, units: &mut Table<Unit>, slot: Slot) {
        units[slot].since = self.period;
        units.push(&mut self.levels[usize::from(units[slot].level)][2], slot);
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, units: &mut Table<Unit>, slot: Slot) {
        let group = self.group(&units[slot]);
        units.unlink(&mut self.levels[usize::from(units[slot].level)][group], slot);
        self.len -= 1;
    }

    /// The oldest of the lowest level that has any, below `levels`; perhaps only those that have
    /// been in their level for a period.
    pub(crate) fn oldest(&self, levels: u8, only_settled: bool) -> Option<Slot> {
        let groups = if only_settled { 1 } else { 3 };
        self.levels[..levels.into()].iter().find_map(|level| level[..groups].iter().find_map(List::oldest))
    }

    /// Moves it up, in exchange for the oldest of the level where it goes.
    pub(crate) fn requeue(&mut self, units: &mut Table<Unit>, slot: Slot, jump: u8) {
        let from = units[slot].level;
        let to = (from + jump).min(LEVELS - 1);
        if to > from
            && let Some(other) = self.levels[usize::from(to)].iter().find_map(List::oldest)
        {
            // It keeps its age: it goes to the end of those that came when it did.
            let group = self.group(&units[other]);
            units.unlink(&mut self.levels[usize::from(to)][group], other);
            units[other].level = from;
            units.push(&mut self.levels[usize::from(from)][group], other);
        }
        self.remove(units, slot);
        units[slot].level = to;
        self.push(units, slot);
    }

    /// Gives the levels the lengths that they shall have, from the lowest up.
    pub(crate) fn redistribute(&mut self, units: &mut Table<Unit>) {
        self.set_targets();
        for level in 0..LEVELS - 1 {
            let target = self.targets[usize::from(level)];
            while self.level_len(level) < target {
                let above = &self.levels[usize::from(level) + 1..];
                let Some(slot) = above.iter().find_map(|it| it.iter().find_map(List::oldest)) else { break };
                self.move_to(units, slot, level);
            }
            while self.level_len(level) > target {
                let groups = self.levels[usize::from(level)].iter().rev();
                let Some(slot) = groups.into_iter().find_map(List::newest) else { break };
                self.move_to(units, slot, level + 1);
            }
        }
    }

    fn move_to(&mut self, units: &mut Table<Unit>, slot: Slot, level: u8) {
        self.remove(units, slot);
        units[slot].level = level;
        self.push(units, slot);
    }

    fn set_targets(&mut self) {
        if self.targets_of == self.len {
            return;
        }
        self.targets_of = self.len;
        let (levels, entries) = self.top;
        let (below, top) = self.targets.split_at_mut(usize::from(LEVELS) - levels);
        share(below, self.len.saturating_sub(entries));
        share(top, entries);
    }

    /// What came in the last period came earlier now.
    pub(crate) fn next_period(&mut self, units: &mut Table<Unit>) {
        self.period += 1;
        for [earlier, last, this] in &mut self.levels {
            units.append(earlier, last);
            units.append(last, this);
        }
    }
}

fn share(targets: &mut [usize], entries: usize) {
    let levels = targets.len();
    for (level, target) in targets.iter_mut().enumerate() {
        *target = entries / levels + usize::from(level < entries % levels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(queue: &mut Queue, units: &mut Table<Unit>, key: u64, level: u8) -> Slot {
        let slot = units.insert(key, Unit { level, dirty: false, since: 0, hit: 0 });
        queue.push(units, slot);
        slot
    }

    #[test]
    fn levels_get_their_lengths() {
        let (mut queue, mut units) = (Queue::new((8, 4)), Table::new());
        for key in 0..116 {
            add(&mut queue, &mut units, key, 0);
        }
        queue.redistribute(&mut units);
        assert!((0..56).all(|level| queue.level_len(level) == 2));
        assert!((56..64).all(|level| queue.level_len(level) == usize::from(level < 60)));
        // The oldest stay below.
        assert_eq!([0, 1, 115].map(|key| units[units.find(key).unwrap()].level), [0, 0, 1]);
        for key in 0..100 {
            let slot = units.find(key).unwrap();
            queue.remove(&mut units, slot);
            units.remove(slot);
        }
        queue.redistribute(&mut units);
        assert_eq!((0..64).map(|level| queue.level_len(level)).sum::<usize>(), 16);
        assert!((0..12).all(|level| queue.level_len(level) == 1) && (12..56).all(|level| queue.level_len(level) == 0));
    }

    #[test]
    fn who_is_asked_for_swaps_places() {
        let (mut queue, mut units) = (Queue::new((0, 0)), Table::new());
        let [low, high, higher] = [(1, 5), (2, 7), (3, 7)].map(|(key, level)| add(&mut queue, &mut units, key, level));
        queue.requeue(&mut units, low, 2);
        assert_eq!([low, high, higher].map(|slot| units[slot].level), [7, 5, 7]);
        assert_eq!((queue.oldest(64, false), queue.oldest(5, false)), (Some(high), None));
        queue.requeue(&mut units, higher, 100);
        assert_eq!([low, high, higher].map(|slot| units[slot].level), [7, 5, 63]);
    }

    #[test]
    fn an_entry_is_settled_after_a_period_that_it_was_there_all_the_time() {
        let (mut queue, mut units) = (Queue::new((0, 0)), Table::new());
        let slot = add(&mut queue, &mut units, 1, 3);
        queue.next_period(&mut units);
        assert_eq!((queue.oldest(64, true), queue.oldest(64, false)), (None, Some(slot)));
        queue.next_period(&mut units);
        assert_eq!(queue.oldest(64, true), Some(slot));
        // One that must make place keeps its age, one that is asked for doesn't.
        let young = add(&mut queue, &mut units, 2, 2);
        queue.requeue(&mut units, young, 1);
        assert_eq!((queue.oldest(64, true), units[slot].level, units[young].level), (Some(slot), 2, 3));
        queue.requeue(&mut units, slot, 1);
        assert_eq!(queue.oldest(64, true), None);
        assert_eq!(queue.len, 2);
    }
}
