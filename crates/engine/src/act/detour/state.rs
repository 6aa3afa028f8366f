// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reads of one lane that an origin answers instead of the cache device.

use slab::Slab;
use smallvec::SmallVec;

use crate::fact::memory::Buf;
use crate::fact::types::Time;
use crate::organ::congestion::Taken;
use crate::organ::index::Flat;

/// Reads of a lane that take the detour at a time, with a buffer of one block: enough to keep an
/// SSD busy.
pub(crate) const SINGLE_MAX: u32 = 64;
/// Reads with a buffer of [`WIDE_BLOCKS`]. More of both are read from the cache device.
pub(crate) const WIDE_MAX: u32 = 4;
/// The most blocks of one read.
pub(crate) const WIDE_BLOCKS: u32 = 16;

/// The reads of one lane.
#[derive(Default)]
pub(crate) struct Detours {
    pub(super) all: Slab<Detour>,
    pub(super) single: u32,
    pub(super) wide: u32,
}

/// Blocks that an origin was asked for.
pub(super) struct Detour {
    /// The piece that waits for the answer, and the first block of that piece. None: the cache
    /// device was asked instead.
    pub(super) waits: Option<(usize, u32)>,
    pub(super) first: Flat,
    /// Slot and checksum of each block.
    pub(super) cached: SmallVec<[(u32, u32); 1]>,
    pub(super) buf: Buf,
    pub(super) taken: Taken,
}

impl Detour {
    pub(super) fn blocks(&self) -> u32 {
        self.cached.len() as u32
    }
}

/// A buffer has one block, or as many as a read has at most.
pub(super) const fn buffer_blocks(blocks: u32) -> u32 {
    if blocks == 1 { 1 } else { WIDE_BLOCKS }
}

impl Detours {
    /// Whether one more may begin, and the most blocks that it may have.
    pub(super) const fn has_room(&self) -> bool {
        self.single < SINGLE_MAX
    }

    pub(super) const fn room_blocks(&self) -> u32 {
        if self.wide < WIDE_MAX { WIDE_BLOCKS } else { 1 }
    }

    pub(super) fn count(&mut self, blocks: u32) -> &mut u32 {
        if blocks == 1 { &mut self.single } else { &mut self.wide }
    }

    /// When the cache device is to be asked for the first of those that wait.
    pub(crate) fn timer(&self) -> Option<Time> {
        self.all.iter().filter(|(_, it)| it.waits.is_some()).map(|(_, it)| it.taken.due()).min()
    }
}
