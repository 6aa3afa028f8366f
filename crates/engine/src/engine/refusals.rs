// SPDX-License-Identifier: MIT OR Apache-2.0
//! What speaks against a wish, for callers that ask before they do something about it.

use core::ops::RangeInclusive;

use super::Engine;
use super::limits::dirty_limits;
use crate::act::volumes::check::{check_shares, check_whole};
use crate::fact::types::OriginId;
use crate::fact::volume::{NewVolume, VolumeError};
use crate::format::{Shares, Superblock};

impl Engine {
    /// The dirty limits, in blocks, that this cache can hold. A limit beyond them is taken as the
    /// nearest of them, so a caller who wants to refuse such a limit must ask here.
    #[must_use]
    pub fn dirty_limits(superblock: &Superblock) -> RangeInclusive<u64> {
        dirty_limits(superblock.cache_blocks())
    }

    /// Says what speaks against shares and limits of a volume's own, in the cache of that
    /// superblock. `own`: the volume, if the cache has it.
    ///
    /// # Errors
    /// [`VolumeError`]
    pub fn check_shares(shares: Shares, own: Option<OriginId>, superblock: &Superblock) -> Result<(), VolumeError> {
        check_shares(shares, own, superblock)
    }

    /// Says what speaks against a new volume at this moment. So a caller can ask before it does
    /// something that can't be undone, as taking over an origin.
    ///
    /// # Errors
    /// [`VolumeError`]
    pub fn check_new_volume(&self, volume: &NewVolume) -> Result<(), VolumeError> {
        check_whole(&self.coordinator, volume, &self.facts, &self.lanes)
    }
}
