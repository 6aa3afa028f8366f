// SPDX-License-Identifier: MIT OR Apache-2.0
//! The dirty limits that are possible.

use core::ops::RangeInclusive;

use crate::fact::types::{BLOCK_BYTES, Destage, REQUEST_BYTES_MAX};

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
