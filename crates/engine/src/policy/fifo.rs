// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everything is admitted, the oldest segment goes, nothing is copied forward.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::{Build, Policy, Spec, Verdict, Zone};
use crate::types::SegmentId;

pub(super) const SPEC: Spec<Build> = Spec {
    name: "fifo",
    summary: "every miss is cached, the oldest segment goes whole",
    source: "dm-writeboost",
    build: |_| Box::new(Fifo::default()),
};

/// How many are looked at: where none of the oldest is evictable, younger ones aren't either (a checkpoint has to cover them), or are
/// better left alone (until they are clean).
const LOOK: usize = 256;

/// Segments in the order in which they were sealed.
#[derive(Default)]
pub(super) struct Fifo(VecDeque<SegmentId>);

impl Fifo {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn push(&mut self, segment: SegmentId) {
        self.0.push_back(segment);
    }

    /// Takes out the oldest one that is evictable, of the oldest few.
    pub(super) fn take(&mut self, evictable: &dyn Fn(SegmentId) -> bool) -> Option<SegmentId> {
        let at = self.0.iter().take(LOOK).position(|segment| evictable(*segment))?;
        self.0.remove(at)
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

    fn survives(&mut self, _: Zone, _: u8, _: u32, _: u32) -> Option<u8> {
        None
    }
}
