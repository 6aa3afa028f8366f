// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of `status` about caches of other sizes.

use flashfront_engine::shadow::WhatIf;
use serde::{Deserialize, Serialize};

use super::share;

/// Figures of a cache of another size, as counted in recent times; the one of 100 % is there for
/// comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhatIfReport {
    /// The size, of which 100 is the present one.
    pub size_percent: u32,
    /// Accesses to blocks.
    pub accesses: u64,
    /// Requests that would find their block.
    pub hits: u64,
    /// Blocks read.
    pub reads: u64,
    /// Blocks that would be found.
    pub read_hits: u64,
    /// Blocks that would be read from origins.
    pub origin_read_blocks: u64,
    /// Blocks that would be written to origins, at least: when they leave the cache.
    pub origin_write_blocks: u64,
    /// Blocks that would be written to flash.
    pub flash_written_blocks: u64,
    /// Whether it would be full by now; until then it may get better still.
    pub filled: bool,
}

impl From<&WhatIf> for WhatIfReport {
    fn from(it: &WhatIf) -> Self {
        let totals = it.totals;
        Self {
            size_percent: it.size_percent,
            accesses: totals.accesses,
            hits: totals.hits,
            reads: totals.reads,
            read_hits: totals.read_hits,
            origin_read_blocks: totals.origin_read_blocks,
            origin_write_blocks: totals.origin_write_blocks,
            flash_written_blocks: totals.flash_blocks_written(),
            filled: it.filled,
        }
    }
}

impl WhatIfReport {
    /// Share of all accesses that would find their block, 0 to 1; `None` without accesses.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        share(self.hits, self.accesses)
    }

    /// Share of the blocks read that would be found.
    #[must_use]
    pub fn read_hit_ratio(&self) -> Option<f64> {
        share(self.read_hits, self.reads)
    }
}
