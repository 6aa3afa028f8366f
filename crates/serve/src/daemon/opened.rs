// SPDX-License-Identifier: MIT OR Apache-2.0
//! The devices that a start has opened, before anything is written.

use std::sync::Arc;

use flashfront_device::real::DeviceFile;
use flashfront_engine::format::Superblock;

use super::members::Members;
use crate::config::Volume;
use crate::stale::Change;

/// The open devices of a start, and what it knows of them.
pub(super) struct Opened {
    /// The cache devices in use; none: the origins are served without it.
    pub(super) members: Members,
    pub(super) origins: Vec<Arc<DeviceFile>>,
    /// The volumes of the origins, as they are served.
    pub(super) volumes: Vec<Volume>,
    pub(super) superblock: Superblock,
    /// An origin was changed behind our back.
    pub(super) drop_clean: bool,
    /// Remembered changes of the origins that are not settled for this cache.
    pub(super) changes: Vec<Change>,
}
