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
    pub(super) growing: Vec<Growing>,
}

impl Volumes {
    /// Whether any volume grows.
    pub(super) const fn grows(&self) -> bool {
        !self.growing.is_empty()
    }

    /// Whether this volume grows.
    pub(super) fn is_growing(&self, origin: usize) -> bool {
        self.growing.iter().any(|growing| growing.origin == origin)
    }

    /// Takes out the volumes whose tables are not being written yet.
    pub(super) fn take_waiting(&mut self) -> Vec<Growing> {
        let (told, waiting) = core::mem::take(&mut self.growing).into_iter().partition(|growing| growing.is_told);
        self.growing = told;
        waiting
    }

    /// Takes out the volume whose growth was asked for by this number.
    pub(super) fn take_grown(&mut self, ticket: u64) -> Option<Growing> {
        let at = self.growing.iter().position(|growing| growing.ticket == ticket)?;
        Some(self.growing.remove(at))
    }
}

/// A volume that is to become larger.
pub(super) struct Growing {
    pub(super) ticket: u64,
    pub(super) origin: usize,
    pub(super) size_bytes: u64,
    /// The table with the new size is being written.
    pub(super) is_told: bool,
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
        self.coming.is_empty() && self.leaving.is_empty() && self.growing.is_empty()
    }
}
