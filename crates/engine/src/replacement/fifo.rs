// SPDX-License-Identifier: MIT OR Apache-2.0
//! The oldest segment first; nothing is copied forward.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::{Build, Replacement};
use crate::policy::Spec;
use crate::types::SegmentId;

pub(super) const SPEC: Spec<Build> = Spec {
    name: "fifo",
    summary: "the oldest segment goes whole; least flash writes, lowest hit ratio",
    source: "dm-writeboost",
    build: |_| Box::new(Fifo::default()),
};

/// Segments in the order in which they were sealed.
#[derive(Default)]
pub(super) struct Fifo {
    order: VecDeque<SegmentId>,
}

impl Replacement for Fifo {
    fn sealed(&mut self, segment: SegmentId) {
        self.order.push_back(segment);
    }

    fn freed(&mut self, segment: SegmentId) {
        // Nearly always the oldest.
        if self.order.front() == Some(&segment) {
            self.order.pop_front();
        } else {
            self.order.retain(|&it| it != segment);
        }
    }

    fn victim(&mut self, evictable: &dyn Fn(SegmentId) -> bool) -> Option<SegmentId> {
        self.order.iter().copied().find(|&segment| evictable(segment))
    }

    fn survives(&self, _: u8, _: u32, _: u32) -> bool {
        false
    }
}
