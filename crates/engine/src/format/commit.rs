// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commit headers, decoded: what a commit holds and where the log goes on.

use alloc::vec::Vec;
use core::mem::offset_of;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{
    BLOCK_BITS, COMMIT_ENTRIES_MAX, COMMIT_MAGIC, CommitMedia, EntryMedia, NO_SLOT, NUMBER_MAX, STREAMS, Superblock,
    block_crc, pack_key, split_key,
};
use crate::fact::types::{Block, Key, OriginId};

/// An entry of a commit, decoded. The first three take a block of the commit each, in order.
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
        /// Where destage is ordered: the low half of the number of the era that the block was
        /// written in. 0: in none.
        era: u32,
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
    /// The origin has all that was written in eras before this one. A program that knows nothing of
    /// eras takes this for an invalidation of no blocks.
    Sent {
        /// Which origin.
        origin: OriginId,
        /// The first era that the origin may lack.
        era: u64,
    },
    /// A group of eras, up to this one, may be on the origin: all of it or nothing. After a crash
    /// no fewer eras are sent together. A program that knows nothing of eras takes this for an
    /// invalidation of no blocks.
    Group {
        /// Which origin.
        origin: OriginId,
        /// The group's last era.
        last: u64,
    },
    /// The segment holds nothing that is needed, and will be written anew.
    Freed {
        /// Which.
        segment: u32,
    },
}

/// The highest bit of a block tells a group from eras that are sent. No era has as many bits.
const GROUP: u64 = 1 << (BLOCK_BITS - 1);

impl Entry {
    /// Whether the entry stands for a block of the commit.
    #[must_use]
    pub const fn has_data(&self) -> bool {
        matches!(self, Self::Dead | Self::Dirty { .. } | Self::Clean { .. })
    }

    fn encode(self) -> EntryMedia {
        let what = |kind: u64, key: Key| U64::new(kind << 60 | pack_key(key));
        let (what, crc, arg) = match self {
            Self::Dead => (U64::new(0), 0, 0),
            Self::Dirty { key, checksum, era } => (what(1, key), checksum, era),
            Self::Clean { key, checksum } => (what(2, key), checksum, 0),
            Self::Invalidate { key, blocks } => (what(3, key), 0, blocks),
            Self::Cleaned { key, slot } => (what(4, key), 0, slot),
            Self::Sent { origin, era } => (what(3, Key { origin, block: Block(era >> 32) }), era as u32, 0),
            Self::Group { origin, last } => (what(3, Key { origin, block: Block(GROUP | last >> 32) }), last as u32, 0),
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
            1 => Self::Dirty { key, checksum, era: arg },
            2 => Self::Clean { key, checksum },
            3 if arg == 0 && key.block.0 & GROUP != 0 => {
                Self::Group { origin: key.origin, last: (key.block.0 & !GROUP) << 32 | u64::from(checksum) }
            }
            3 if arg == 0 => Self::Sent { origin: key.origin, era: key.block.0 << 32 | u64::from(checksum) },
            3 => Self::Invalidate { key, blocks: arg },
            4 => Self::Cleaned { key, slot: arg },
            5 => Self::Freed { segment: arg },
            _ => return None,
        })
    }
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
    /// The segment that its stream will most likely fill behind its head's: where to look for what
    /// follows, should the stream's next header be damaged.
    pub next_segment: u32,
    /// Its lane.
    pub lane: u16,
    /// Its stream's number.
    pub stream: u8,
    /// How many of the latest commits of promoted blocks are not proven, this commit among them.
    /// When this one was sealed, it was not known that the origins have their blocks durably.
    pub unproven: u8,
    /// What it holds.
    pub entries: Vec<Entry>,
}

impl CommitHeader {
    /// Blocks of data behind the header.
    #[must_use]
    pub fn data_blocks(&self) -> u32 {
        self.entries.iter().filter(|entry| entry.has_data()).count() as u32
    }

    /// The entries, each with the slot of its block if this header is at `slot`. For an entry
    /// without a block the slot means nothing.
    pub fn placed(&self, slot: u32) -> impl Iterator<Item = (u32, &Entry)> {
        self.entries.iter().scan(slot, |slot, entry| {
            *slot += u32::from(entry.has_data());
            Some((*slot, entry))
        })
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
        media.next_segment = self.next_segment.into();
        media.lane = self.lane.into();
        media.stream = self.stream;
        media.unproven = self.unproven;
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
            next_segment: media.next_segment.get(),
            lane: media.lane.get(),
            stream: media.stream,
            unproven: media.unproven,
            entries,
        };
        let numbers = [it.epoch, it.seq, it.durable_seq];
        let sound = it.data_blocks() == u32::from(media.data_blocks.get());
        (sound && numbers.iter().all(|number| *number < NUMBER_MAX)).then_some(it)
    }

    /// Whether a header at `slot` fits this layout: all places that it names are in the cache, and
    /// its data is in the same segment. A header that does not fit is as bad as one that is
    /// damaged.
    #[must_use]
    pub fn fits(&self, superblock: &Superblock, slot: u32) -> bool {
        slot < superblock.slots()
            && slot % superblock.segment_blocks + self.data_blocks() < superblock.segment_blocks
            && self.heads.iter().all(|slot| superblock.has_head(*slot))
            && superblock.has_next(self.next_segment)
    }

    /// A header at `slot` whose blocks fit this layout, of which nobody follows the log. Since it
    /// was written the cache may have shrunk: then places that the cache has no more are none.
    #[must_use]
    pub fn fitted(mut self, superblock: &Superblock, slot: u32) -> Option<Self> {
        self.heads.iter_mut().filter(|head| !superblock.has_head(**head)).for_each(|head| *head = NO_SLOT);
        if !superblock.has_next(self.next_segment) {
            self.next_segment = NO_SLOT;
        }
        self.fits(superblock, slot).then_some(self)
    }
}
