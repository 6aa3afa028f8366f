// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every structure on the cache device, and nothing else. docs/internals/format.md describes them
//! in prose. The modules below read and write them.
//!
//! All numbers are little-endian. Each structure is one 4 KiB block with a CRC-32C over the whole
//! block (its own field taken as zero). So a torn or misplaced block is seen. The format assumes of
//! devices that a write of one 4 KiB block may be torn. Then the CRC tells.
//!
//! A change here raises [`VERSION`] and keeps the reader of the old version
//! (docs/internals/format.md).

use core::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::fact::types::{Block, Key, OriginId};

mod block;
mod checkpoint;
mod commit;
mod grow;
mod grown;
mod named;
mod pairing;
mod shrink;
mod superblock;
#[cfg(test)]
mod tests;
mod unproven;
mod volumes;

pub use block::NUMBER_MAX;
use block::{BLOCK_LEN, block_crc};
pub use checkpoint::{
    CheckpointEntry, CheckpointHeader, EraEntry, decode_checkpoint_ages, decode_checkpoint_entries,
    decode_checkpoint_eras, encode_checkpoint_ages, encode_checkpoint_entries, encode_checkpoint_eras,
};
pub use commit::{CommitHeader, Entry};
use grown::GrownMedia;
pub use grown::{GrowError, Grown, LogPart, PARTS_MAX};
pub use pairing::{Mirror, Pairing, PairingError, choose};
pub use superblock::{Superblock, SuperblockError, checkpoint_blocks};
pub use unproven::UnprovenBlocks;
pub use volumes::{
    IDS_END, NAME_BYTES_MAX, NAME_BYTES_MAX_V1, ORIGINS_MAX, OriginRecord, PATH_BYTES_MAX, Shares, Table, TableError,
    VOLUMES_MAX,
};

/// First bytes of both superblocks.
pub const MAGIC: [u8; 8] = *b"FLASHFRT";
/// The newest format. This code reads the older ones too, and keeps them where it finds them.
pub const VERSION: u32 = 3;
/// The most entries of one commit: those that fit behind the header's fixed part in one block.
pub const COMMIT_ENTRIES_MAX: usize = 252;
/// Entries of one checkpoint block.
pub const CHECKPOINT_ENTRIES_MAX: usize = 255;
/// Versions that eras need of one checkpoint block.
pub const CHECKPOINT_ERAS_MAX: usize = 170;
/// Segment ages of one checkpoint block.
pub const CHECKPOINT_AGES_MAX: usize = 510;
/// The fewest segments of a lane: two for each stream, the reserve of "freed" entries, and some to
/// fill. The random lives of crates/proof go down to it.
pub const SEGMENTS_MIN: u32 = 16;
/// Streams of a lane: each has its own open segment (see [`Stream`]).
pub const STREAMS: usize = 3;
/// The fewest bits of each checksum that a checkpoint holds. The index keeps at least as many.
pub const CHECKSUM_BITS_MIN: u8 = 16;
/// "No place" in a [`CommitHeader::heads`].
pub const NO_SLOT: u32 = u32::MAX;

const COMMIT_MAGIC: [u8; 4] = *b"FFcm";
const CHECKPOINT_MAGIC: [u8; 4] = *b"FFck";

/// The kind of blocks that a segment is filled with: hot and cold blocks age apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Dirty writes, and all entries without a block.
    Writes = 0,
    /// Blocks read from an origin, or written through.
    Promoted = 1,
    /// Clean blocks copied forward by reclaim.
    Survivors = 2,
}

impl Stream {
    /// All streams, in the order of their numbers.
    pub const ALL: [Self; STREAMS] = [Self::Writes, Self::Promoted, Self::Survivors];
}

/// The checksum of a block on the medium. It covers the data, the key and the cache, so that a
/// misdirected or stale block does not pass.
#[must_use]
pub fn seal_checksum(data_crc: u32, key: Key, cache_tag: u64) -> u32 {
    let mut x = pack_key(key) ^ cache_tag;
    // The finalizer of SplitMix64: every key bit reaches every checksum bit.
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    data_crc ^ ((x >> 32) as u32)
}

/// An origin, as recorded in the superblock of version 1.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct OriginMedia {
    id: U16,
    mode: u8,
    flags: u8,
    reserved: U32,
    size_bytes: U64,
    fingerprint: U64,
    changed_ns: U64,
    name: [u8; 32],
    identity: [u8; 64],
}

/// A superblock: the first block of the cache device, and again the last.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct SuperblockMedia {
    magic: [u8; 8],
    version: U32,
    crc: U32,
    uuid: [u8; 16],
    update: U64,
    epoch: U64,
    cache_bytes: U64,
    flags: U32,
    lanes: U32,
    segment_blocks: U32,
    segments_per_lane: U32,
    checkpoint_blocks: U32,
    stripe_blocks: U32,
    first_block: U32,
    origin_count: U32,
    dirty_blocks: U64,
    /// With version 1 the origins, [`OriginMedia`]; with version 2 a [`TableRefMedia`], and zeroes.
    volumes: [u8; ORIGINS_MAX * size_of::<OriginMedia>()],
    paired: U64,
    /// With version 3; else zeroes.
    grown: GrownMedia,
    reserved: [u8; BLOCK_LEN - 104 - ORIGINS_MAX * size_of::<OriginMedia>() - size_of::<GrownMedia>()],
}

/// Where the table of volumes is, as recorded in the superblock of version 2.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct TableRefMedia {
    number: U64,
    first_block: U32,
    blocks: U32,
}

/// The first block of a commit.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct CommitMedia {
    magic: [u8; 4],
    crc: U32,
    cache_tag: U64,
    epoch: U64,
    seq: U64,
    durable_seq: U64,
    heads: [U32; STREAMS],
    lane: U16,
    stream: u8,
    unproven: u8,
    entry_count: U16,
    data_blocks: U16,
    next_segment: U32,
    entries: [EntryMedia; COMMIT_ENTRIES_MAX],
}

/// An entry of a commit.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct EntryMedia {
    /// kind << 60 | the key.
    what: U64,
    crc: U32,
    arg: U32,
}

/// The first block of a checkpoint area.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct CheckpointMedia {
    magic: [u8; 4],
    crc: U32,
    cache_tag: U64,
    epoch: U64,
    generation: U64,
    seq: U64,
    entries: U64,
    heads: [U32; STREAMS],
    lane: U16,
    checksum_bits: u8,
    reserved: u8,
    next_segments: [U32; STREAMS],
    eras_blocks: U32,
    reserved2: [u8; BLOCK_LEN - 80],
}

/// A block of index entries of a checkpoint.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct CheckpointEntriesMedia {
    crc: U32,
    count: U32,
    generation: U64,
    entries: [CheckpointEntryMedia; CHECKPOINT_ENTRIES_MAX],
}

/// An index entry of a checkpoint.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct CheckpointEntryMedia {
    /// dirty << 62 | hits << 60 | the key.
    what: U64,
    slot: U32,
    checksum: U32,
}

/// A block of versions that eras need, at the end of a checkpoint area.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct CheckpointErasMedia {
    crc: U32,
    count: U32,
    generation: U64,
    entries: [CheckpointEraMedia; CHECKPOINT_ERAS_MAX],
}

/// A version that an era needs. Without a slot: all before the era is on the origin.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct CheckpointEraMedia {
    /// origin << 48 | block.
    what: U64,
    slot: U32,
    checksum: U32,
    era: U64,
}

/// A block of segment ages of a checkpoint: the last commit of each segment, 0 for none.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct CheckpointAgesMedia {
    crc: U32,
    count: U32,
    generation: U64,
    ages: [U64; CHECKPOINT_AGES_MAX],
}

const _: () = assert!(size_of::<SuperblockMedia>() == BLOCK_LEN);
const _: () = assert!(size_of::<OriginMedia>() == 128);
const _: () = assert!(size_of::<CommitMedia>() == BLOCK_LEN);
const _: () = assert!(offset_of!(CommitMedia, entries) == 64);
const _: () = assert!(size_of::<CheckpointMedia>() == BLOCK_LEN);
const _: () = assert!(size_of::<CheckpointEntriesMedia>() == BLOCK_LEN);
const _: () = assert!(size_of::<CheckpointAgesMedia>() == BLOCK_LEN);
const _: () = assert!(size_of::<CheckpointErasMedia>() == BLOCK_LEN);

/// The bits of a block's number. All origins together have at most 256 TiB.
const BLOCK_BITS: u32 = 36;

/// A key in the low 60 bits of an entry. An id has 24 bits. Its low 12 are the highest bits here,
/// and the others come below them: so ids below 4096 look as they always did.
#[must_use]
pub const fn pack_key(key: Key) -> u64 {
    let id = key.origin.0 as u64;
    (id & 0xfff) << 48 | (id >> 12 & 0xfff) << BLOCK_BITS | key.block.0 & ((1 << BLOCK_BITS) - 1)
}

/// The key in the low 60 bits of an entry.
#[must_use]
pub const fn split_key(what: u64) -> Key {
    let id = (what >> 48 & 0xfff) | (what >> BLOCK_BITS & 0xfff) << 12;
    Key { origin: OriginId(id as u32), block: Block(what & ((1 << BLOCK_BITS) - 1)) }
}
