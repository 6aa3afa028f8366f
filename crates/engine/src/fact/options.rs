// SPDX-License-Identifier: MIT OR Apache-2.0
//! Choices that an operator has when the engine is opened. Nothing here changes the medium's
//! format.

use alloc::vec::Vec;

use crate::fact::canary::Canary;
use crate::fact::types::{Destage, Durability, OriginId};
use crate::policy::{self, Spec};

/// The widest read around a miss: 256 KiB.
// `under_way::Reading::void` has as many bits.
pub const READ_AROUND_BLOCKS_MAX: u64 = 64;

/// The choices of an opening. Units are in the names.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides which blocks are cached, and which leave.
    pub policy: &'static Spec<policy::Build>,
    /// When a write in writeback mode is acknowledged.
    pub durability: Durability,
    /// The most blocks that may be dirty: at most 7/8 of the capacity. Default: half of the
    /// capacity. An elevator over a dirty set of D blocks needs up to 2 D writes to come round. By
    /// then its oldest block must not be in the way of reclaim.
    pub dirty_limit_blocks: Option<u64>,
    /// Streams longer than this bypass the cache; 0 = never. Default: 4 MiB, as bcache's
    /// `sequential_cutoff`.
    pub sequential_bypass_bytes: u64,
    /// How much is read at once from a slow origin, if a part of it is missed, in blocks of 4 KiB.
    /// At most 64; 0 = only blocks that are asked for. Default: 16, which is 64 KiB. A disk needs
    /// twenty times longer to get to the place than to carry that much.
    pub read_around_blocks: u64,
    /// RAM for copies of blocks that were read from the cache device, beside the engine's buffers.
    /// Default 0: most clients have a page cache of their own above.
    pub ram_front_bytes: u64,
    /// How much may be written to the cache device in a day. Beyond it reads are not cached.
    /// Default: no limit.
    pub flash_writes_per_day_bytes: Option<u64>,
    /// A block should not stay dirty longer than this; from half of it on destage hurries. Default
    /// 10 minutes.
    pub dirty_age_max_ns: u64,
    /// A write waits in RAM at most this long for its commit. Default 1 s.
    pub commit_age_max_ns: u64,
    /// Forget every clean block at the opening, because an origin was changed behind our back.
    pub drop_clean: bool,
    /// Wait for [`Control::GoOn`] when the log is replayed, before anything is written. Default no.
    pub hold_replayed: bool,
    /// Smallest unit that each origin can write; 512 for those not listed.
    pub origin_block_bytes: Vec<(OriginId, u32)>,
    /// Origins that take what was written between two of their flushes as a whole or not at all: a
    /// volume in an object store. Where destage is ordered, many eras go to them together.
    pub whole_flushes: Vec<OriginId>,
    /// In which order dirty data goes to its origin. Default: what an origin does fastest.
    pub destage: Destage,
    /// The bug that is planted.
    #[cfg(feature = "canary")]
    pub canary: Option<Canary>,
}

impl Options {
    /// The width of a read around a miss in blocks, within its bound.
    pub(crate) fn read_around_blocks(&self) -> u64 {
        self.read_around_blocks.min(READ_AROUND_BLOCKS_MAX)
    }

    /// Whether this bug is planted.
    #[cfg(feature = "canary")]
    pub(crate) fn planted(&self, canary: Canary) -> bool {
        self.canary == Some(canary)
    }

    /// Whether this bug is planted: never.
    #[cfg(not(feature = "canary"))]
    #[expect(clippy::unused_self, reason = "the same call with the feature")]
    pub(crate) const fn planted(&self, _: Canary) -> bool {
        false
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: &policy::ALL[0],
            durability: Durability::default(),
            dirty_limit_blocks: None,
            sequential_bypass_bytes: 4 << 20,
            read_around_blocks: 16,
            ram_front_bytes: 0,
            flash_writes_per_day_bytes: None,
            dirty_age_max_ns: 600_000_000_000,
            commit_age_max_ns: 1_000_000_000,
            drop_clean: false,
            hold_replayed: false,
            origin_block_bytes: Vec::new(),
            whole_flushes: Vec::new(),
            destage: Destage::default(),
            #[cfg(feature = "canary")]
            canary: None,
        }
    }
}
