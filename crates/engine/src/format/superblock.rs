// SPDX-License-Identifier: MIT OR Apache-2.0
//! Superblocks, decoded: what a cache is, and where on its device everything lies.
//!
//! A layout that makes no sense is refused here, so that no other code has to doubt it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::mem::offset_of;
use core::ops::Range;

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::block::{BLOCK_LEN, NUMBER_MAX, block_crc, put_text, text};
use super::volumes::{ORIGINS_MAX, OriginRecord, Table};
use super::{
    CHECKPOINT_AGES_MAX, CHECKPOINT_ENTRIES_MAX, CheckpointHeader, Grown, MAGIC, Mirror, NO_SLOT, OriginMedia, Pairing,
    SEGMENTS_MIN, STREAMS, SuperblockMedia, TableRefMedia, VERSION,
};
use crate::fact::types::{BLOCK_BYTES, Mode, OriginId};

/// Why a superblock was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuperblockError {
    /// The magic is not ours: the device holds something else, or nothing.
    Foreign,
    /// Written by a newer Flashfront.
    Newer {
        /// The version found.
        found: u32,
    },
    /// The checksum does not match.
    Damaged {
        /// The checksum stored.
        expected: u32,
        /// The checksum computed.
        found: u32,
    },
    /// The checksum matches, but a field makes no sense.
    Nonsense(&'static str),
    /// The table of volumes is not whole.
    Table {
        /// Its first byte on the cache device.
        offset: u64,
    },
}

impl fmt::Display for SuperblockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => write!(f, "no Flashfront superblock (wrong magic)"),
            Self::Newer { found } => {
                write!(f, "format version {found} is newer than this program's ({VERSION}): use a newer flashfront")
            }
            Self::Damaged { expected, found } => {
                write!(f, "damaged superblock (checksum {expected:#010x} expected, {found:#010x} found)")
            }
            Self::Nonsense(field) => write!(f, "superblock field `{field}` makes no sense"),
            Self::Table { offset } => write!(f, "the table of volumes at byte {offset} is damaged"),
        }
    }
}

impl core::error::Error for SuperblockError {}

/// A superblock, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Names this cache.
    pub uuid: [u8; 16],
    /// The number of this update. The copy with the higher number is the newer.
    pub update: u64,
    /// How often the cache was opened for writing; commits carry this number.
    pub epoch: u64,
    /// Whether the last daemon stopped cleanly, so that the stale guard's data is current.
    pub clean: bool,
    /// The last daemon stopped because the cache device failed. Its log may be older than the
    /// origin.
    pub failed: bool,
    /// Dirty blocks at the last stop. The number means nothing after a crash.
    pub dirty_blocks: u64,
    /// How the cache lies on its devices.
    pub pairing: Pairing,
    /// Size of the cache device.
    pub cache_bytes: u64,
    /// Independent logs.
    pub lanes: u32,
    /// Blocks of a segment.
    pub segment_blocks: u32,
    /// Segments of each lane.
    pub segments_per_lane: u32,
    /// Blocks of one checkpoint area (each lane has two).
    pub checkpoint_blocks: u32,
    /// Blocks of a stripe: origins are dealt to lanes in stripes.
    pub stripe_blocks: u32,
    /// Block where lane 0 starts.
    pub first_block: u32,
    /// How the cache has grown since it was made, if it has.
    pub grown: Option<Box<Grown>>,
    /// Where the table of volumes is; `None`: format version 1, whose superblock has them itself.
    pub table: Option<Table>,
    /// The origins, by ascending ids. With version 2 [`Superblock::read_table`] fills them in.
    pub origins: Vec<OriginRecord>,
}

fn encode_origin(from: &OriginRecord) -> OriginMedia {
    let mut to = OriginMedia::new_zeroed();
    to.id = (from.id.0 as u16).into();
    to.mode = from.mode as u8;
    to.size_bytes = from.size_bytes.into();
    to.fingerprint = from.fingerprint.into();
    to.changed_ns = from.changed_ns.into();
    put_text(&mut to.name, &from.name);
    put_text(&mut to.identity, &from.identity);
    to
}

/// The origins of a superblock of version 1.
fn decode_origins(media: &SuperblockMedia) -> Result<Vec<OriginRecord>, SuperblockError> {
    let count = media.origin_count.get() as usize;
    if count > ORIGINS_MAX {
        return Err(SuperblockError::Nonsense("origin_count"));
    }
    let mut origins = Vec::<OriginRecord>::new();
    for origin in media.volumes.chunks_exact(size_of::<OriginMedia>()).take(count) {
        let Ok(origin) = OriginMedia::ref_from_bytes(origin) else {
            return Err(SuperblockError::Nonsense("origins"));
        };
        let mode = Mode::ALL.get(usize::from(origin.mode)).ok_or(SuperblockError::Nonsense("origin.mode"))?;
        let id = OriginId(origin.id.get().into());
        if id.0 >= 1 << 12 || origins.last().is_some_and(|last| last.id >= id) {
            return Err(SuperblockError::Nonsense("origin.id"));
        }
        origins.push(OriginRecord {
            id,
            mode: *mode,
            size_bytes: origin.size_bytes.get(),
            name: text(&origin.name),
            identity: text(&origin.identity),
            fingerprint: origin.fingerprint.get(),
            changed_ns: origin.changed_ns.get(),
            ..OriginRecord::default()
        });
    }
    Ok(origins)
}

/// Where a superblock of version 2 says that its table is.
fn decode_place(media: &SuperblockMedia) -> Result<Table, SuperblockError> {
    let place = &media.volumes[..size_of::<TableRefMedia>()];
    let Ok(place) = TableRefMedia::ref_from_bytes(place) else { return Err(SuperblockError::Nonsense("table")) };
    Ok(Table {
        first_block: place.first_block.get(),
        blocks: place.blocks.get(),
        number: place.number.get(),
        next_id: 0,
    })
}

impl Superblock {
    /// Where the two copies are on a device of that size, in bytes.
    #[must_use]
    pub const fn offsets(cache_bytes: u64) -> [u64; 2] {
        [0, cache_bytes / BLOCK_BYTES * BLOCK_BYTES - BLOCK_BYTES]
    }

    /// Blocks of all segments: what the cache may hold, headers included.
    #[must_use]
    pub fn cache_blocks(&self) -> u64 {
        u64::from(self.lanes) * u64::from(self.segments_per_lane) * u64::from(self.segment_blocks)
    }

    /// The number in each commit that shows to which cache it belongs.
    #[must_use]
    pub fn cache_tag(&self) -> u64 {
        let (mut tag, mut shift) = (0, 0);
        for &byte in &self.uuid[..8] {
            tag |= u64::from(byte) << shift;
            shift += 8;
        }
        tag
    }

    /// The block of 4096 bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.encode_as(self.update, self.pairing)
    }

    /// The block of 4096 bytes, with another number of update, and another pairing.
    #[must_use]
    pub(crate) fn encode_as(&self, update: u64, pairing: Pairing) -> Vec<u8> {
        let mut media = SuperblockMedia::new_zeroed();
        media.magic = MAGIC;
        media.version = self.version().into();
        media.uuid = self.uuid;
        media.update = update.into();
        media.epoch = self.epoch.into();
        media.cache_bytes = self.cache_bytes.into();
        let (whole, alone) = (pairing.mirror == Mirror::Whole, pairing.mirror == Mirror::Alone);
        let flags = [self.clean, self.failed, whole, alone, pairing.member > 0, pairing.lead > 0, pairing.clean_lost];
        media.flags = flags.iter().rev().fold(0, |bits, flag| bits << 1 | u32::from(*flag)).into();
        media.paired = pairing.paired.into();
        media.dirty_blocks = self.dirty_blocks.into();
        media.lanes = self.lanes.into();
        media.segment_blocks = self.segment_blocks.into();
        media.segments_per_lane = self.segments_per_lane.into();
        media.checkpoint_blocks = self.checkpoint_blocks.into();
        media.stripe_blocks = self.stripe_blocks.into();
        media.first_block = self.first_block.into();
        if let Some(grown) = &self.grown {
            media.grown = grown.encode();
        }
        if let Some(table) = &self.table {
            let mut place = TableRefMedia::new_zeroed();
            place.number = table.number.into();
            place.first_block = table.first_block.into();
            place.blocks = table.blocks.into();
            media.volumes[..size_of::<TableRefMedia>()].copy_from_slice(place.as_bytes());
        } else {
            media.origin_count = (self.origins.len() as u32).into();
            for (to, from) in media.volumes.chunks_exact_mut(size_of::<OriginMedia>()).zip(&self.origins) {
                to.copy_from_slice(encode_origin(from).as_bytes());
            }
        }
        media.crc = block_crc(media.as_bytes(), offset_of!(SuperblockMedia, crc)).into();
        media.as_bytes().to_vec()
    }

    /// Reads a block of 4096 bytes.
    ///
    /// # Errors
    /// When it is not a superblock that this code can use.
    pub fn decode(block: &[u8]) -> Result<Self, SuperblockError> {
        let Ok(media) = SuperblockMedia::ref_from_bytes(block) else {
            return Err(SuperblockError::Foreign);
        };
        if media.magic != MAGIC {
            return Err(SuperblockError::Foreign);
        }
        let found = block_crc(block, offset_of!(SuperblockMedia, crc));
        if found != media.crc.get() {
            return Err(SuperblockError::Damaged { expected: media.crc.get(), found });
        }
        if media.version.get() > VERSION {
            return Err(SuperblockError::Newer { found: media.version.get() });
        }
        if media.version.get() == 0 {
            return Err(SuperblockError::Nonsense("version"));
        }
        let flag = |bit: u32| media.flags.get() >> bit & 1 != 0;
        let mirror = match (flag(2), flag(3)) {
            (false, false) => Mirror::None,
            (true, false) => Mirror::Whole,
            (false, true) => Mirror::Alone,
            (true, true) => return Err(SuperblockError::Nonsense("flags")),
        };
        let (table, origins) = if media.version.get() == 1 {
            (None, decode_origins(media)?)
        } else {
            (Some(decode_place(media)?), Vec::new())
        };
        let it = Self {
            uuid: media.uuid,
            update: media.update.get(),
            epoch: media.epoch.get(),
            clean: flag(0),
            failed: flag(1),
            dirty_blocks: media.dirty_blocks.get(),
            pairing: Pairing {
                member: u8::from(flag(4)),
                lead: u8::from(flag(5)),
                mirror,
                paired: media.paired.get(),
                clean_lost: flag(6),
            },
            cache_bytes: media.cache_bytes.get(),
            lanes: media.lanes.get(),
            segment_blocks: media.segment_blocks.get(),
            segments_per_lane: media.segments_per_lane.get(),
            checkpoint_blocks: media.checkpoint_blocks.get(),
            stripe_blocks: media.stripe_blocks.get(),
            first_block: media.first_block.get(),
            grown: (media.version.get() > 2).then(|| Grown::decode(&media.grown)),
            table,
            origins,
        };
        it.layout_is_sound().map(|()| it)
    }

    /// The size of the cache as a damaged superblock says it. This tells where to look for its
    /// copy, and no more.
    #[must_use]
    pub fn size_said(block: &[u8]) -> Option<u64> {
        let media = SuperblockMedia::ref_from_bytes(block).ok()?;
        (media.magic == MAGIC).then(|| media.cache_bytes.get())
    }

    pub(super) fn layout_is_sound(&self) -> Result<(), SuperblockError> {
        let nonsense = |field| Err(SuperblockError::Nonsense(field));
        if self.update >= NUMBER_MAX {
            return nonsense("update");
        }
        if self.epoch >= NUMBER_MAX {
            return nonsense("epoch");
        }
        if self.lanes == 0 || self.lanes > 256 {
            return nonsense("lanes");
        }
        if !(8..=4096).contains(&self.segment_blocks) {
            return nonsense("segment_blocks");
        }
        if !self.stripe_blocks.is_power_of_two() {
            return nonsense("stripe_blocks");
        }
        // With the limits above none of these numbers goes beyond 2^53. So they may be multiplied
        // now.
        let slots = u64::from(self.segments_per_lane) * u64::from(self.segment_blocks);
        let end = u64::from(self.first_block) + u64::from(self.lanes) * self.made_lane_blocks() + 1;
        let last = (self.cache_bytes / BLOCK_BYTES).saturating_sub(1);
        if self.grown.as_ref().is_some_and(|grown| !self.has_sound_parts(grown, end, last)) {
            return nonsense("grown");
        }
        if self.segments_per_lane < SEGMENTS_MIN
            || self.first_block == 0
            || slots >= u64::from(NO_SLOT)
            || end > self.cache_bytes / BLOCK_BYTES
        {
            return nonsense("segments_per_lane");
        }
        if u64::from(self.checkpoint_blocks) < checkpoint_blocks(self.segments_per_lane, self.segment_blocks) {
            return nonsense("checkpoint_blocks");
        }
        // Reports multiply this number by the size of a block.
        if self.dirty_blocks > u64::from(self.lanes) * slots {
            return nonsense("dirty_blocks");
        }
        if self.table.is_some_and(|table| !self.has_place_for(&table)) {
            return nonsense("table");
        }
        Ok(())
    }

    /// Whether the areas of a table lie between the superblocks and the lanes.
    fn has_place_for(&self, table: &Table) -> bool {
        let free = self.free_blocks();
        let (first, end) = (u64::from(table.first_block), u64::from(table.first_block) + 2 * u64::from(table.blocks));
        table.blocks > 0 && table.number < NUMBER_MAX && free.iter().any(|free| free.start <= first && end <= free.end)
    }

    /// The blocks that neither superblocks nor lanes use: before the lanes, and behind them.
    #[must_use]
    pub fn free_blocks(&self) -> [Range<u64>; 2] {
        let first = u64::from(self.first_block);
        let end = first + u64::from(self.lanes) * self.made_lane_blocks();
        // The last copy of the superblock was just before what was gained first.
        let last = self.grown.as_ref().map_or(self.cache_bytes / BLOCK_BYTES, |grown| grown.first_block());
        [1..first, end..last - 1]
    }

    /// Blocks of a checkpoint area when the cache was made.
    fn made_checkpoint_blocks(&self) -> u64 {
        self.grown.as_ref().map_or(self.checkpoint_blocks, |grown| grown.made_checkpoint_blocks).into()
    }

    /// Blocks of a lane when the cache was made: its checkpoint areas and its segments.
    fn made_lane_blocks(&self) -> u64 {
        let segments = self.grown.as_ref().map_or(self.segments_per_lane, |grown| grown.made_segments);
        2 * self.made_checkpoint_blocks() + u64::from(segments) * u64::from(self.segment_blocks)
    }

    /// The first block of a lane as the cache was made.
    fn made_first_block(&self, lane: u32) -> u64 {
        u64::from(self.first_block) + u64::from(lane) * self.made_lane_blocks()
    }

    /// Slots of each lane.
    #[must_use]
    pub const fn slots(&self) -> u32 {
        self.segments_per_lane * self.segment_blocks
    }

    /// Whether a stream's next commit can start there: in a slot, or nowhere.
    pub(super) const fn has_head(&self, slot: u32) -> bool {
        slot < self.slots() || slot == NO_SLOT
    }

    /// Whether a stream can go on in this segment: one of a lane's, or none.
    pub(super) const fn has_next(&self, segment: u32) -> bool {
        segment < self.segments_per_lane || segment == NO_SLOT
    }

    /// First byte of a checkpoint area (0 or 1) of a lane.
    #[must_use]
    pub fn checkpoint_offset(&self, lane: u32, area: u32) -> u64 {
        let first = match &self.grown {
            None => self.made_first_block(lane),
            Some(grown) => grown.checkpoints + 2 * u64::from(lane) * u64::from(self.checkpoint_blocks),
        };
        (first + u64::from(area) * u64::from(self.checkpoint_blocks)) * BLOCK_BYTES
    }

    /// The blocks that formatting writes besides the superblocks, as (first byte, block of 4096
    /// bytes). Each lane gets an empty checkpoint in one area, and nothing in the other.
    #[must_use]
    pub fn empty_checkpoints(&self) -> Vec<(u64, Vec<u8>)> {
        let mut blocks = Vec::new();
        for lane in 0..self.lanes {
            let header = CheckpointHeader {
                cache_tag: self.cache_tag(),
                epoch: self.epoch,
                generation: 0,
                seq: 0,
                entries: 0,
                heads: [NO_SLOT; STREAMS],
                next_segments: [NO_SLOT; STREAMS],
                lane: lane as u16,
                checksum_bits: 32,
                eras_blocks: 0,
            };
            let mut block = alloc::vec![0; BLOCK_LEN];
            header.encode_into(&mut block);
            blocks.push((self.checkpoint_offset(lane, 0), block));
            blocks.push((self.checkpoint_offset(lane, 1), alloc::vec![0; BLOCK_LEN]));
        }
        blocks
    }

    /// First byte of a slot of a lane.
    #[must_use]
    pub fn slot_offset(&self, lane: u32, slot: u32) -> u64 {
        let gained = self.grown.as_ref().and_then(|grown| grown.block_of(lane, slot, self.segment_blocks));
        let made = || self.made_first_block(lane) + 2 * self.made_checkpoint_blocks() + u64::from(slot);
        gained.unwrap_or_else(made) * BLOCK_BYTES
    }
}

/// Blocks of a checkpoint area that holds any state of `segments` segments.
#[must_use]
pub fn checkpoint_blocks(segments: u32, segment_blocks: u32) -> u64 {
    let slots = u64::from(segments) * u64::from(segment_blocks);
    1 + u64::from(segments).div_ceil(CHECKPOINT_AGES_MAX as u64) + slots.div_ceil(CHECKPOINT_ENTRIES_MAX as u64)
}
