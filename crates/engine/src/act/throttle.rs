// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps dirty data within its limit by slowing writers, gently at first.
//!
//! Up to nine tenths of the limit writes pass. From there on each block costs a part of the time
//! that destage needs for one block. That part grows with the square. Half of the way to the limit
//! it is all of the time: there writers come exactly as fast as destage goes. At the limit it is
//! four times the time, so writers hardly ever get there; if they do, they wait. (With a linear
//! part, random writes that found two fifths of the way used were 8 % slower: task 20 of
//! `caches-2015`.)
//!
//! Invariant 6: dirty blocks and accepted writes together never exceed the limit (test:
//! `dirty_limit_holds`).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::cx::Cx;
use crate::fact::types::Time;
use crate::lanes::Lanes;
use crate::organ::origin::OriginDelta;
use crate::organ::piece::Piece;
use crate::organ::room::{Outlook, Room, is_kept};
use crate::organ::router::Router;

/// Writes on their way into the cache. Each origin has its own queue and pauses. An origin that is
/// slow, or away, must not keep out clients that write to others (test:
/// `an_origin_that_is_away_stops_no_other`).
pub(crate) struct Throttle {
    queues: Vec<Queue>,
    /// The queue that is first the next time: it had its turn, and there was no room.
    turn: usize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Piece>,
    /// The number of blocks of the pieces that wait.
    blocks: u64,
    /// No piece passes before this moment.
    next_pass: Time,
}

impl Throttle {
    pub(crate) fn new(origins: usize) -> Self {
        Self { queues: (0..origins).map(|_| Queue::default()).collect(), turn: 0 }
    }

    /// There is one origin more.
    pub(crate) fn add_origin(&mut self) {
        self.queues.push(Queue::default());
    }

    pub(crate) fn submit(&mut self, origin: usize, piece: Piece) {
        let queue = &mut self.queues[origin];
        queue.blocks += u64::from(piece.blocks);
        queue.waiting.push_back(piece);
    }

    /// Whether a write of `blocks` blocks, behind those that wait, passes only when something has
    /// been destaged.
    pub(crate) fn would_wait(&self, origin: usize, blocks: u64, destage: &impl Outlook, cx: &Cx<'_>) -> bool {
        let blocks = self.queues[origin].blocks + blocks;
        let behind_others = || self.is_crowded(destage, cx) && !is_kept(origin, blocks, cx);
        !cx.cache_failed() && (wait(origin, blocks, destage, cx).is_some() || behind_others())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queues.iter().all(|queue| queue.waiting.is_empty())
    }

    /// The ends of the pauses that writers wait for; those in the past wait for something else.
    pub(crate) fn timers(&self) -> impl Iterator<Item = Time> {
        self.queues.iter().filter(|queue| !queue.waiting.is_empty()).map(|queue| queue.next_pass)
    }

    /// Whether a write can only pass when something has been destaged, however little is dirty: a
    /// long one before a small limit.
    pub(crate) fn is_crowded(&self, destage: &impl Outlook, cx: &Cx<'_>) -> bool {
        (0..self.queues.len()).any(|origin| self.waits_for(origin, destage, cx) == Some(WaitsFor::Room))
    }

    /// Whether blocks of this origin have to be destaged before a write can pass.
    pub(crate) fn is_starved(&self, origin: usize, crowded: bool, destage: &impl Outlook, cx: &Cx<'_>) -> bool {
        crowded && !is_kept(origin, 0, cx) || self.waits_for(origin, destage, cx).is_some()
    }

    /// The writes to this origin that wait, for room or for their turn.
    pub(crate) fn slowed(&self, origin: usize) -> usize {
        self.queues[origin].waiting.len()
    }

    /// What the first in an origin's queue waits for.
    fn waits_for(&self, origin: usize, destage: &impl Outlook, cx: &Cx<'_>) -> Option<WaitsFor> {
        let blocks = self.queues[origin].waiting.front().map(|piece| u64::from(piece.blocks))?;
        wait(origin, blocks, destage, cx)
    }

    /// Lets through what may pass.
    pub(crate) fn step(&mut self, lanes: &mut Lanes, router: &Router, destage: &impl Outlook, cx: &mut Cx<'_>) {
        let (origins, turn) = (self.queues.len(), self.turn);
        let mut crowded = false;
        for origin in (0..origins).map(|nth| (turn + nth) % origins) {
            let mut passed = false;
            while let Some(piece) = self.queues[origin].waiting.front() {
                let blocks = u64::from(piece.blocks);
                if cx.now < self.queues[origin].next_pass {
                    break;
                }
                let waits = wait(origin, blocks, destage, cx).filter(|_| !cx.cache_failed());
                if waits == Some(WaitsFor::Room) && !crowded {
                    crowded = true;
                    self.turn = if passed { (origin + 1) % origins } else { origin };
                }
                // No write overtakes another that waits for room, except into the room that is kept
                // for its own origin. Otherwise smaller writes would always find room first.
                if waits.is_some() || crowded && !is_kept(origin, blocks, cx) {
                    break;
                }
                passed = true;
                self.pass(origin, lanes, router, destage, cx);
            }
        }
    }

    /// Takes out the writes that wait for this origin to make room. The origin has no space or
    /// takes no writes, and was asked often enough, or the daemon stops beside it. The clients can
    /// do more about that than wait. Otherwise a guest would hang that could be paused.
    pub(crate) fn give_up(&mut self, origin: usize, destage: &impl Outlook, cx: &Cx<'_>) -> Vec<Piece> {
        let mut given_up = Vec::new();
        while self.waits_for(origin, destage, cx).is_some()
            && let Some(piece) = self.queues[origin].waiting.pop_front()
        {
            given_up.push(piece);
        }
        given_up
    }

    fn pass(&mut self, origin: usize, lanes: &mut Lanes, router: &Router, destage: &impl Outlook, cx: &mut Cx<'_>) {
        let queue = &mut self.queues[origin];
        let Some(mut piece) = queue.waiting.pop_front() else { return };
        let blocks = u64::from(piece.blocks);
        queue.blocks -= blocks;
        let pause = Room::of(origin, destage, cx).pause_ns(destage.cost(origin).ns(blocks));
        if pause > 0 {
            cx.delta.counters.throttled_writes += 1;
            queue.next_pass = cx.now.plus_ns(pause);
        }
        piece.reserved = piece.blocks;
        // A client whose write has waited here for a while is still writing.
        cx.delta.cache_reads.written(cx.now);
        cx.delta.origins[origin].reserved.add(blocks);
        lanes.send_piece(router.lane_of(piece.first), piece, cx);
    }
}

/// What a write waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitsFor {
    /// The write waits until a block of any origin has been destaged.
    Room,
    /// The write waits until a block of its own origin has been destaged. That origin has all that
    /// its own limit allows, or is away and has its equal part of the limit.
    Itself,
}

fn wait(origin: usize, blocks: u64, destage: &impl Outlook, cx: &Cx<'_>) -> Option<WaitsFor> {
    let (held, origins) = (cx.delta.origins[origin].held(), cx.facts.origins.len() as u64);
    if origins > 1 && held > 0 && (is_full(origin, blocks, cx) || has_its_part(origin, blocks, destage, cx)) {
        Some(WaitsFor::Itself)
    } else if held == 0 {
        // If the limit is small, a long piece can need more than is left beside the room kept for
        // others.
        let all: u64 = cx.delta.origins.iter().map(OriginDelta::held).sum();
        (all + blocks > cx.facts.dirty_limit).then_some(WaitsFor::Room)
    } else {
        Room::of(origin, destage, cx).lacks(blocks).then_some(WaitsFor::Room)
    }
}

/// Whether an origin has no room for so many blocks below a limit of its own. (Where it is alone,
/// its [`Room`] is that.)
fn is_full(origin: usize, blocks: u64, cx: &Cx<'_>) -> bool {
    let own = cx.facts.origins[origin].dirty_limit;
    own < cx.facts.dirty_limit && cx.delta.origins[origin].held() + blocks > own
}

/// Whether an origin that is away has its equal part of the limit.
fn has_its_part(origin: usize, blocks: u64, destage: &impl Outlook, cx: &Cx<'_>) -> bool {
    let part = cx.facts.dirty_limit / cx.facts.origins.len() as u64;
    cx.delta.origins[origin].held() + blocks > part && destage.is_away(origin, cx)
}
