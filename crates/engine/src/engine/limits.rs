// SPDX-License-Identifier: MIT OR Apache-2.0
//! The dirty limits that are possible, and the one in force.

use core::ops::RangeInclusive;

use crate::cx::{Cx, Turn};
use crate::fact::types::{BLOCK_BYTES, Destage, REQUEST_BYTES_MAX};
use crate::facts::Facts;
use crate::organ::origin::OriginDelta;

/// The limit falls by such parts of the one that was set.
const STEPS: u64 = 64;

/// The dirty limits that a cache of that capacity can hold. Reclaim needs room: at least an eighth
/// of the cache is never dirty. And a request must fit.
pub(super) fn dirty_limits(capacity: u64) -> RangeInclusive<u64> {
    let least = REQUEST_BYTES_MAX / BLOCK_BYTES + 1;
    least..=(capacity - capacity / 8).max(least)
}

/// The possible limit that is nearest to this one.
pub(super) fn clamp_dirty_limit(blocks: u64, capacity: u64, destage: Destage) -> u64 {
    let limits = dirty_limits(capacity);
    // A checkpoint has room for so many versions that eras need, beside the dirty blocks.
    let most = if destage == Destage::Ordered { capacity / 3 } else { *limits.end() };
    blocks.clamp(*limits.start(), most.max(*limits.start()))
}

/// The limit of the cache without its end, of which each lane keeps so many segments. If none is
/// asked for, the one that was set counts, as far as that is possible.
pub(super) fn without_end(facts: &Facts, keep_segments: u32, asked: Option<u64>) -> u64 {
    let (superblock, all) = (&facts.superblock, facts.superblock.segments_per_lane);
    let capacity = superblock.cache_blocks() * u64::from(keep_segments.min(all)) / u64::from(all);
    clamp_dirty_limit(asked.unwrap_or(facts.limit_set), capacity, facts.options.destage)
}

/// Brings into force whether an origin is away, and the limit that was set. While the end of the
/// cache is emptied, the limit falls to that of the smaller cache. It follows what is dirty, so
/// that writers are slowed and never wait until a large part is destaged.
pub(super) fn follow<'a>(turn: &'a mut Turn<'_>, away: bool) -> Cx<'a> {
    let facts = &*turn.facts;
    let limit = facts.limit_without_end.map_or(facts.limit_set, |aim| {
        let held: u64 = turn.delta.origins.iter().map(OriginDelta::held).sum();
        let step = (facts.limit_set / STEPS).max(1);
        facts.dirty_limit.min(held.next_multiple_of(step)).max(aim).min(facts.limit_set)
    });
    if away != facts.away {
        turn.change().away = away;
    }
    if limit != turn.facts.dirty_limit {
        let facts = turn.change();
        facts.dirty_limit = limit;
        facts.take_limits();
    }
    turn.cx()
}
