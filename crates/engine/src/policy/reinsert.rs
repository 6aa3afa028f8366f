// SPDX-License-Identifier: MIT OR Apache-2.0
//! A policy that admits everything and gives up the oldest segment. Blocks of that segment that
//! were seen again are copied forward, up to a quarter of it.
//!
//! The quarter bounds write amplification at 1 / (1 - 1/4) = 1.33 in the worst case.

use alloc::boxed::Box;

use super::fifo::Fifo;
use super::{Build, Policy, Spec, Verdict, Zone};
use crate::fact::types::SegmentId;

pub(super) const SPEC: Spec<Build> = Spec {
    name: "reinsert",
    summary: "as fifo, but blocks of the oldest 1 MiB that were used again are kept, up to a quarter of it",
    source: "FIFO-Reinsertion, as in S3-FIFO's main queue (Yang et al., SOSP 2023)",
    build: |_| Box::new(Reinsert(Fifo::default())),
};

const KEPT_DIVISOR: u32 = 4;

struct Reinsert(Fifo);

impl Policy for Reinsert {
    fn missed(&mut self, _: u64, _: bool) -> Verdict {
        Verdict { admit: true, seen: 1 }
    }

    fn sealed(&mut self, segment: SegmentId, _: Zone) {
        self.0.push(segment);
    }

    fn victim(&mut self, evictable: &dyn Fn(SegmentId) -> bool) -> Option<SegmentId> {
        self.0.take(evictable)
    }

    fn forget(&mut self, segment: SegmentId) {
        self.0.take_out(segment);
    }

    fn survives(&mut self, _: Zone, hits: u8, kept: u32, slots: u32) -> Option<u8> {
        (hits > 0 && kept < slots / KEPT_DIVISOR).then_some(0)
    }
}
