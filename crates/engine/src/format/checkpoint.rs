// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checkpoints, decoded: the head, the index entries and the ages of segments.

use alloc::vec::Vec;
use core::mem::offset_of;

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{
    CHECKPOINT_AGES_MAX, CHECKPOINT_ENTRIES_MAX, CHECKPOINT_ERAS_MAX, CHECKPOINT_MAGIC, CHECKSUM_BITS_MIN,
    CheckpointAgesMedia, CheckpointEntriesMedia, CheckpointEntryMedia, CheckpointEraMedia, CheckpointErasMedia,
    CheckpointMedia, NO_SLOT, NUMBER_MAX, STREAMS, Superblock, block_crc, pack_key, split_key,
};
use crate::fact::types::{Block, Key, OriginId};

/// The head of a checkpoint, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointHeader {
    /// The cache it belongs to.
    pub cache_tag: u64,
    /// The opening it was written in.
    pub epoch: u64,
    /// The higher of two is the newer.
    pub generation: u64,
    /// Replay starts with this commit; 0 in a cache that was never opened: no body, no log.
    pub seq: u64,
    /// Index entries that follow.
    pub entries: u64,
    /// Where the streams' next commits start.
    pub heads: [u32; STREAMS],
    /// The segments that they will most likely fill behind those: see [`super::CommitHeader`].
    pub next_segments: [u32; STREAMS],
    /// Its lane.
    pub lane: u16,
    /// Bits of each checksum that the entries hold.
    pub checksum_bits: u8,
    /// Where destage was ordered: how many blocks at the end of the area tell which versions eras
    /// need. 0: destage was not ordered.
    pub eras_blocks: u32,
}

impl CheckpointHeader {
    /// Writes the block of 4096 bytes.
    pub fn encode_into(&self, block: &mut [u8]) {
        let mut media = CheckpointMedia::new_zeroed();
        media.magic = CHECKPOINT_MAGIC;
        media.cache_tag = self.cache_tag.into();
        media.epoch = self.epoch.into();
        media.generation = self.generation.into();
        media.seq = self.seq.into();
        media.entries = self.entries.into();
        media.heads = self.heads.map(U32::new);
        media.next_segments = self.next_segments.map(U32::new);
        media.lane = self.lane.into();
        media.checksum_bits = self.checksum_bits;
        media.eras_blocks = self.eras_blocks.into();
        media.crc = block_crc(media.as_bytes(), offset_of!(CheckpointMedia, crc)).into();
        block.copy_from_slice(media.as_bytes());
    }

    /// Reads a block of 4096 bytes; `None` if it is not a whole, sound header.
    #[must_use]
    pub fn decode(block: &[u8]) -> Option<Self> {
        let media = CheckpointMedia::ref_from_bytes(block).ok()?;
        let sound =
            media.magic == CHECKPOINT_MAGIC && block_crc(block, offset_of!(CheckpointMedia, crc)) == media.crc.get();
        let numbers = [media.epoch.get(), media.generation.get(), media.seq.get()];
        let sound = sound && numbers.iter().all(|number| *number < NUMBER_MAX);
        sound.then(|| Self {
            cache_tag: media.cache_tag.get(),
            epoch: media.epoch.get(),
            generation: media.generation.get(),
            seq: media.seq.get(),
            entries: media.entries.get(),
            heads: media.heads.map(U32::get),
            next_segments: media.next_segments.map(U32::get),
            lane: media.lane.get(),
            checksum_bits: media.checksum_bits,
            eras_blocks: media.eras_blocks.get(),
        })
    }

    /// Whether the header belongs into this area (0 or 1), and all places that it names are in a
    /// cache of this layout. A header that does not fit is as bad as one that is damaged.
    #[must_use]
    pub fn fits(&self, superblock: &Superblock, area: u32) -> bool {
        self.generation % 2 == u64::from(area)
            && self.entries <= u64::from(superblock.slots())
            && (CHECKSUM_BITS_MIN..=32).contains(&self.checksum_bits)
            && self.eras_blocks < superblock.checkpoint_blocks
            && self.heads.iter().all(|slot| superblock.has_head(*slot))
            && self.next_segments.iter().all(|segment| superblock.has_next(*segment))
    }
}

/// An index entry of a checkpoint, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointEntry {
    /// Which block.
    pub key: Key,
    /// Whether the origin lacks it.
    pub dirty: bool,
    /// How often it was seen again, 0 to 3.
    pub hits: u8,
    /// Where it is.
    pub slot: u32,
    /// The low bits of its [`seal_checksum`], as many as the index keeps.
    pub checksum: u32,
}

/// Writes a block of at most [`CHECKPOINT_ENTRIES_MAX`] index entries.
pub fn encode_checkpoint_entries(generation: u64, entries: &[CheckpointEntry], block: &mut [u8]) {
    let mut media = CheckpointEntriesMedia::new_zeroed();
    media.count = (entries.len() as u32).into();
    media.generation = generation.into();
    for (to, from) in media.entries.iter_mut().zip(entries) {
        let key = pack_key(from.key);
        to.what = (u64::from(from.dirty) << 62 | u64::from(from.hits & 3) << 60 | key).into();
        to.slot = from.slot.into();
        to.checksum = from.checksum.into();
    }
    media.crc = block_crc(media.as_bytes(), offset_of!(CheckpointEntriesMedia, crc)).into();
    block.copy_from_slice(media.as_bytes());
}

/// Reads a block of index entries; `None` if damaged or of another generation.
#[must_use]
pub fn decode_checkpoint_entries(generation: u64, block: &[u8]) -> Option<Vec<CheckpointEntry>> {
    let media = CheckpointEntriesMedia::ref_from_bytes(block).ok()?;
    let count = media.count.get() as usize;
    let sound = count <= CHECKPOINT_ENTRIES_MAX
        && media.generation.get() == generation
        && block_crc(block, offset_of!(CheckpointEntriesMedia, crc)) == media.crc.get();
    sound.then(|| {
        let decode = |entry: &CheckpointEntryMedia| CheckpointEntry {
            key: split_key(entry.what.get()),
            dirty: entry.what.get() >> 62 & 1 != 0,
            hits: (entry.what.get() >> 60 & 3) as u8,
            slot: entry.slot.get(),
            checksum: entry.checksum.get(),
        };
        media.entries[..count].iter().map(decode).collect()
    })
}

/// Writes a block of at most [`CHECKPOINT_AGES_MAX`] segment ages.
pub fn encode_checkpoint_ages(generation: u64, ages: &[u64], block: &mut [u8]) {
    let mut media = CheckpointAgesMedia::new_zeroed();
    media.count = (ages.len() as u32).into();
    media.generation = generation.into();
    for (to, from) in media.ages.iter_mut().zip(ages) {
        *to = (*from).into();
    }
    media.crc = block_crc(media.as_bytes(), offset_of!(CheckpointAgesMedia, crc)).into();
    block.copy_from_slice(media.as_bytes());
}

/// Reads a block of segment ages; `None` if damaged or of another generation.
#[must_use]
pub fn decode_checkpoint_ages(generation: u64, block: &[u8]) -> Option<Vec<u64>> {
    let media = CheckpointAgesMedia::ref_from_bytes(block).ok()?;
    let count = media.count.get() as usize;
    let sound = count <= CHECKPOINT_AGES_MAX
        && media.generation.get() == generation
        && block_crc(block, offset_of!(CheckpointAgesMedia, crc)) == media.crc.get();
    sound.then(|| media.ages[..count].iter().map(|age| age.get()).collect())
}

/// What an era needs, as a checkpoint tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EraEntry {
    /// This version of a block.
    Version {
        /// Which block.
        key: Key,
        /// Where the version is.
        slot: u32,
        /// The low bits of its [`seal_checksum`], as many as the index keeps.
        checksum: u32,
        /// The era's number.
        era: u64,
    },
    /// The origin has all that was written in eras before this one.
    Sent {
        /// Which origin.
        origin: OriginId,
        /// The first era that the origin may lack.
        era: u64,
    },
    /// A group of eras, up to this one, may be on the origin: all of it or nothing.
    Group {
        /// Which origin.
        origin: OriginId,
        /// The group's last era.
        last: u64,
    },
}

/// The checksums of entries that are no version say what they are.
const SENT: u32 = 0;
const GROUP: u32 = 1;

/// Writes a block of at most [`CHECKPOINT_ERAS_MAX`] versions that eras need.
pub fn encode_checkpoint_eras(generation: u64, entries: &[EraEntry], block: &mut [u8]) {
    let mut media = CheckpointErasMedia::new_zeroed();
    media.count = (entries.len() as u32).into();
    media.generation = generation.into();
    for (to, from) in media.entries.iter_mut().zip(entries) {
        let (key, slot, checksum, era) = match *from {
            EraEntry::Version { key, slot, checksum, era } => (key, slot, checksum, era),
            EraEntry::Sent { origin, era } => (Key { origin, block: Block(0) }, NO_SLOT, SENT, era),
            EraEntry::Group { origin, last } => (Key { origin, block: Block(0) }, NO_SLOT, GROUP, last),
        };
        to.what = pack_key(key).into();
        (to.slot, to.checksum, to.era) = (slot.into(), checksum.into(), era.into());
    }
    media.crc = block_crc(media.as_bytes(), offset_of!(CheckpointErasMedia, crc)).into();
    block.copy_from_slice(media.as_bytes());
}

/// Reads a block of versions that eras need; `None` if damaged or of another generation.
#[must_use]
pub fn decode_checkpoint_eras(generation: u64, block: &[u8]) -> Option<Vec<EraEntry>> {
    let media = CheckpointErasMedia::ref_from_bytes(block).ok()?;
    let count = media.count.get() as usize;
    let sound = count <= CHECKPOINT_ERAS_MAX
        && media.generation.get() == generation
        && media.entries[..count.min(CHECKPOINT_ERAS_MAX)].iter().all(|entry| entry.era.get() < NUMBER_MAX)
        && block_crc(block, offset_of!(CheckpointErasMedia, crc)) == media.crc.get();
    sound.then(|| {
        let decode = |entry: &CheckpointEraMedia| {
            let (key, era) = (split_key(entry.what.get()), entry.era.get());
            match entry.slot.get() {
                NO_SLOT if entry.checksum.get() == GROUP => EraEntry::Group { origin: key.origin, last: era },
                NO_SLOT => EraEntry::Sent { origin: key.origin, era },
                slot => EraEntry::Version { key, slot, checksum: entry.checksum.get(), era },
            }
        };
        media.entries[..count].iter().map(decode).collect()
    })
}
