// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps dirty data within its limit by slowing writers, gently at first.
//!
//! Up to nine tenths of the limit writes pass. From there on each block costs a part of the time that destage needs for one, which grows with
//! the square: all of it half of the way to the limit, so that there writers come exactly as fast as destage goes, and four times as much at the
//! limit, which is therefore hardly ever reached; there they wait. (Linear, random writes that found two fifths of the way used were 8 % slower:
//! task 20 of `caches-2015`.) Invariant 6: dirty blocks and accepted writes together never exceed the limit (test: `dirty_limit_holds`).

use alloc::collections::VecDeque;

use crate::lane::{Lanes, Piece};
use crate::router::Router;
use crate::shared::{Cx, Shared};
use crate::types::Time;

/// Part of the limit from which on writers are slowed.
const SOFT_PERCENT: u64 = 90;
/// No single pause is longer: dirty data may drop faster than measured, and those who queue behind it pay for each.
const PAUSE_MAX_NS: u64 = 50_000_000;

/// Writes on their way into the cache.
#[derive(Default)]
pub(crate) struct Throttle {
    waiting: VecDeque<Piece>,
    /// Those of origins that refuse destage and have their part of the limit already: what a device that is away leaves dirty must not
    /// keep out who writes to others (test: `an_origin_that_is_away_stops_no_other`).
    held: VecDeque<Piece>,
    /// Before this moment nothing passes.
    next_pass: Time,
}

/// What destage takes, by what it took lately.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) ns_per_run: u64,
    pub(crate) ns_per_block: u64,
}

impl Cost {
    /// Of so many consecutive blocks: at most as many runs as blocks, each as long as runs were lately; and they are one run at most.
    fn ns(self, blocks: u64) -> u64 {
        self.ns_per_block.saturating_mul(blocks).min(self.ns_per_run)
    }
}

/// So much may be dirty before writers are slowed.
fn soft(limit: u64) -> u64 {
    (limit * SOFT_PERCENT / 100).min(limit - 1)
}

/// Whether so much is dirty that who writes may come no faster than destage goes: then they need it to go.
pub(crate) fn no_room(shared: &Shared) -> bool {
    shared.dirty + shared.reserved > u64::midpoint(soft(shared.dirty_limit), shared.dirty_limit)
}

/// The pause after a write that destage will need `cost_ns` for, when so much is dirty.
fn pause_ns(dirty: u64, limit: u64, cost_ns: u64) -> u64 {
    let soft = soft(limit);
    if dirty <= soft {
        return 0;
    }
    let over = (dirty - soft).min(limit - soft);
    let (over, whole) = (u128::from(over), u128::from(limit - soft));
    let part = u128::from(cost_ns) * 4 * over * over / (whole * whole);
    u64::try_from(part).map_or(PAUSE_MAX_NS, |ns| ns.min(PAUSE_MAX_NS))
}

impl Throttle {
    pub(crate) fn submit(&mut self, piece: Piece) {
        self.waiting.push_back(piece);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.held.is_empty()
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
    pub(crate) fn starved(&self, shared: &Shared, now: Time) -> bool {
        let due = |piece: &Piece| !shared.origins[shared.origin_of(piece.first)].rests(now);
        self.waiting.front().is_some_and(|piece| self.over_limit(u64::from(piece.blocks), shared))
            || self.held.iter().any(due)
    }

    /// Whether a write has to wait until its origin takes destage again.
    fn over_part(piece: &Piece, shared: &Shared) -> bool {
        let origin = &shared.origins[shared.origin_of(piece.first)];
        let of = shared.origins.len() as u64;
        if of == 1 || origin.retry.is_none() || shared.cache_failed {
            return false;
        }
        let dirty = shared.undrained(origin);
        dirty > 0 && dirty + u64::from(piece.blocks) > shared.dirty_limit / of
    }

    /// Lets through what may pass.
    pub(crate) fn step(&mut self, lanes: &mut Lanes, router: &Router, cost: Cost, cx: &mut Cx<'_>) {
        if self.held.iter().any(|piece| !Self::over_part(piece, cx.shared)) {
            self.held.append(&mut self.waiting);
            core::mem::swap(&mut self.held, &mut self.waiting);
        }
        while let Some(piece) = self.waiting.front() {
            if Self::over_part(piece, cx.shared) {
                self.held.extend(self.waiting.pop_front());
                continue;
            }
            let blocks = u64::from(piece.blocks);
            if cx.now < self.next_pass || (self.over_limit(blocks, cx.shared) && !cx.shared.cache_failed) {
                return;
            }
            let dirty = cx.shared.dirty + cx.shared.reserved;
            let pause = pause_ns(dirty, cx.shared.dirty_limit, cost.ns(blocks));
            if pause > 0 {
                cx.shared.counters.throttled_writes += 1;
                self.next_pass = cx.now.plus_ns(pause);
            }
            let Some(mut piece) = self.waiting.pop_front() else { return };
            piece.reserved = piece.blocks;
            // Who has waited here for a while still writes.
            cx.shared.cache_reads.last_write = Some(cx.now);
            cx.shared.reserved += blocks;
            lanes[router.lane_of(piece.first)].take(piece, cx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_without_a_cliff_past_the_speed_of_destage() {
        let ns_per_block = 1_000_000;
        assert_eq!(pause_ns(900, 1000, ns_per_block), 0);
        let mut last = 0;
        for dirty in 901..=1000 {
            let now = pause_ns(dirty, 1000, ns_per_block);
            assert!(now >= last && now - last <= ns_per_block / 12, "a step at {dirty}");
            last = now;
        }
        assert_eq!(pause_ns(950, 1000, ns_per_block), ns_per_block, "as fast as destage");
        assert_eq!(last, 4 * ns_per_block);
        assert_eq!(pause_ns(1000, 1000, u64::MAX), PAUSE_MAX_NS);
    }

    /// After random blocks a long write must not be taken for many of them, nor a short one of a stream for a whole run.
    #[test]
    fn a_long_write_costs_a_run_and_a_short_one_its_blocks() {
        let after_random_blocks = Cost { ns_per_run: 2_500_000, ns_per_block: 2_500_000 };
        assert_eq!(after_random_blocks.ns(128), 2_500_000);
        let in_a_stream = Cost { ns_per_run: 6_000_000, ns_per_block: 23_000 };
        assert_eq!(in_a_stream.ns(1), 23_000);
    }
}
