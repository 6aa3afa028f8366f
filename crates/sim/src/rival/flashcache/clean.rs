// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses which blocks are cleaned, and reads them. What follows is in the file above.

use super::{
    BLOCK, BUSY, CLEANING_IN_ALL, CLEANING_IN_SET, CLUSTER, DIRTY, DIRTY_MAX, Flashcache, Io, Run, SECOND_NS, SET, Tag,
};

impl Flashcache {
    /// Cleans some of a set, if it is too dirty and nothing much else is being cleaned.
    pub(super) fn clean(&mut self, set: usize, io: &mut Io<Tag>) {
        let it = self.sets[set];
        if it.dirty <= DIRTY_MAX {
            return;
        }
        let room_in_set = CLEANING_IN_SET.saturating_sub(u32::from(it.cleaning));
        let room = room_in_set.min(CLEANING_IN_ALL.saturating_sub(self.cleaning)).min(u32::from(it.dirty - DIRTY_MAX));
        if room == 0 {
            if !self.sweeps {
                self.sweeps = true;
                io.after(SECOND_NS, Tag::Sweep);
            }
            return;
        }
        let first = set * SET;
        for _ in 0..room {
            let from = usize::from(self.sets[set].next_dirty);
            let Some(at) = (from..SET).chain(0..from).find(|at| self.states[first + at] == DIRTY) else { return };
            self.sets[set].next_dirty = ((at + 1) % SET) as u16;
            self.clean_around(set, first + at, io);
        }
    }

    /// Cleans a block and its dirty neighbours on the origin.
    fn clean_around(&mut self, set: usize, place: usize, io: &mut Io<Tag>) {
        let block = self.blocks[place];
        let cluster = block / CLUSTER * CLUSTER;
        let dirty = |block, hint| self.find(set, block, hint).filter(|place| self.states[*place] == DIRTY);
        let mut from = block;
        let mut hint = place;
        while from > cluster
            && let Some(place) = dirty(from - 1, hint.wrapping_sub(1))
        {
            (from, hint) = (from - 1, place);
        }
        let mut places = vec![hint];
        let mut next = from + 1;
        while next < cluster + CLUSTER
            && let Some(place) = dirty(next, hint + 1)
        {
            places.push(place);
            (next, hint) = (next + 1, place);
        }
        let run = Run { number: 0, block: from, count: next - from };
        self.sets[set].cleaning += run.count as u16;
        self.cleaning += run.count;
        let mut parts = 0;
        for neighbours in places.chunk_by(|one, other| one + 1 == *other) {
            parts += 1;
            io.read_cache(self.place_at(neighbours[0]), neighbours.len() as u64 * BLOCK, Tag::CleanRead(run));
        }
        self.run_parts.insert(run.block, parts);
        for place in places {
            self.states[place] |= BUSY;
        }
    }
}
