// SPDX-License-Identifier: MIT OR Apache-2.0
//! The oldest segment first; blocks that were seen again are copied forward, up to a quarter of it.
//!
//! The quarter bounds write amplification at 1 / (1 - 1/4) = 1.33 in the worst case: a segment full
//! of hot blocks loses three quarters of them, which then come back as second misses.

use alloc::boxed::Box;

use super::fifo::Fifo;
use super::{Build, Replacement};
use crate::policy::Spec;
use crate::types::SegmentId;

pub(super) const SPEC: Spec<Build> = Spec {
    name: "fifo_reinsert",
    summary: "the oldest segment goes; up to a quarter of it, blocks seen again, is copied forward",
    source: "FIFO-Reinsertion, as in S3-FIFO's main queue (Yang et al., SOSP 2023)",
    build: |_| Box::new(FifoReinsert(Fifo::default())),
};

const KEPT_DIVISOR: u32 = 4;

struct FifoReinsert(Fifo);

impl Replacement for FifoReinsert {
    fn sealed(&mut self, segment: SegmentId) {
        self.0.sealed(segment);
    }

    fn freed(&mut self, segment: SegmentId) {
        self.0.freed(segment);
    }

    fn victim(&mut self, evictable: &dyn Fn(SegmentId) -> bool) -> Option<SegmentId> {
        self.0.victim(evictable)
    }

    fn survives(&self, hits: u8, kept: u32, slots: u32) -> bool {
        hits > 0 && kept < slots / KEPT_DIVISOR
    }
}
