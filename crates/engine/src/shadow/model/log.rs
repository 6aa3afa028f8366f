// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log of the model: what is appended, and how room is made.

use super::{Model, Note};
use crate::fact::types::{BLOCK_BYTES, SegmentId};
use crate::organ::chains::{NOBODY, grow};
use crate::organ::sparse::Sparse;
use crate::policy::Zone;

impl Model {
    /// Puts a block into the log, or once more.
    pub(super) fn append(&mut self, key: u64, zone: Zone, note: Note) {
        if let Some(budget) = &mut self.budget {
            budget.spend(BLOCK_BYTES, self.now);
        }
        let (segment, used) = self.open[zone as usize].unwrap_or_else(|| (self.take_free(zone), 0));
        self.open[zone as usize] = Some((segment, used + 1)).filter(|_| used + 1 < self.segment_blocks);
        if let Some(old) = self.find(key) {
            self.remove(old);
        }
        let slot = (segment as usize * self.segment_blocks + used) as u32;
        self.owners[slot as usize] = key;
        self.notes[slot as usize] = note;
        self.blocks.insert(slot, &self.owners);
        self.live_all += 1;
        let (live, full) = &mut self.live[segment as usize];
        *live += 1;
        if used + 1 == self.segment_blocks {
            *full = true;
            self.policy.sealed(SegmentId(segment), zone);
            self.sparse.filled(segment, *live, self.segment_blocks as u32);
        }
    }

    pub(super) fn remove(&mut self, slot: u32) {
        self.blocks.remove(slot, &self.owners);
        self.owners[slot as usize] = NOBODY;
        self.live_all -= 1;
        let segment = slot / self.segment_blocks as u32;
        let (live, full) = &mut self.live[segment as usize];
        *live -= 1;
        if *full {
            self.sparse.fell(segment, *live, self.segment_blocks as u32);
        }
    }

    fn take_free(&mut self, zone: Zone) -> u32 {
        let segment = self.free.pop().unwrap_or_else(|| {
            assert!(self.begun < self.segments, "reclaim keeps some free");
            self.begun += 1;
            let slots = self.begun as usize * self.segment_blocks;
            let most = self.segments as usize * self.segment_blocks;
            grow(&mut self.owners, slots, most, NOBODY);
            grow(&mut self.notes, slots, most, Note::default());
            grow(&mut self.zones, self.begun as usize, self.segments as usize, zone);
            grow(&mut self.live, self.begun as usize, self.segments as usize, (0, false));
            self.blocks.grow(slots, most, &self.owners);
            self.begun - 1
        });
        self.zones[segment as usize] = zone;
        segment
    }

    pub(super) fn reclaim(&mut self) {
        while self.free.len() + ((self.segments - self.begun) as usize) < self.free_wanted {
            let Some((segment, cleaned)) = self.next_victim() else { break };
            let zone = self.zones[segment.0 as usize];
            let (live, full) = &mut self.live[segment.0 as usize];
            *full = false;
            let few = Sparse::is_little(*live, self.segment_blocks as u32);
            let first = segment.0 as usize * self.segment_blocks;
            let mut kept = 0;
            for slot in first..first + self.segment_blocks {
                let key = self.owners[slot];
                if key == NOBODY {
                    continue;
                }
                let Note { hits, dirty } = self.notes[slot];
                if cleaned && self.free_wanted > 1 {
                    // What is dirty still counts as destaged by now, as most of what is old is.
                    self.totals.reinserted_blocks += 1;
                    self.cleaned += 1;
                    self.append(key, Zone::Main, Note { hits, dirty });
                    continue;
                }
                if few && dirty && zone == Zone::Writes && self.free_wanted > 1 {
                    self.totals.reinserted_blocks += 1;
                    self.cleaned += 1;
                    self.append(key, zone, Note { hits, dirty });
                    continue;
                }
                let survives = self.policy.survives(zone, hits, kept, self.segment_blocks as u32);
                if let Some(hits) = survives.filter(|_| self.free_wanted > 1) {
                    kept += 1;
                    self.totals.reinserted_blocks += 1;
                    self.append(key, Zone::Main, Note { hits, dirty });
                } else {
                    self.room = false;
                    self.clean(Some(slot as u32));
                    self.remove(slot as u32);
                    self.policy.dropped(key, zone, hits);
                    self.evicted.push(key);
                }
            }
            self.free.push(segment.0);
        }
    }

    /// The segment to reclaim next, and whether all that is live in it is moved.
    fn next_victim(&mut self) -> Option<(SegmentId, bool)> {
        let slots = u64::from(self.segments) * self.segment_blocks as u64;
        let cleans = Sparse::cleans(self.live_all, slots);
        let most = Sparse::most(cleans, !self.room);
        let live = &self.live;
        if let Some(segment) = self.sparse.take(most, |segment| live[segment as usize].1.then_some(true)) {
            self.policy.forget(SegmentId(segment));
            return Some((SegmentId(segment), cleans));
        }
        self.policy.victim(&|_| true).map(|segment| (segment, false))
    }
}
