// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes that come and go: what is under way.

use alloc::vec::Vec;

use crate::fact::volume::NewVolume;

/// Changes of volumes that take some time.
#[derive(Default)]
pub(crate) struct Volumes {
    /// To be added as soon as the index has room for their places.
    pub(super) coming: Vec<(u64, NewVolume)>,
    pub(super) leaving: Vec<Leaving>,
}

/// A volume that is being removed.
pub(super) struct Leaving {
    pub(super) ticket: u64,
    pub(super) origin: usize,
    /// The table without it is durable, and its blocks have left the index.
    pub(super) is_dropped: bool,
}

impl Volumes {
    /// Whether nothing is under way.
    pub(crate) const fn idle(&self) -> bool {
        self.coming.is_empty() && self.leaving.is_empty()
    }
}
