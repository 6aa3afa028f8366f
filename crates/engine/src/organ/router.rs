// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which lane a block belongs to: origins are dealt to the lanes in stripes.

use crate::organ::index::Flat;

/// On a line of all blocks up to this length (16 TiB) volumes get places to spare. Each doubling of
/// the line takes one bit of the checksums in the index, which are long enough up to there.
const SPARE_END: u64 = 1 << 32;

/// The map from blocks to lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Router {
    lanes: u64,
    /// Blocks of a stripe, as a power of two. Each request is routed some times, and a division is
    /// as long as a tenth of a look-up.
    stripe_shift: u32,
}

impl Router {
    pub(crate) fn new(lanes: u32, stripe_blocks: u32) -> Self {
        debug_assert!(stripe_blocks.is_power_of_two(), "bug: a superblock with stripes of {stripe_blocks} blocks");
        Self { lanes: u64::from(lanes), stripe_shift: stripe_blocks.ilog2() }
    }

    /// The lane of a block.
    pub(crate) fn lane_of(&self, flat: Flat) -> usize {
        let stripe = flat.0 >> self.stripe_shift;
        // Mostly there is one: no division then.
        (if self.lanes.is_power_of_two() { stripe & (self.lanes - 1) } else { stripe % self.lanes }) as usize
    }

    /// The end of the stripe that a block is in.
    pub(crate) fn stripe_end(&self, flat: Flat) -> Flat {
        Flat(((flat.0 >> self.stripe_shift) + 1) << self.stripe_shift)
    }

    /// Where the next origin begins on the line of all blocks. This one gets as many places again
    /// as it has, so that it can grow while it is served.
    pub(crate) fn next_base(&self, base: u64, blocks: u64) -> u64 {
        let spare = base.saturating_add(self.span_of(2 * blocks));
        if spare <= SPARE_END { spare } else { base.saturating_add(self.span_of(blocks)) }
    }

    /// Blocks from an origin's start to the end of its last stripes: each origin starts at lane 0.
    pub(crate) fn span_of(&self, blocks: u64) -> u64 {
        blocks.next_multiple_of(self.lanes << self.stripe_shift)
    }
}
