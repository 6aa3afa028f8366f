// SPDX-License-Identifier: MIT OR Apache-2.0
//! What came of reading around misses: whether neighbours that were brought had been read when
//! their segments left.

use crate::organ::locality::Locality;

/// A judgement needs so many; from so many on the older ones count half.
const JUDGED_MIN: u64 = 256;
const JUDGED_MAX: u64 = 8192;
/// A cache with more than this part of it in unread neighbours has room.
const VAIN_PART: u64 = 8;

/// What came of the wide reads of one lane.
#[derive(Default)]
pub(crate) struct Neighbours {
    /// Neighbours that were brought to segments that aren't reclaimed yet.
    present: u64,
    /// What became of those that were: lately, and since they were brought again.
    lately: Judged,
    since: Judged,
    /// Number of the first commit since then.
    since_seq: u64,
    /// Misses that brought nothing to the log, since one did.
    misses_alone: u64,
    /// Since it was found that it does not pay: what misses say.
    locality: Option<Locality>,
    /// How many times reading around was tried again because of what misses said, in vain.
    misled: u32,
}

/// Blocks of segments of neighbours as they were to leave.
#[derive(Clone, Copy, Default)]
struct Judged {
    all: u64,
    /// Had been read.
    read: u64,
}

impl Judged {
    fn note(&mut self, hits: u8) {
        self.all += 1;
        self.read += u64::from(hits > 0);
        if self.all >= JUDGED_MAX {
            (self.all, self.read) = (self.all / 2, self.read / 2);
        }
    }

    fn paid(self) -> bool {
        self.read * 2 >= self.all
    }
}

impl Neighbours {
    /// A neighbour has come into a segment.
    pub(crate) const fn came(&mut self) {
        self.present += 1;
    }

    /// A segment with so many neighbours is empty again.
    pub(crate) const fn gone(&mut self, neighbours: u32) {
        self.present -= neighbours as u64;
    }

    /// What is left in a segment of neighbours is to leave; these are the hits of each block. The
    /// lane has so many slots, and `seq` was the segment's last commit.
    pub(crate) fn look_back(&mut self, slots: u64, seq: u64, hits: impl Iterator<Item = u8>) {
        for hits in hits {
            self.lately.note(hits);
            if seq >= self.since_seq {
                self.since.note(hits);
            }
        }
        if self.locality.is_some() || self.since.all < JUDGED_MIN {
            return;
        }
        if self.since.paid() {
            self.misled = 0;
        } else {
            self.locality = Some(Locality::new(slots));
        }
    }

    /// A block in that unit of so many blocks was missed: whether its neighbours should be brought.
    /// While nothing is known they should: a cache that has room has no better use for it.
    pub(crate) fn pays(&mut self, unit: u64, unit_blocks: u64, next_seq: u64) -> bool {
        let Some(locality) = &mut self.locality else { return true };
        if locality.missed(unit, unit_blocks, self.misled) {
            (self.locality, self.since, self.since_seq) = (None, Judged::default(), next_seq);
            self.misled += 1;
        }
        self.locality.is_none()
    }

    /// A block was missed, and its neighbours come into the log or don't; the lane has room for so
    /// many units. If none came for as many misses as whole units would have filled the lane with,
    /// what was brought before no longer counts.
    pub(crate) fn note(&mut self, come: bool, lane_units: u64, next_seq: u64) {
        if !come {
            self.misses_alone += 1;
        } else if core::mem::take(&mut self.misses_alone) >= lane_units {
            (self.since, self.since_seq) = (Judged::default(), next_seq);
        }
    }

    /// Whether a large part of a lane of so many slots holds neighbours that nobody will read.
    pub(crate) fn in_vain(&self, slots: u64) -> bool {
        let Judged { all, read } = self.lately;
        all >= JUDGED_MIN && self.present * (all - read) / all > slots / VAIN_PART
    }

    /// Memory of what misses say.
    pub(crate) fn bytes(&self) -> u64 {
        self.locality.as_ref().map_or(0, Locality::bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: u64 = 1 << 12;
    const UNIT: u64 = 16;

    /// After so many misses without neighbours, those that came before leave unread; whether the
    /// next ones are still brought.
    fn pays_after(misses: u64) -> bool {
        let mut neighbours = Neighbours::default();
        assert!(neighbours.pays(0, UNIT, 1));
        neighbours.note(true, SLOTS / UNIT, 1);
        (0..misses).for_each(|_| neighbours.note(false, SLOTS / UNIT, 5));
        neighbours.note(true, SLOTS / UNIT, 5);
        neighbours.look_back(SLOTS, 4, (0..JUDGED_MIN).map(|_| 0));
        neighbours.pays(0, UNIT, 6)
    }

    #[test]
    fn what_was_brought_before_a_long_pause_does_not_count() {
        assert!(!pays_after(0) && !pays_after(SLOTS / UNIT - 1), "it was in vain");
        assert!(pays_after(SLOTS / UNIT), "other things are asked for now");
    }
}
