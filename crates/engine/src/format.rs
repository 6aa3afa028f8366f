// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every structure on the cache device, and nothing else. docs/format.md describes them in prose.
//!
//! All numbers are little-endian. Each structure is one 4 KiB block with a CRC-32C over the whole
//! block (its own field taken as zero), so that a torn or misplaced block is seen. The assumption
//! about devices: a write of one 4 KiB block may be torn, and then the CRC tells.
//! A change here raises [`VERSION`] and keeps the reader of the old one (docs/format.md).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::types::{BLOCK_BYTES, Block, Key, Mode, OriginId};

/// First bytes of both superblocks.
pub const MAGIC: [u8; 8] = *b"FLASHFRT";
/// The format this code writes, and the only one so far.
pub const VERSION: u32 = 1;
/// Most origins of one cache.
pub const ORIGINS_MAX: usize = 16;
/// Most entries of one commit: what fits behind the header's fixed part in one block.
pub const COMMIT_ENTRIES_MAX: usize = 252;
/// Entries of one checkpoint block.
pub const CHECKPOINT_ENTRIES_MAX: usize = 255;
/// Segment ages of one checkpoint block.
pub const CHECKPOINT_AGES_MAX: usize = 510;
/// Fewest segments of a lane: two for each stream, the reserve of "freed" entries, and some to fill. The
/// random lives of crates/sim go down to it.
pub const SEGMENTS_MIN: u32 = 16;
/// Streams of a lane: each has its own open segment (see [`Stream`]).
pub const STREAMS: usize = 3;
/// "No place" in a [`CommitHeader::heads`].
pub const NO_SLOT: u32 = u32::MAX;

const BLOCK_LEN: usize = BLOCK_BYTES as usize;
const COMMIT_MAGIC: [u8; 4] = *b"FFcm";
const CHECKPOINT_MAGIC: [u8; 4] = *b"FFck";

/// What a segment is filled with: hot and cold blocks age apart.
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
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; STREAMS] = [Self::Writes, Self::Promoted, Self::Survivors];
}

/// CRC-32C (Castagnoli; RFC 3720). A table is fast enough for one block in a commit of 252.
static CRC32C: crc::Crc<u32, crc::Table<16>> = crc::Crc::<u32, crc::Table<16>>::new(&crc::CRC_32_ISCSI);

/// CRC-32C of a block whose own 4-byte CRC field at `field` is taken as zero.
fn block_crc(block: &[u8], field: usize) -> u32 {
    let mut digest = CRC32C.digest();
    digest.update(&block[..field]);
    digest.update(&[0; 4]);
    digest.update(&block[field + 4..]);
    digest.finalize()
}

/// What a block's checksum on the medium covers besides its data: its key and the cache, so that
/// a misdirected or stale block does not pass.
#[must_use]
pub fn seal_checksum(data_crc: u32, key: Key, cache_tag: u64) -> u32 {
    let mut x = key.block.0 ^ (u64::from(key.origin.0) << 48) ^ cache_tag;
    // The finalizer of SplitMix64: every key bit reaches every checksum bit.
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    data_crc ^ ((x >> 32) as u32)
}

/// One origin, as recorded in the superblock.
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
    origins: [OriginMedia; ORIGINS_MAX],
    reserved: [u8; BLOCK_LEN - 96 - ORIGINS_MAX * size_of::<OriginMedia>()],
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
    reserved: u8,
    entry_count: U16,
    data_blocks: U16,
    reserved2: U32,
    entries: [EntryMedia; COMMIT_ENTRIES_MAX],
}

/// One entry of a commit.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct EntryMedia {
    /// kind << 60 | origin << 48 | block.
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
    reserved: [u8; BLOCK_LEN - 63],
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

/// One index entry of a checkpoint.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct CheckpointEntryMedia {
    /// dirty << 62 | hits << 60 | origin << 48 | block.
    what: U64,
    slot: U32,
    checksum: U32,
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
        }
    }
}

impl core::error::Error for SuperblockError {}

/// One origin of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginRecord {
    /// Its id.
    pub id: OriginId,
    /// How writes to it are treated.
    pub mode: Mode,
    /// Its size when it was added, a multiple of 512.
    pub size_bytes: u64,
    /// Its name as a volume; at most 32 bytes.
    pub name: String,
    /// Serial number or the like; at most 64 bytes; empty if it has none.
    pub identity: String,
    /// Hash of sampled blocks at the last clean stop (stale guard).
    pub fingerprint: u64,
    /// Time of last change of a file at the last clean stop, ns since 1970; 0 if unknown.
    pub changed_ns: u64,
}

/// A superblock, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Names this cache.
    pub uuid: [u8; 16],
    /// Number of this update; the copy with the higher one is the newer.
    pub update: u64,
    /// Number of times the cache was opened for writing; commits carry it.
    pub epoch: u64,
    /// Whether the last daemon stopped cleanly, so that the stale guard's data is current.
    pub clean: bool,
    /// The last daemon stopped because the cache device failed: its log may be older than the origin.
    pub failed: bool,
    /// Dirty blocks at the last stop; means nothing after a crash.
    pub dirty_blocks: u64,
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
    /// The origins.
    pub origins: Vec<OriginRecord>,
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn put_text(to: &mut [u8], from: &str) {
    let mut end = from.len().min(to.len());
    while !from.is_char_boundary(end) {
        end -= 1;
    }
    to[..end].copy_from_slice(&from.as_bytes()[..end]);
}

impl Superblock {
    /// Where the two copies are on a device of that size, in bytes.
    #[must_use]
    pub const fn offsets(cache_bytes: u64) -> [u64; 2] {
        [0, cache_bytes / BLOCK_BYTES * BLOCK_BYTES - BLOCK_BYTES]
    }

    /// What commits carry to show which cache they belong to.
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
        let mut media = SuperblockMedia::new_zeroed();
        media.magic = MAGIC;
        media.version = VERSION.into();
        media.uuid = self.uuid;
        media.update = self.update.into();
        media.epoch = self.epoch.into();
        media.cache_bytes = self.cache_bytes.into();
        media.flags = (u32::from(self.clean) | u32::from(self.failed) << 1).into();
        media.dirty_blocks = self.dirty_blocks.into();
        media.lanes = self.lanes.into();
        media.segment_blocks = self.segment_blocks.into();
        media.segments_per_lane = self.segments_per_lane.into();
        media.checkpoint_blocks = self.checkpoint_blocks.into();
        media.stripe_blocks = self.stripe_blocks.into();
        media.first_block = self.first_block.into();
        media.origin_count = (self.origins.len() as u32).into();
        for (to, from) in media.origins.iter_mut().zip(&self.origins) {
            to.id = from.id.0.into();
            to.mode = from.mode as u8;
            to.size_bytes = from.size_bytes.into();
            to.fingerprint = from.fingerprint.into();
            to.changed_ns = from.changed_ns.into();
            put_text(&mut to.name, &from.name);
            put_text(&mut to.identity, &from.identity);
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
        if media.version.get() != VERSION {
            return Err(SuperblockError::Newer { found: media.version.get() });
        }
        let count = media.origin_count.get() as usize;
        if count > ORIGINS_MAX {
            return Err(SuperblockError::Nonsense("origin_count"));
        }
        let mut origins = Vec::new();
        for origin in &media.origins[..count] {
            let mode = Mode::ALL.get(usize::from(origin.mode)).ok_or(SuperblockError::Nonsense("origin.mode"))?;
            if origin.id.get() >= 1 << 12 {
                return Err(SuperblockError::Nonsense("origin.id"));
            }
            origins.push(OriginRecord {
                id: OriginId(origin.id.get()),
                mode: *mode,
                size_bytes: origin.size_bytes.get(),
                name: text(&origin.name),
                identity: text(&origin.identity),
                fingerprint: origin.fingerprint.get(),
                changed_ns: origin.changed_ns.get(),
            });
        }
        let it = Self {
            uuid: media.uuid,
            update: media.update.get(),
            epoch: media.epoch.get(),
            clean: media.flags.get() & 1 != 0,
            failed: media.flags.get() & 2 != 0,
            dirty_blocks: media.dirty_blocks.get(),
            cache_bytes: media.cache_bytes.get(),
            lanes: media.lanes.get(),
            segment_blocks: media.segment_blocks.get(),
            segments_per_lane: media.segments_per_lane.get(),
            checkpoint_blocks: media.checkpoint_blocks.get(),
            stripe_blocks: media.stripe_blocks.get(),
            first_block: media.first_block.get(),
            origins,
        };
        it.layout_is_sound().map(|()| it)
    }

    fn layout_is_sound(&self) -> Result<(), SuperblockError> {
        let lane_blocks = self.lane_blocks();
        let end = u64::from(self.first_block) + u64::from(self.lanes) * lane_blocks + 1;
        let slots = u64::from(self.segments_per_lane) * u64::from(self.segment_blocks);
        if self.lanes == 0 || self.lanes > 256 {
            Err(SuperblockError::Nonsense("lanes"))
        } else if !(8..=4096).contains(&self.segment_blocks) {
            Err(SuperblockError::Nonsense("segment_blocks"))
        } else if self.stripe_blocks == 0 {
            Err(SuperblockError::Nonsense("stripe_blocks"))
        } else if self.segments_per_lane < SEGMENTS_MIN
            || self.first_block == 0
            || slots >= u64::from(NO_SLOT)
            || end > self.cache_bytes / BLOCK_BYTES
        {
            Err(SuperblockError::Nonsense("segments_per_lane"))
        } else if u64::from(self.checkpoint_blocks) < checkpoint_blocks(self.segments_per_lane, self.segment_blocks) {
            Err(SuperblockError::Nonsense("checkpoint_blocks"))
        } else {
            Ok(())
        }
    }

    fn lane_blocks(&self) -> u64 {
        2 * u64::from(self.checkpoint_blocks) + u64::from(self.segments_per_lane) * u64::from(self.segment_blocks)
    }

    /// First byte of a checkpoint area (0 or 1) of a lane.
    #[must_use]
    pub fn checkpoint_offset(&self, lane: u32, area: u32) -> u64 {
        (u64::from(self.first_block)
            + u64::from(lane) * self.lane_blocks()
            + u64::from(area) * u64::from(self.checkpoint_blocks))
            * BLOCK_BYTES
    }

    /// What formatting writes besides the superblocks: for each lane an empty checkpoint in one area
    /// and nothing in the other, as (first byte, block of 4096 bytes).
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
                lane: lane as u16,
                checksum_bits: 32,
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
        self.checkpoint_offset(lane, 2) + u64::from(slot) * BLOCK_BYTES
    }
}

/// Blocks of a checkpoint area that holds any state of that many segments.
#[must_use]
pub fn checkpoint_blocks(segments: u32, segment_blocks: u32) -> u64 {
    let slots = u64::from(segments) * u64::from(segment_blocks);
    1 + u64::from(segments).div_ceil(CHECKPOINT_AGES_MAX as u64) + slots.div_ceil(CHECKPOINT_ENTRIES_MAX as u64)
}

/// One entry of a commit, decoded. The first three take a block of the commit each, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The block was superseded before the commit was sealed.
    Dead,
    /// A block that the origin does not have yet.
    Dirty {
        /// Which.
        key: Key,
        /// [`seal_checksum`] of its data.
        checksum: u32,
    },
    /// A block that the origin has too.
    Clean {
        /// Which.
        key: Key,
        /// [`seal_checksum`] of its data.
        checksum: u32,
    },
    /// These blocks are no longer in the cache.
    Invalidate {
        /// The first.
        key: Key,
        /// How many.
        blocks: u32,
    },
    /// The version of this block in that slot is on the origin.
    Cleaned {
        /// Which.
        key: Key,
        /// Which version: a newer one in another slot stays dirty.
        slot: u32,
    },
    /// The segment holds nothing that is needed, and will be written anew.
    Freed {
        /// Which.
        segment: u32,
    },
}

impl Entry {
    /// Whether the entry stands for a block of the commit.
    #[must_use]
    pub const fn has_data(&self) -> bool {
        matches!(self, Self::Dead | Self::Dirty { .. } | Self::Clean { .. })
    }

    fn encode(self) -> EntryMedia {
        let what = |kind: u64, key: Key| U64::new(kind << 60 | u64::from(key.origin.0) << 48 | key.block.0);
        let (what, crc, arg) = match self {
            Self::Dead => (U64::new(0), 0, 0),
            Self::Dirty { key, checksum } => (what(1, key), checksum, 0),
            Self::Clean { key, checksum } => (what(2, key), checksum, 0),
            Self::Invalidate { key, blocks } => (what(3, key), 0, blocks),
            Self::Cleaned { key, slot } => (what(4, key), 0, slot),
            Self::Freed { segment } => (U64::new(5 << 60), 0, segment),
        };
        EntryMedia { what, crc: crc.into(), arg: arg.into() }
    }

    fn decode(media: &EntryMedia) -> Option<Self> {
        let what = media.what.get();
        let key = split_key(what);
        let (checksum, arg) = (media.crc.get(), media.arg.get());
        Some(match what >> 60 {
            0 => Self::Dead,
            1 => Self::Dirty { key, checksum },
            2 => Self::Clean { key, checksum },
            3 => Self::Invalidate { key, blocks: arg },
            4 => Self::Cleaned { key, slot: arg },
            5 => Self::Freed { segment: arg },
            _ => return None,
        })
    }
}

const fn split_key(what: u64) -> Key {
    Key { origin: OriginId((what >> 48 & 0xfff) as u16), block: Block(what & ((1 << 48) - 1)) }
}

/// A commit header, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitHeader {
    /// The cache it belongs to.
    pub cache_tag: u64,
    /// The opening it was written in.
    pub epoch: u64,
    /// Its number in its lane.
    pub seq: u64,
    /// All commits up to this one were durable when it was sealed.
    pub durable_seq: u64,
    /// Where each stream's next commit after this one will start.
    pub heads: [u32; STREAMS],
    /// Its lane.
    pub lane: u16,
    /// Its stream's number.
    pub stream: u8,
    /// What it holds.
    pub entries: Vec<Entry>,
}

impl CommitHeader {
    /// Blocks of data behind the header.
    #[must_use]
    pub fn data_blocks(&self) -> u32 {
        self.entries.iter().filter(|entry| entry.has_data()).count() as u32
    }

    /// Writes the block of 4096 bytes.
    pub fn encode_into(&self, block: &mut [u8]) {
        let mut media = CommitMedia::new_zeroed();
        media.magic = COMMIT_MAGIC;
        media.cache_tag = self.cache_tag.into();
        media.epoch = self.epoch.into();
        media.seq = self.seq.into();
        media.durable_seq = self.durable_seq.into();
        media.heads = self.heads.map(U32::new);
        media.lane = self.lane.into();
        media.stream = self.stream;
        media.entry_count = (self.entries.len() as u16).into();
        media.data_blocks = (self.data_blocks() as u16).into();
        for (to, from) in media.entries.iter_mut().zip(&self.entries) {
            *to = from.encode();
        }
        media.crc = block_crc(media.as_bytes(), offset_of!(CommitMedia, crc)).into();
        block.copy_from_slice(media.as_bytes());
    }

    /// Reads a block of 4096 bytes; `None` if it is not a whole, sound header.
    #[must_use]
    pub fn decode(block: &[u8]) -> Option<Self> {
        let media = CommitMedia::ref_from_bytes(block).ok()?;
        let count = usize::from(media.entry_count.get());
        if media.magic != COMMIT_MAGIC
            || count > COMMIT_ENTRIES_MAX
            || usize::from(media.stream) >= STREAMS
            || block_crc(block, offset_of!(CommitMedia, crc)) != media.crc.get()
        {
            return None;
        }
        let entries = media.entries[..count].iter().map(Entry::decode).collect::<Option<Vec<_>>>()?;
        let it = Self {
            cache_tag: media.cache_tag.get(),
            epoch: media.epoch.get(),
            seq: media.seq.get(),
            durable_seq: media.durable_seq.get(),
            heads: media.heads.map(U32::get),
            lane: media.lane.get(),
            stream: media.stream,
            entries,
        };
        (it.data_blocks() == u32::from(media.data_blocks.get())).then_some(it)
    }
}

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
    /// Its lane.
    pub lane: u16,
    /// Bits of each checksum that the entries hold.
    pub checksum_bits: u8,
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
        media.lane = self.lane.into();
        media.checksum_bits = self.checksum_bits;
        media.crc = block_crc(media.as_bytes(), offset_of!(CheckpointMedia, crc)).into();
        block.copy_from_slice(media.as_bytes());
    }

    /// Reads a block of 4096 bytes; `None` if it is not a whole, sound header.
    #[must_use]
    pub fn decode(block: &[u8]) -> Option<Self> {
        let media = CheckpointMedia::ref_from_bytes(block).ok()?;
        let sound =
            media.magic == CHECKPOINT_MAGIC && block_crc(block, offset_of!(CheckpointMedia, crc)) == media.crc.get();
        sound.then(|| Self {
            cache_tag: media.cache_tag.get(),
            epoch: media.epoch.get(),
            generation: media.generation.get(),
            seq: media.seq.get(),
            entries: media.entries.get(),
            heads: media.heads.map(U32::get),
            lane: media.lane.get(),
            checksum_bits: media.checksum_bits,
        })
    }
}

/// One index entry of a checkpoint, decoded.
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
        let key = u64::from(from.key.origin.0) << 48 | from.key.block.0;
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
