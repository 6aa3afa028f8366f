// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a cache has grown since it was made: where the new parts of its log are, and its checkpoint
//! areas.
//!
//! A cache device that grows gets more room at its end. Each lane gets segments there, behind the
//! ones that it has, by their numbers. So all slots stay where they are. Checkpoint areas must be
//! larger then. New ones begin the new room, and the old ones are used no more. A cache that has
//! grown has format version 3.

use alloc::boxed::Box;
use alloc::vec::Vec;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The most times that a cache can grow.
pub const PARTS_MAX: usize = 15;

/// How a cache has grown, as recorded in the superblock of version 3.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct GrownMedia {
    made_segments: U32,
    made_checkpoint_blocks: U32,
    checkpoints: U64,
    parts: [PartMedia; PARTS_MAX],
}

/// A part of the log, as recorded there.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct PartMedia {
    first_block: U64,
    segments: U32,
    reserved: U32,
}

/// A part of the log that was gained at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPart {
    /// The first block of lane 0's segments here. Those of the next lane follow.
    pub first_block: u64,
    /// Segments of each lane.
    pub segments: u32,
}

/// How a cache has grown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grown {
    /// Segments of each lane when the cache was made.
    pub made_segments: u32,
    /// Blocks of a checkpoint area then.
    pub made_checkpoint_blocks: u32,
    /// The first block of the checkpoint areas of all lanes, since the cache grew last.
    pub checkpoints: u64,
    /// The parts of the log, oldest first: at least one.
    pub parts: Vec<LogPart>,
}

/// Why a cache can't grow to a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrowError {
    /// The new room has no place for a segment of each lane.
    TooLittle,
    /// The cache has grown as often as its superblock can tell.
    TooOften,
    /// The lanes have as many slots as there are numbers for.
    TooLarge,
}

impl Grown {
    pub(super) fn encode(&self) -> GrownMedia {
        let part = |nth: usize| {
            let part = self.parts.get(nth).copied().unwrap_or(LogPart { first_block: 0, segments: 0 });
            PartMedia { first_block: part.first_block.into(), segments: part.segments.into(), reserved: 0.into() }
        };
        GrownMedia {
            made_segments: self.made_segments.into(),
            made_checkpoint_blocks: self.made_checkpoint_blocks.into(),
            checkpoints: self.checkpoints.into(),
            parts: core::array::from_fn(part),
        }
    }

    pub(super) fn decode(media: &GrownMedia) -> Box<Self> {
        let parts = media.parts.iter().take_while(|part| part.segments.get() > 0);
        let part = |it: &PartMedia| LogPart { first_block: it.first_block.get(), segments: it.segments.get() };
        Box::new(Self {
            made_segments: media.made_segments.get(),
            made_checkpoint_blocks: media.made_checkpoint_blocks.get(),
            checkpoints: media.checkpoints.get(),
            parts: parts.map(part).collect(),
        })
    }

    /// The first block of what was gained first.
    pub(super) fn first_block(&self) -> u64 {
        self.parts.first().map_or(self.checkpoints, |part| part.first_block.min(self.checkpoints))
    }

    /// The block of a slot of a lane, if the slot is in a part that was gained.
    pub(super) fn block_of(&self, lane: u32, slot: u32, segment_blocks: u32) -> Option<u64> {
        let mut slot = u64::from(slot).checked_sub(u64::from(self.made_segments) * u64::from(segment_blocks))?;
        for part in &self.parts {
            let slots = u64::from(part.segments) * u64::from(segment_blocks);
            if slot < slots {
                return Some(part.first_block + u64::from(lane) * slots + slot);
            }
            slot -= slots;
        }
        None
    }
}
