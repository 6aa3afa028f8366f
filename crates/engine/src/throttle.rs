// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps dirty data within its limit by slowing writers, gently at first.
//!
//! Up to three quarters of the limit writes pass. From there to the limit each block costs a
//! growing part of the time that destage needs for one, so that at the limit writers come exactly as
//! fast as destage goes; at the limit they wait. Invariant 6: dirty blocks and accepted writes together
//! never exceed the limit (test: `dirty_limit_holds`).

use alloc::collections::VecDeque;

use crate::lane::{Lane, Piece};
use crate::router::Router;
use crate::shared::{Cx, Shared};
use crate::types::Time;

/// No single pause is longer: dirty data may drop faster than measured.
const PAUSE_MAX_NS: u64 = 200_000_000;

/// Writes on their way into the cache.
#[derive(Default)]
pub(crate) struct Throttle {
    waiting: VecDeque<Piece>,
    /// Before this moment nothing passes.
    next_pass: Time,
}

/// What a write of `blocks` costs in time when so much is dirty.
fn pause_ns(dirty: u64, limit: u64, blocks: u64, ns_per_block: u64) -> u64 {
    let soft = limit / 4 * 3;
    if dirty <= soft {
        return 0;
    }
    let over = (dirty - soft).min(limit - soft);
    let part = u128::from(blocks) * u128::from(ns_per_block) * u128::from(over) / u128::from((limit - soft).max(1));
    u64::try_from(part).map_or(PAUSE_MAX_NS, |ns| ns.min(PAUSE_MAX_NS))
}

impl Throttle {
    pub(crate) fn submit(&mut self, piece: Piece) {
        self.waiting.push_back(piece);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn next_timer(&self) -> Option<Time> {
        (!self.waiting.is_empty()).then_some(self.next_pass)
    }

    /// Whether a write waits for the limit itself.
    fn over_limit(&self, blocks: u64, shared: &Shared) -> bool {
        // Lost blocks never become clean, and must not keep everybody out.
        shared.dirty - shared.lost.len() as u64 + shared.reserved + blocks > shared.dirty_limit
    }

    /// Whether a write can only pass when something has been destaged, however little is dirty: a
    /// long one before a small limit.
    pub(crate) fn starved(&self, shared: &Shared) -> bool {
        self.waiting.front().is_some_and(|piece| self.over_limit(u64::from(piece.blocks), shared))
    }

    /// Lets through what may pass.
    pub(crate) fn step(&mut self, lanes: &mut [Lane], router: &Router, ns_per_block: u64, cx: &mut Cx<'_>) {
        while let Some(piece) = self.waiting.front() {
            let blocks = u64::from(piece.blocks);
            if cx.now < self.next_pass || (self.over_limit(blocks, cx.shared) && !cx.shared.cache_failed) {
                return;
            }
            let dirty = cx.shared.dirty + cx.shared.reserved;
            let pause = pause_ns(dirty, cx.shared.dirty_limit, blocks, ns_per_block);
            if pause > 0 {
                cx.shared.counters.throttled_writes += 1;
                self.next_pass = cx.now.plus_ns(pause);
            }
            let Some(mut piece) = self.waiting.pop_front() else { return };
            piece.reserved = piece.blocks;
            cx.shared.reserved += blocks;
            lanes[router.lane_of(piece.first)].begin(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_without_a_cliff_up_to_the_speed_of_destage() {
        let ns_per_block = 1_000_000;
        assert_eq!(pause_ns(750, 1000, 1, ns_per_block), 0);
        let mut last = 0;
        for dirty in 751..=1000 {
            let now = pause_ns(dirty, 1000, 1, ns_per_block);
            assert!(now >= last && now - last <= ns_per_block / 200, "a step at {dirty}");
            last = now;
        }
        assert_eq!(last, ns_per_block);
        assert_eq!(pause_ns(1000, 1000, 256, u64::MAX), PAUSE_MAX_NS);
    }
}
