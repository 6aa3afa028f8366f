// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of dm-cache say where its blocks lie on the cache device, and how it copies.

use crate::rival::spec::Geometry;

/// The time that a commit takes longer than its I/O on the model of the SSD. Fitted to task 2. In
/// its log each promotion keeps the metadata's device busy for 5.68 ms, two flushes of an 850 PRO
/// for the most part.
pub(super) const COMMIT_NS: u64 = 2_100_000;

/// The settings of dm-cache.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    pub(super) block_bytes: u64,
    /// The metadata lies at the beginning of the cache device, and is as long.
    pub(super) metadata_bytes: u64,
    /// While as much is being copied, each target leaves some copies for later.
    pub(super) migration_threshold_bytes: u64,
}

impl Setup {
    /// Places for blocks on the cache device.
    pub(super) const fn places(&self, geometry: &Geometry) -> u64 {
        geometry.cache_bytes.saturating_sub(self.metadata_bytes) / self.block_bytes
    }

    /// Where a place begins on the cache device.
    pub(super) fn place_at(&self, place: u32) -> u64 {
        self.metadata_bytes + u64::from(place) * self.block_bytes
    }
}

/// The settings of the comparison of 2015.
pub(super) const SETUP_2015: Setup =
    Setup { block_bytes: 256 << 10, metadata_bytes: 38_720 * 512, migration_threshold_bytes: 33_554_432 * 512 };
/// The settings of lvmcache.
pub(super) const SETUP_SMQ: Setup =
    Setup { block_bytes: 64 << 10, metadata_bytes: 8 << 20, migration_threshold_bytes: 2048 * 512 };
