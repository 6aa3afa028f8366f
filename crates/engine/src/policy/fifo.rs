// SPDX-License-Identifier: MIT OR Apache-2.0
//! The policy "fifo": everything is admitted, the oldest segment goes, nothing is copied forward.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Build, Policy, Spec, Verdict, Zone};
use crate::fact::types::SegmentId;

pub(super) const SPEC: Spec<Build> = Spec {
    name: "fifo",
    summary: "keeps every block that was missed, and drops the oldest 1 MiB when it needs room",
    source: "dm-writeboost",
    build: |_| Box::new(Fifo::default()),
};

/// How many segments are looked at. If none of the oldest is evictable, younger ones aren't either,
/// as a checkpoint has to cover them. Or they are better left alone until they are clean.
const LOOK: usize = 256;

/// Segments in the order in which they were sealed.
///
/// A segment that is forgotten leaves its entry behind: a search for it would take longer with more
/// segments. So an entry counts only if its stamp is the segment's.
#[derive(Default)]
pub(super) struct Fifo {
    entries: VecDeque<(SegmentId, u32)>,
    /// The stamp of each segment's entry; 0: it has none.
    stamps: Vec<u32>,
    last_stamp: u32,
    len: usize,
}

impl Fifo {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, segment: SegmentId) {
        let nth = segment.0 as usize;
        if nth >= self.stamps.len() {
            self.stamps.resize(nth + 1, 0);
        }
        self.last_stamp = self.last_stamp.checked_add(1).unwrap_or(1);
        self.stamps[nth] = self.last_stamp;
        self.entries.push_back((segment, self.last_stamp));
        self.len += 1;
    }

    /// Takes out the oldest evictable segment, of the oldest few.
    pub(super) fn take(&mut self, evictable: &dyn Fn(SegmentId) -> bool) -> Option<SegmentId> {
        let stamps = &self.stamps;
        while self.entries.front().is_some_and(|(segment, stamp)| stamps[segment.0 as usize] != *stamp) {
            self.entries.pop_front();
        }
        let counts = |&(segment, stamp): &(SegmentId, u32)| stamps[segment.0 as usize] == stamp;
        let entries = self.entries.iter().enumerate().filter(|(_, entry)| counts(entry));
        let mut oldest = entries.take(LOOK).map(|(nth, entry)| (nth, entry.0));
        let (nth, segment) = oldest.find(|(_, segment)| evictable(*segment))?;
        self.entries.remove(nth);
        self.remove(segment);
        Some(segment)
    }

    /// Takes out that segment; false if it isn't there.
    pub(super) fn take_out(&mut self, segment: SegmentId) -> bool {
        let there = self.stamps.get(segment.0 as usize).is_some_and(|stamp| *stamp != 0);
        if there {
            self.remove(segment);
        }
        there
    }

    fn remove(&mut self, segment: SegmentId) {
        self.stamps[segment.0 as usize] = 0;
        self.len -= 1;
        if self.entries.len() > 2 * self.len + LOOK {
            let stamps = &self.stamps;
            self.entries.retain(|(segment, stamp)| stamps[segment.0 as usize] == *stamp);
        }
    }

    /// Memory of the queue.
    pub(super) fn bytes(&self) -> u64 {
        (self.entries.capacity() * size_of::<(SegmentId, u32)>() + self.stamps.capacity() * size_of::<u32>()) as u64
    }
}

impl Policy for Fifo {
    fn missed(&mut self, _: u64, _: bool) -> Verdict {
        Verdict { admit: true, seen: 1 }
    }

    fn sealed(&mut self, segment: SegmentId, _: Zone) {
        self.push(segment);
    }

    fn victim(&mut self, evictable: &dyn Fn(SegmentId) -> bool) -> Option<SegmentId> {
        self.take(evictable)
    }

    fn forget(&mut self, segment: SegmentId) {
        self.take_out(segment);
    }

    fn survives(&mut self, _: Zone, _: u8, _: u32, _: u32) -> Option<u8> {
        None
    }
}
