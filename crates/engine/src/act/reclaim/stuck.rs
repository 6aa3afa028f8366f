// SPDX-License-Identifier: MIT OR Apache-2.0
//! Victims that can't become free: what they hold is lost, or the origin refuses it.
//!
//! There are but a few victims at once, so one that waits for ever must not keep its place (tests:
//! `reclaim_goes_on_beside_what_is_refused`, and torture, where blocks are lost).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::state::VICTIM_WAIT_NS;
use crate::cx::Cx;
use crate::fact::types::{SegmentId, Time};
use crate::lane::Lane;
use crate::organ::segment::State;

impl Lane {
    /// Victims in which only lost blocks are left: they wait until those are written anew, and must
    /// not keep the others from being reclaimed.
    pub(super) fn stuck_victims(&self, cx: &Cx<'_>) -> usize {
        if cx.shared.lost() == 0 {
            return 0;
        }
        // One whose headers are being read counts as any other: many at once would be more reads
        // than there are buffers for.
        let stuck = |id: &&u32| self.reclaim.victims.get(id).is_some_and(|victim| victim.pending == 0);
        self.held_by_lost().iter().filter(stuck).count()
    }

    /// Segments whose dirty blocks are all lost.
    fn held_by_lost(&self) -> Vec<u32> {
        let slots = self.log.segment_slots();
        let mut lost_in: BTreeMap<u32, u32> = BTreeMap::new();
        for found in self.trouble.lost().filter_map(|flat| self.index.get(flat)) {
            *lost_in.entry(found.slot / slots).or_default() += 1;
        }
        lost_in.retain(|id, lost| self.log.segment(*id).dirty == *lost);
        lost_in.into_keys().collect()
    }

    /// Whether there will be no room until lost blocks are written anew: every segment that is
    /// not free or open holds one, and nothing is on its way that could change that.
    pub(crate) fn full_of_lost(&self, cx: &Cx<'_>) -> bool {
        if cx.shared.lost() == 0 || !self.runs.is_empty() {
            return false;
        }
        let held = self.held_by_lost();
        (0..).zip(self.log.segments()).all(|(id, segment)| match segment.state {
            State::Free | State::Open => true,
            State::Closed | State::Victim => held.binary_search(&id).is_ok(),
            State::Unproven | State::Freeing => false,
        })
    }

    /// Victims that wait for destage while it can't be relied on.
    pub(super) fn waiting_victims(&self, cx: &Cx<'_>) -> usize {
        if cx.shared.away { self.reclaim.victims.values().filter(|victim| victim.waits.is_some()).count() } else { 0 }
    }

    /// The origin has refused what is in these slots. Those of them that are in victims needn't be
    /// tried before all others any more, and their segments come up again when the policy has
    /// offered all others: those may hold what the origin takes.
    pub(crate) fn give_back(&mut self, slots: impl Iterator<Item = u32>) {
        let segment_slots = self.log.segment_slots();
        for slot in slots {
            let id = slot / segment_slots;
            let segment = self.log.segment(id);
            if self.reclaim.victims.get(&id).is_some_and(|victim| victim.pending == 0 && segment.dirty > 0) {
                self.give_back_victim(id);
            }
        }
    }

    /// The same for those of which for long nothing has become clean: their origin gives no word.
    pub(super) fn give_back_waiting(&mut self, now: Time) {
        let mut given_back = Vec::new();
        for (&id, victim) in &mut self.reclaim.victims {
            let dirty = self.log.segment(id).dirty;
            let Some((last, since)) = &mut victim.waits else { continue };
            if dirty < *last {
                (*last, *since) = (dirty, now);
            } else if victim.pending == 0 && dirty > 0 && now.since_ns(*since) >= VICTIM_WAIT_NS {
                given_back.push(id);
            }
        }
        for id in given_back {
            self.give_back_victim(id);
        }
    }

    pub(super) fn give_back_victim(&mut self, id: u32) {
        let Some(victim) = self.reclaim.victims.remove(&id) else { return };
        self.reclaim.compacting = self.reclaim.compacting.filter(|compacting| *compacting != id);
        for (flat, _) in victim.blocks {
            // Others may be in a hurry, too: who replaces it, or has one sound copy only.
            if self.trouble.is_urgent(flat) && !self.is_changing(flat) {
                self.trouble.calm(flat);
            }
        }
        let (segment, segment_slots) = (self.log.segment(id), self.log.segment_slots());
        self.log.set_state(id, State::Closed);
        self.policy.sealed(SegmentId(id), segment.zone);
        self.reclaim.sparse.filled(id, segment.live, segment_slots);
    }
}
