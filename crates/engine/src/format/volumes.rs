// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of volumes of format version 2: what is known of each origin, in two areas of its own.
//!
//! The two areas are used in turn: the table of number `n` lies in area `n mod 2`. A table is
//! written and flushed first, then the superblocks that name it. So the superblock that counts has
//! its whole table, whatever power cut comes between. A change of the table is made when the
//! superblock is.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::mem::offset_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::block::{BLOCK_LEN, NUMBER_MAX, block_crc, put_text, text};
use crate::fact::types::{BLOCK_BYTES, Mode, OriginId};

/// The most origins of one cache of version 1, whose superblock has them.
pub const ORIGINS_MAX: usize = 16;
/// The most volumes of one cache.
pub const VOLUMES_MAX: usize = 4096;
/// The longest name of a volume, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// The longest name with format version 1.
pub const NAME_BYTES_MAX_V1: usize = 32;
/// The longest path of an origin that is kept, in bytes.
pub const PATH_BYTES_MAX: usize = 256;
/// Ids of volumes are below this: they have 24 bits.
pub const IDS_END: u32 = 1 << 24;

/// Records of one block of the table.
const RECORDS_MAX: usize = 7;
const MAGIC: [u8; 4] = *b"FFvt";

/// A block of the table of volumes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct TableMedia {
    magic: [u8; 4],
    crc: U32,
    cache_tag: U64,
    number: U64,
    /// Which block of the table this is.
    nth: U32,
    /// The volumes of the whole table.
    count: U32,
    next_id: U32,
    reserved: U32,
    records: [RecordMedia; RECORDS_MAX],
    reserved2: [u8; BLOCK_LEN - 40 - RECORDS_MAX * size_of::<RecordMedia>()],
}

/// A volume of the table.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RecordMedia {
    id: U32,
    mode: u8,
    /// Bit 0: clients may not write. Bit 1: `bypass_bytes` is said. Bit 2: `read_around_bytes` is.
    flags: u8,
    weight: U16,
    size_bytes: U64,
    fingerprint: U64,
    changed_ns: U64,
    dirty_blocks: U64,
    share_min_bytes: U64,
    share_max_bytes: U64,
    dirty_limit_bytes: U64,
    dirty_age_ms: U32,
    read_around_bytes: U32,
    name: [u8; NAME_BYTES_MAX],
    identity: [u8; 64],
    origin_path: [u8; PATH_BYTES_MAX],
    bypass_bytes: U64,
    reserved2: [u8; 48],
}

const _: () = assert!(size_of::<RecordMedia>() == 512);
const _: () = assert!(size_of::<TableMedia>() == BLOCK_LEN);

/// A volume's part of the cache, and its limits. 0 means that there is none of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// The smallest part of the cache that other volumes leave to this one.
    pub min_bytes: u64,
    /// The largest part of the cache that it may have.
    pub max_bytes: u64,
    /// The most dirty data.
    pub dirty_limit_bytes: u64,
    /// How long data may stay dirty.
    pub dirty_age_ms: u32,
    /// What it gets of the room between, beside the other volumes.
    pub weight: u16,
    /// Streams longer than this bypass the cache; 0 = none does. `None`: as the cache has it.
    pub bypass_bytes: Option<u64>,
    /// How much is read at once from a slow origin; 0 = what is asked for. `None`: as the cache has
    /// it.
    pub read_around_bytes: Option<u32>,
}

/// An origin of a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginRecord {
    /// Its id.
    pub id: OriginId,
    /// How writes to it are treated.
    pub mode: Mode,
    /// Whether clients may not write. Version 1 has no room for it.
    pub read_only: bool,
    /// Its size when it was added, a multiple of 512.
    pub size_bytes: u64,
    /// Its name as a volume; at most [`NAME_BYTES_MAX`] bytes, with version 1
    /// [`NAME_BYTES_MAX_V1`].
    pub name: String,
    /// A serial number or the like; at most 64 bytes; empty if the origin has none.
    pub identity: String,
    /// Hash of sampled blocks at the last clean stop (stale guard).
    pub fingerprint: u64,
    /// Time of the last change of a file at the last clean stop, in ns since 1970; 0 if unknown.
    pub changed_ns: u64,
    /// Its dirty blocks at the last stop. The number means nothing after a crash. Version 1 has no
    /// room for it.
    pub dirty_blocks: u64,
    /// Where the origin was last found, as a path or an address; empty if that is not known or is
    /// longer than [`PATH_BYTES_MAX`]. Version 1 has no room for it.
    pub origin_path: String,
    /// Its part of the cache. Version 1 has no room for it.
    pub shares: Shares,
}

/// Where the table of volumes is, and which one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// The first block of the two areas.
    pub first_block: u32,
    /// Blocks of each area.
    pub blocks: u32,
    /// The number of the table that counts.
    pub number: u64,
    /// The id of the next volume. No id is used twice.
    pub next_id: u32,
}

impl Table {
    /// The blocks of an area with room for so many volumes.
    #[must_use]
    pub const fn blocks_for(volumes: usize) -> u32 {
        let blocks = volumes.div_ceil(RECORDS_MAX) as u32;
        if blocks == 0 { 1 } else { blocks }
    }

    /// The volumes that an area has room for.
    #[must_use]
    pub fn room(&self) -> usize {
        (self.blocks as usize * RECORDS_MAX).min(VOLUMES_MAX)
    }

    /// The first byte of the area that the table of this number is in.
    #[must_use]
    pub fn offset(&self, number: u64) -> u64 {
        (u64::from(self.first_block) + number % 2 * u64::from(self.blocks)) * BLOCK_BYTES
    }

    /// The blocks of the table of these volumes.
    pub(super) fn encode(&self, origins: &[OriginRecord], cache_tag: u64) -> Vec<u8> {
        let blocks = Self::blocks_for(origins.len()) as usize;
        let mut bytes = vec![0; blocks * BLOCK_LEN];
        for (nth, block) in bytes.chunks_exact_mut(BLOCK_LEN).enumerate() {
            let mut media = TableMedia::new_zeroed();
            media.magic = MAGIC;
            media.cache_tag = cache_tag.into();
            media.number = self.number.into();
            media.nth = (nth as u32).into();
            media.count = (origins.len() as u32).into();
            media.next_id = self.next_id.into();
            let records = origins.iter().skip(nth * RECORDS_MAX);
            for (to, from) in media.records.iter_mut().zip(records) {
                *to = encode_record(from);
            }
            media.crc = block_crc(media.as_bytes(), offset_of!(TableMedia, crc)).into();
            block.copy_from_slice(media.as_bytes());
        }
        bytes
    }

    /// The table in the area of this number, if it is whole.
    pub(super) fn read_area<E>(
        &self,
        number: u64,
        cache_tag: u64,
        read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Option<Found>, E> {
        let (offset, mut block) = (self.offset(number), vec![0; BLOCK_LEN]);
        let mut found = Found { number: 0, next_id: 0, count: 0, origins: Vec::new() };
        for nth in 0..self.blocks {
            read(offset + u64::from(nth) * BLOCK_BYTES, &mut block)?;
            if !found.take_block(nth, &block, cache_tag) {
                return Ok(None);
            }
            if found.origins.len() == found.count {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// Why a cache's table of volumes can't be used.
#[derive(Debug, PartialEq, Eq)]
pub enum TableError<E> {
    /// The device can't read it.
    Unreadable(E),
    /// The table that the superblock names is not whole.
    Damaged {
        /// Its first byte on the cache device.
        offset: u64,
    },
}

/// A table, as far as it is read.
pub(super) struct Found {
    pub(super) number: u64,
    pub(super) next_id: u32,
    count: usize,
    pub(super) origins: Vec<OriginRecord>,
}

impl Found {
    /// Takes the next block; whether it is sound, and of the same table.
    fn take_block(&mut self, nth: u32, block: &[u8], cache_tag: u64) -> bool {
        let Ok(media) = TableMedia::ref_from_bytes(block) else { return false };
        let of_this_cache = media.magic == MAGIC
            && media.cache_tag.get() == cache_tag
            && block_crc(block, offset_of!(TableMedia, crc)) == media.crc.get();
        let said = (media.number.get(), media.next_id.get(), media.count.get() as usize);
        if nth == 0 {
            (self.number, self.next_id, self.count) = said;
        }
        let same = said == (self.number, self.next_id, self.count) && media.nth.get() == nth;
        if !of_this_cache || !same || self.count > VOLUMES_MAX || self.number >= NUMBER_MAX || self.next_id > IDS_END {
            return false;
        }
        for record in media.records.iter().take(self.count - self.origins.len()) {
            let above = self.origins.last().map_or(0, |last| last.id.0 + 1);
            let id = record.id.get();
            let Some(mode) = Mode::ALL.get(usize::from(record.mode)).filter(|_| (above..self.next_id).contains(&id))
            else {
                return false;
            };
            self.origins.push(decode_record(record, *mode));
        }
        true
    }
}

fn encode_record(from: &OriginRecord) -> RecordMedia {
    let mut to = RecordMedia::new_zeroed();
    to.id = from.id.0.into();
    to.mode = from.mode as u8;
    let shares = &from.shares;
    let said = |nth: u32, is: bool| u8::from(is) << nth;
    to.flags =
        u8::from(from.read_only) | said(1, shares.bypass_bytes.is_some()) | said(2, shares.read_around_bytes.is_some());
    to.bypass_bytes = shares.bypass_bytes.unwrap_or_default().into();
    to.read_around_bytes = shares.read_around_bytes.unwrap_or_default().into();
    to.size_bytes = from.size_bytes.into();
    to.fingerprint = from.fingerprint.into();
    to.changed_ns = from.changed_ns.into();
    to.dirty_blocks = from.dirty_blocks.into();
    to.share_min_bytes = from.shares.min_bytes.into();
    to.share_max_bytes = from.shares.max_bytes.into();
    to.dirty_limit_bytes = from.shares.dirty_limit_bytes.into();
    to.dirty_age_ms = from.shares.dirty_age_ms.into();
    to.weight = from.shares.weight.into();
    put_text(&mut to.name, &from.name);
    put_text(&mut to.identity, &from.identity);
    // A path that is cut names another file.
    if from.origin_path.len() <= PATH_BYTES_MAX {
        put_text(&mut to.origin_path, &from.origin_path);
    }
    to
}

fn decode_record(from: &RecordMedia, mode: Mode) -> OriginRecord {
    OriginRecord {
        id: OriginId(from.id.get()),
        mode,
        read_only: from.flags & 1 != 0,
        size_bytes: from.size_bytes.get(),
        name: text(&from.name),
        identity: text(&from.identity),
        fingerprint: from.fingerprint.get(),
        changed_ns: from.changed_ns.get(),
        dirty_blocks: from.dirty_blocks.get(),
        origin_path: text(&from.origin_path),
        shares: Shares {
            min_bytes: from.share_min_bytes.get(),
            max_bytes: from.share_max_bytes.get(),
            dirty_limit_bytes: from.dirty_limit_bytes.get(),
            dirty_age_ms: from.dirty_age_ms.get(),
            weight: from.weight.get(),
            bypass_bytes: (from.flags & 2 != 0).then(|| from.bypass_bytes.get()),
            read_around_bytes: (from.flags & 4 != 0).then(|| from.read_around_bytes.get()),
        },
    }
}
