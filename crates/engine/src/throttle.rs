// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps dirty data within its limit by slowing writers, gently at first.
//!
//! Up to nine tenths of the limit writes pass. From there on each block costs a part of the time that destage needs for one, which grows with
//! the square: all of it half of the way to the limit, so that there writers come exactly as fast as destage goes, and four times as much at the
//! limit, which is therefore hardly ever reached; there they wait. (Linear, random writes that found two fifths of the way used were 8 % slower:
//! task 20 of `caches-2015`.) Invariant 6: dirty blocks and accepted writes together never exceed the limit (test: `dirty_limit_holds`).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::destage::Destager;
use crate::lane::{Lanes, Piece};
use crate::request::PIECE_BLOCKS_MAX;
use crate::router::Router;
use crate::shared::{Cx, Shared};
use crate::types::Time;

/// Part of the limit from which on writers are slowed.
const SOFT_PERCENT: u64 = 90;
/// No single pause is longer: dirty data may drop faster than measured, and those who queue behind it pay for each.
const PAUSE_MAX_NS: u64 = 50_000_000;

/// Writes on their way into the cache. Each origin has its own queue and pauses: one that is slow, or away, must not keep out who writes
/// to others (test: `an_origin_that_is_away_stops_no_other`).
pub(crate) struct Throttle {
    queues: Vec<Queue>,
    /// Who goes first the next time: it was its turn, and there was no room.
    turn: usize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Piece>,
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
    let much = |dirty: u64| dirty > u64::midpoint(soft(shared.dirty_limit), shared.dirty_limit);
    much(shared.dirty + shared.reserved) || shared.origins.iter().any(|origin| much(as_of_limit(origin.dirty, shared)))
}

/// What an origin has dirty, as the same part of the limit that it is of the most that it may have; 0 where it alone may have all.
pub(crate) fn as_of_limit(dirty: u64, shared: &Shared) -> u64 {
    let part = part_of_limit(shared.dirty_limit, shared.origins.len() as u64, false);
    if part < shared.dirty_limit { dirty * shared.dirty_limit / part } else { 0 }
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

/// Of several origins none may have more of the limit dirty than this, so that it keeps out nobody when it falls silent; and of one that has, or that
/// refuses destage, no more becomes dirty than its equal part. But always room for one piece.
fn part_of_limit(limit: u64, origins: u64, away: bool) -> u64 {
    match (origins, away) {
        (1, _) => limit,
        (_, false) => (limit / 8 * 7).max(PIECE_BLOCKS_MAX.min(limit)),
        (_, true) => limit / origins,
    }
}

impl Throttle {
    pub(crate) fn new(origins: usize) -> Self {
        Self { queues: (0..origins).map(|_| Queue::default()).collect(), turn: 0 }
    }

    pub(crate) fn submit(&mut self, origin: usize, piece: Piece) {
        self.queues[origin].waiting.push_back(piece);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queues.iter().all(|queue| queue.waiting.is_empty())
    }

    /// The ends of the pauses that writers wait for; those in the past wait for something else.
    pub(crate) fn timers(&self) -> impl Iterator<Item = Time> {
        self.queues.iter().filter(|queue| !queue.waiting.is_empty()).map(|queue| queue.next_pass)
    }

    /// Whether a write can only pass when something of this origin has been destaged, however little is dirty: a
    /// long one before a small limit.
    pub(crate) fn starved(&self, at: usize, destager: &Destager, cx: &Cx<'_>) -> bool {
        let front = |queue: &Queue| queue.waiting.front().map(|piece| u64::from(piece.blocks));
        self.queues.iter().filter_map(front).any(|blocks| over_limit(blocks, cx.shared))
            || front(&self.queues[at]).is_some_and(|blocks| over_part(at, blocks, destager, cx))
    }

    /// Lets through what may pass.
    pub(crate) fn step(&mut self, lanes: &mut Lanes, router: &Router, destager: &Destager, cx: &mut Cx<'_>) {
        let (origins, turn) = (self.queues.len(), self.turn);
        for at in (0..origins).map(|nth| (turn + nth) % origins) {
            while let Some(piece) = self.queues[at].waiting.front() {
                let blocks = u64::from(piece.blocks);
                if cx.now < self.queues[at].next_pass {
                    break;
                }
                if !cx.shared.cache_failed {
                    if over_part(at, blocks, destager, cx) {
                        break;
                    }
                    if over_limit(blocks, cx.shared) {
                        // Nobody overtakes it: whoever wants less would always find room first.
                        self.turn = at;
                        return;
                    }
                }
                self.pass(at, lanes, router, destager, cx);
            }
        }
    }

    fn pass(&mut self, at: usize, lanes: &mut Lanes, router: &Router, destager: &Destager, cx: &mut Cx<'_>) {
        let queue = &mut self.queues[at];
        let Some(mut piece) = queue.waiting.pop_front() else { return };
        let blocks = u64::from(piece.blocks);
        let (limit, cost_ns) = (cx.shared.dirty_limit, destager.cost(at).ns(blocks));
        let (dirty, own) = (cx.shared.dirty + cx.shared.reserved, cx.shared.origins[at].dirty);
        let part = part_of_limit(limit, cx.shared.origins.len() as u64, false);
        let pause = pause_ns(dirty, limit, cost_ns).max(if part < limit { pause_ns(own, part, cost_ns) } else { 0 });
        if pause > 0 {
            cx.shared.counters.throttled_writes += 1;
            queue.next_pass = cx.now.plus_ns(pause);
        }
        piece.reserved = piece.blocks;
        // Who has waited here for a while still writes.
        cx.shared.cache_reads.last_write = Some(cx.now);
        cx.shared.reserved += blocks;
        lanes[router.lane_of(piece.first)].take(piece, cx);
    }
}

/// Whether a write waits for the limit itself.
fn over_limit(blocks: u64, shared: &Shared) -> bool {
    // Lost blocks never become clean, and must not keep everybody out.
    shared.dirty - shared.lost.len() as u64 + shared.reserved + blocks > shared.dirty_limit
}

/// Whether it waits until something of its own origin has been destaged.
fn over_part(at: usize, blocks: u64, destager: &Destager, cx: &Cx<'_>) -> bool {
    let shared = &*cx.shared;
    let origins = shared.origins.len() as u64;
    if origins == 1 {
        return false;
    }
    let most = part_of_limit(shared.dirty_limit, origins, false);
    let part = if destager.is_away(at, cx) {
        // Those that are away together leave the others as much as one would.
        let away = (0..shared.origins.len()).filter(|other| *other != at && destager.is_away(*other, cx));
        let held: u64 = away.map(|other| shared.origins[other].dirty).sum();
        part_of_limit(shared.dirty_limit, origins, true).min(most.saturating_sub(held))
    } else {
        most
    };
    let dirty = shared.undrained(&shared.origins[at]);
    dirty > 0 && dirty + blocks > part
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
