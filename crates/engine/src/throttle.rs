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
use crate::lane::Lanes;
use crate::piece::Piece;
use crate::request::PIECE_BLOCKS_MAX;
use crate::router::Router;
use crate::shared::{Cx, Shared};
use crate::types::Time;

/// Part of the limit from which on writers are slowed.
pub(crate) const SOFT_PERCENT: u64 = 90;
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
    /// Blocks of those that wait.
    blocks: u64,
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

/// What all origins have of the dirty limit, in blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rooms {
    limit: u64,
    /// What is kept for each.
    kept: u64,
    /// What those have that aren't away, and what of the kept they don't use.
    held: u64,
    unused: u64,
    /// What those that are away keep from the others: of it nothing will become clean.
    gone: u64,
}

/// What is taken of the limit, as the writers of one origin see it, and how much there is for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) taken: u64,
    pub(crate) limit: u64,
}

impl Rooms {
    pub(crate) fn new(destager: &Destager, cx: &Cx<'_>) -> Self {
        let (limit, origins) = (cx.shared.dirty_limit, cx.shared.origins.len());
        let mut rooms = Self { limit, kept: kept(limit, origins as u64), held: 0, unused: 0, gone: 0 };
        for (at, origin) in cx.shared.origins.iter().enumerate() {
            let held = cx.shared.held(origin);
            if destager.is_away(at, cx) {
                rooms.gone += held.max(rooms.kept);
            } else {
                rooms.held += held;
                rooms.unused += rooms.kept.saturating_sub(held);
            }
        }
        rooms
    }

    /// However many origins fall silent at a time, what is kept for another one is there.
    pub(crate) fn of(&self, at: usize, destager: &Destager, cx: &Cx<'_>) -> Room {
        let own = cx.shared.held(&cx.shared.origins[at]);
        let (taken, others) = if destager.is_away(at, cx) {
            (self.held + own, self.unused + self.gone - own.max(self.kept))
        } else {
            (self.held, self.unused + self.gone - self.kept.saturating_sub(own))
        };
        Room { taken, limit: self.limit.saturating_sub(others) }
    }
}

impl Room {
    fn of(at: usize, destager: &Destager, cx: &Cx<'_>) -> Self {
        match cx.shared.origins.as_slice() {
            [only] => Self { taken: cx.shared.held(only), limit: cx.shared.dirty_limit },
            _ => Rooms::new(destager, cx).of(at, destager, cx),
        }
    }

    /// Whether so many blocks more are too many.
    fn lacks(self, blocks: u64) -> bool {
        self.taken + blocks > self.limit
    }

    /// Whether so much is dirty that who writes may come no faster than destage goes: then they need it to go.
    pub(crate) fn is_scarce(self) -> bool {
        self.taken > u64::midpoint(soft(self.limit), self.limit)
    }

    /// The pause after a write that destage will need `cost_ns` for.
    fn pause_ns(self, cost_ns: u64) -> u64 {
        let (limit, soft) = (self.limit, soft(self.limit));
        if self.taken <= soft {
            return 0;
        }
        let over = (self.taken - soft).min(limit - soft);
        let (over, whole) = (u128::from(over), u128::from(limit - soft).max(1));
        let part = u128::from(cost_ns) * 4 * over * over / (whole * whole);
        u64::try_from(part).map_or(PAUSE_MAX_NS, |ns| ns.min(PAUSE_MAX_NS))
    }
}

/// So much may be dirty before writers are slowed.
fn soft(limit: u64) -> u64 {
    (limit * SOFT_PERCENT / 100).min(limit.saturating_sub(1))
}

/// What is kept of the limit for each of so many origins: an eighth for all others of one, and room for a piece, however long, but not more than half
/// of the limit for all, nor so much that a piece of one finds no room beside what is kept for the others.
fn kept(limit: u64, origins: u64) -> u64 {
    let others = (origins - 1).max(1);
    let beside_a_piece = limit.saturating_sub(PIECE_BLOCKS_MAX) / others;
    (limit / 8 / others).max(PIECE_BLOCKS_MAX).min(limit / 2 / origins).min(beside_a_piece)
}

impl Throttle {
    pub(crate) fn new(origins: usize) -> Self {
        Self { queues: (0..origins).map(|_| Queue::default()).collect(), turn: 0 }
    }

    pub(crate) fn submit(&mut self, origin: usize, piece: Piece) {
        let queue = &mut self.queues[origin];
        queue.blocks += u64::from(piece.blocks);
        queue.waiting.push_back(piece);
    }

    /// Whether a write of so many blocks, behind those that wait, passes only when something has been destaged.
    pub(crate) fn would_wait(&self, at: usize, blocks: u64, destager: &Destager, cx: &Cx<'_>) -> bool {
        let blocks = self.queues[at].blocks + blocks;
        let behind_others = || self.is_crowded(destager, cx) && !is_kept(at, blocks, cx.shared);
        !cx.shared.cache_failed && (wait(at, blocks, destager, cx).is_some() || behind_others())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queues.iter().all(|queue| queue.waiting.is_empty())
    }

    /// The ends of the pauses that writers wait for; those in the past wait for something else.
    pub(crate) fn timers(&self) -> impl Iterator<Item = Time> {
        self.queues.iter().filter(|queue| !queue.waiting.is_empty()).map(|queue| queue.next_pass)
    }

    /// Whether a write can only pass when something has been destaged, however little is dirty: a long one before a small limit.
    pub(crate) fn is_crowded(&self, destager: &Destager, cx: &Cx<'_>) -> bool {
        (0..self.queues.len()).any(|at| self.waits_for(at, destager, cx) == Some(Wait::ForRoom))
    }

    /// Whether it is something of this origin that has to be.
    pub(crate) fn is_starved(&self, at: usize, crowded: bool, destager: &Destager, cx: &Cx<'_>) -> bool {
        crowded && !is_kept(at, 0, cx.shared) || self.waits_for(at, destager, cx).is_some()
    }

    /// What the first in an origin's queue waits for.
    fn waits_for(&self, at: usize, destager: &Destager, cx: &Cx<'_>) -> Option<Wait> {
        let blocks = self.queues[at].waiting.front().map(|piece| u64::from(piece.blocks))?;
        wait(at, blocks, destager, cx)
    }

    /// Lets through what may pass.
    pub(crate) fn step(&mut self, lanes: &mut Lanes, router: &Router, destager: &Destager, cx: &mut Cx<'_>) {
        let (origins, turn) = (self.queues.len(), self.turn);
        let mut crowded = false;
        for at in (0..origins).map(|nth| (turn + nth) % origins) {
            let mut passed = false;
            while let Some(piece) = self.queues[at].waiting.front() {
                let blocks = u64::from(piece.blocks);
                if cx.now < self.queues[at].next_pass {
                    break;
                }
                let waits = wait(at, blocks, destager, cx).filter(|_| !cx.shared.cache_failed);
                if waits == Some(Wait::ForRoom) && !crowded {
                    crowded = true;
                    self.turn = if passed { (at + 1) % origins } else { at };
                }
                // Nobody overtakes who waits for room, but into what is kept for him: whoever wants less would always find room first.
                if waits.is_some() || crowded && !is_kept(at, blocks, cx.shared) {
                    break;
                }
                passed = true;
                self.pass(at, lanes, router, destager, cx);
            }
        }
    }

    /// An origin has no space, or takes no writes, and was asked often enough, or the daemon stops beside it: takes out the writes that wait for it to make room. Their
    /// clients can do more about that than wait; else a guest would hang that could be paused.
    pub(crate) fn give_up(&mut self, at: usize, destager: &Destager, cx: &Cx<'_>) -> Vec<Piece> {
        let mut given_up = Vec::new();
        while self.waits_for(at, destager, cx).is_some()
            && let Some(piece) = self.queues[at].waiting.pop_front()
        {
            given_up.push(piece);
        }
        given_up
    }

    fn pass(&mut self, at: usize, lanes: &mut Lanes, router: &Router, destager: &Destager, cx: &mut Cx<'_>) {
        let queue = &mut self.queues[at];
        let Some(mut piece) = queue.waiting.pop_front() else { return };
        let blocks = u64::from(piece.blocks);
        queue.blocks -= blocks;
        let pause = Room::of(at, destager, cx).pause_ns(destager.cost(at).ns(blocks));
        if pause > 0 {
            cx.shared.counters.throttled_writes += 1;
            queue.next_pass = cx.now.plus_ns(pause);
        }
        piece.reserved = piece.blocks;
        // Who has waited here for a while still writes.
        cx.shared.cache_reads.last_write = Some(cx.now);
        cx.shared.origins[at].reserved += blocks;
        lanes[router.lane_of(piece.first)].take(piece, cx);
    }
}

/// What a write waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Until something has been destaged.
    ForRoom,
    /// Until something of its own origin has been: that is away, and has its equal part of the limit.
    ForItself,
}

fn wait(at: usize, blocks: u64, destager: &Destager, cx: &Cx<'_>) -> Option<Wait> {
    let shared = &*cx.shared;
    let (held, origins) = (shared.held(&shared.origins[at]), shared.origins.len() as u64);
    if origins > 1 && held > 0 && held + blocks > shared.dirty_limit / origins && destager.is_away(at, cx) {
        Some(Wait::ForItself)
    } else if held == 0 {
        // Of a small limit a long piece can be more than what is kept for others leaves.
        let all: u64 = shared.origins.iter().map(|origin| shared.held(origin)).sum();
        (all + blocks > shared.dirty_limit).then_some(Wait::ForRoom)
    } else {
        Room::of(at, destager, cx).lacks(blocks).then_some(Wait::ForRoom)
    }
}

/// Whether an origin, with so many blocks more, has no more of the limit than is kept for it.
fn is_kept(at: usize, blocks: u64, shared: &Shared) -> bool {
    let origins = shared.origins.len() as u64;
    origins > 1 && shared.held(&shared.origins[at]) + blocks <= kept(shared.dirty_limit, origins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_without_a_cliff_past_the_speed_of_destage() {
        let ns_per_block = 1_000_000;
        let pause_ns = |taken, cost_ns| Room { taken, limit: 1000 }.pause_ns(cost_ns);
        assert_eq!(pause_ns(900, ns_per_block), 0);
        let mut last = 0;
        for dirty in 901..=1000 {
            let now = pause_ns(dirty, ns_per_block);
            assert!(now >= last && now - last <= ns_per_block / 12, "a step at {dirty}");
            last = now;
        }
        assert_eq!(pause_ns(950, ns_per_block), ns_per_block, "as fast as destage");
        assert_eq!(last, 4 * ns_per_block);
        assert_eq!(pause_ns(1000, u64::MAX), PAUSE_MAX_NS);
    }

    /// However small the limit: with nothing kept below 514 blocks, as it was, an origin that fell silent when it had all of 307 stopped the other one.
    #[test]
    fn of_any_limit_something_is_kept_beside_the_longest_piece() {
        for (limit, origins) in (PIECE_BLOCKS_MAX..2000).flat_map(|limit| (2..6).map(move |origins| (limit, origins))) {
            let (kept, others) = (kept(limit, origins), origins - 1);
            assert!(kept * others + PIECE_BLOCKS_MAX <= limit, "of {limit} blocks, {origins} origins");
            assert!(kept * origins <= limit / 2, "of {limit} blocks, {origins} origins");
            assert!(
                kept > 0 || limit < PIECE_BLOCKS_MAX + others || limit / 2 < origins,
                "of {limit} blocks, {origins} origins"
            );
        }
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
