// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes that come and go: what is under way.

use alloc::vec::Vec;

use crate::fact::volume::NewVolume;
use crate::organ::up::Room;

/// Changes of volumes that take some time.
#[derive(Default)]
pub(crate) struct Volumes {
    /// To be added as soon as the index has room for their places.
    pub(super) coming: Vec<(u64, NewVolume)>,
    pub(super) leaving: Vec<Leaving>,
    pub(super) growing: Vec<Growing>,
    /// Lanes have room in their index for so many keys, and make room for more.
    pub(super) wide: u64,
    pub(super) widening: Option<Widening>,
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
    /// The table without it is durable, and so many lanes still have its blocks in their index.
    pub(super) lanes_left: Option<usize>,
}

/// Lanes make room in their index.
pub(super) struct Widening {
    /// The number of keys that there is to be room for.
    pub(super) keys: u64,
    /// The number of lanes that have not told the end of that.
    pub(super) lanes_left: usize,
    /// An index can't be that wide.
    pub(super) never: bool,
}

impl Volumes {
    /// All lanes are to forget the blocks of a volume.
    pub(super) fn forget_begins(&mut self, origin: usize, lanes: usize) {
        if let Some(leaving) = self.leaving.iter_mut().find(|leaving| leaving.origin == origin) {
            leaving.lanes_left = Some(lanes);
        }
    }

    /// A lane has forgotten the blocks of a volume.
    pub(crate) fn forgotten(&mut self, origin: usize) {
        if let Some(leaving) = self.leaving.iter_mut().find(|leaving| leaving.origin == origin) {
            leaving.lanes_left = leaving.lanes_left.map(|left| left.saturating_sub(1));
        }
    }

    /// A lane tells of its room for so many keys.
    pub(crate) fn widened(&mut self, keys: u64, room: Room) {
        let Some(it) = self.widening.as_mut().filter(|it| it.keys == keys) else { return };
        it.lanes_left = it.lanes_left.saturating_sub(usize::from(room != Room::Later));
        it.never |= room == Room::Never;
    }

    /// Whether nothing is under way.
    pub(crate) const fn idle(&self) -> bool {
        self.coming.is_empty() && self.leaving.is_empty() && self.growing.is_empty()
    }
}
