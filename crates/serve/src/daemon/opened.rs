// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a start has opened, before anything is written.

use std::sync::Arc;

use flashfront_device::real::DeviceFile;
use flashfront_engine::format::Superblock;

use super::members::Members;
use crate::stale::Change;

/// What is open before anything is written.
pub(super) struct Opened {
    /// The cache devices in use; none: the origins are served without it.
    pub(super) members: Members,
    pub(super) origins: Vec<Arc<DeviceFile>>,
    pub(super) superblock: Superblock,
    /// An origin was changed behind our back.
    pub(super) drop_clean: bool,
    /// What is remembered of that, and not settled for this cache.
    pub(super) changes: Vec<Change>,
}
