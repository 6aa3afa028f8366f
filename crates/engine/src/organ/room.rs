// SPDX-License-Identifier: MIT OR Apache-2.0
//! The dirty limit, and how much room each origin's writers have below it.
//!
//! Something of the limit is kept for each origin, so that one that is slow or away stops no other.
//! [`crate::act::throttle`] slows writers by it, and [`crate::act::destage`] hurries by it.

use crate::cx::Cx;
use crate::organ::piece::PIECE_BLOCKS_MAX;

/// Part of the limit from which on writers are slowed.
pub(crate) const SOFT_PERCENT: u64 = 90;
/// No single pause is longer: dirty data may drop faster than measured, and writers that queue
/// behind a pause pay for each.
const PAUSE_MAX_NS: u64 = 50_000_000;

/// What destage says of the origins.
pub(crate) trait Outlook {
    /// Whether an origin takes nothing at the moment: it refuses, or has answered nothing for long.
    fn is_away(&self, origin: usize, cx: &Cx<'_>) -> bool;

    /// What destage of an origin took lately.
    fn cost(&self, origin: usize) -> Cost;
}

/// What destage takes, by what it took lately.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) ns_per_run: u64,
    pub(crate) ns_per_block: u64,
}

impl Cost {
    /// What destage of consecutive blocks takes: as many runs as blocks at most, each as long as
    /// runs were lately. More than one run is never counted.
    pub(crate) fn ns(self, blocks: u64) -> u64 {
        self.ns_per_block.saturating_mul(blocks).min(self.ns_per_run)
    }
}

/// What all origins have of the dirty limit, in blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rooms {
    limit: u64,
    /// What is kept for each.
    kept: u64,
    /// Blocks of origins that aren't away, and what these origins don't use of what is kept for
    /// them.
    held: u64,
    unused: u64,
    /// What origins that are away keep from the others: none of it will become clean.
    gone: u64,
}

/// What is taken of the limit, as the writers of one origin see it, and how much there is for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) taken: u64,
    pub(crate) limit: u64,
}

impl Rooms {
    pub(crate) fn new(destage: &impl Outlook, cx: &Cx<'_>) -> Self {
        let (limit, origins) = (cx.facts.dirty_limit, cx.facts.origins.len());
        let mut rooms = Self { limit, kept: kept(limit, origins as u64), held: 0, unused: 0, gone: 0 };
        for (origin, it) in cx.delta.origins.iter().enumerate() {
            let held = it.held();
            if destage.is_away(origin, cx) {
                rooms.gone += held.max(rooms.kept);
            } else {
                rooms.held += held;
                rooms.unused += rooms.kept.saturating_sub(held);
            }
        }
        rooms
    }

    /// The room of one origin's writers. However many origins fall silent at a time, what is kept
    /// for another one is there.
    pub(crate) fn of(&self, origin: usize, destage: &impl Outlook, cx: &Cx<'_>) -> Room {
        let own = cx.delta.origins[origin].held();
        let (taken, others) = if destage.is_away(origin, cx) {
            (self.held + own, self.unused + self.gone - own.max(self.kept))
        } else {
            (self.held, self.unused + self.gone - self.kept.saturating_sub(own))
        };
        let room = Room { taken, limit: self.limit.saturating_sub(others) };
        if cx.facts.any_own_limit { room.or_tighter(Room::own(origin, cx)) } else { room }
    }
}

impl Room {
    /// The room of one origin's writers.
    pub(crate) fn of(origin: usize, destage: &impl Outlook, cx: &Cx<'_>) -> Self {
        match cx.delta.origins.as_slice() {
            [only] => Self { taken: only.held(), limit: cx.facts.limit_alone },
            _ => Rooms::new(destage, cx).of(origin, destage, cx),
        }
    }

    /// The room below the limit of an origin's own.
    fn own(origin: usize, cx: &Cx<'_>) -> Self {
        Self { taken: cx.delta.origins[origin].held(), limit: cx.facts.origins[origin].dirty_limit }
    }

    /// The tighter one of this room and another: that of which a larger part is taken.
    fn or_tighter(self, other: Self) -> Self {
        let part = |it: Self, of: Self| u128::from(it.taken) * u128::from(of.limit);
        if part(other, self) > part(self, other) { other } else { self }
    }

    /// Whether so many blocks more are too many.
    pub(crate) fn lacks(self, blocks: u64) -> bool {
        self.taken + blocks > self.limit
    }

    /// Whether so much is dirty that writers may come no faster than destage goes: then they need
    /// destage to go.
    pub(crate) fn is_scarce(self) -> bool {
        self.taken > u64::midpoint(soft(self.limit), self.limit)
    }

    /// The pause after a write that destage will need `cost_ns` for.
    pub(crate) fn pause_ns(self, cost_ns: u64) -> u64 {
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

/// Blocks that may be dirty before writers are slowed.
fn soft(limit: u64) -> u64 {
    (limit * SOFT_PERCENT / 100).min(limit.saturating_sub(1))
}

/// Blocks of the dirty limit that are kept for each origin.
///
/// What is kept for all origins but one is an eighth of the limit, and for each at least the
/// longest piece. There are two caps. All of it together stays below half of the limit. The longest
/// piece of one origin still fits beside what is kept for the others.
fn kept(limit: u64, origins: u64) -> u64 {
    let others = (origins - 1).max(1);
    let beside_a_piece = limit.saturating_sub(PIECE_BLOCKS_MAX) / others;
    (limit / 8 / others).max(PIECE_BLOCKS_MAX).min(limit / 2 / origins).min(beside_a_piece)
}

/// Whether an origin, with so many blocks more, has no more of the limit than is kept for it.
pub(crate) fn is_kept(origin: usize, blocks: u64, cx: &Cx<'_>) -> bool {
    let origins = cx.facts.origins.len() as u64;
    origins > 1 && cx.delta.origins[origin].held() + blocks <= kept(cx.facts.dirty_limit, origins)
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

    /// Something is kept however small the limit is. When nothing was kept below 514 blocks, an
    /// origin that fell silent when it had all of 307 stopped the other one.
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

    /// After random blocks a long write must not be taken for many of them, nor a short write of a
    /// stream for a whole run.
    #[test]
    fn a_long_write_costs_a_run_and_a_short_one_its_blocks() {
        let after_random_blocks = Cost { ns_per_run: 2_500_000, ns_per_block: 2_500_000 };
        assert_eq!(after_random_blocks.ns(128), 2_500_000);
        let in_a_stream = Cost { ns_per_run: 6_000_000, ns_per_block: 23_000 };
        assert_eq!(in_a_stream.ns(1), 23_000);
    }
}
