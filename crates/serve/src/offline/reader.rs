// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a cache device, and keeps a list of the damage.

use std::collections::BTreeMap;
use std::io;

use flashfront_device::real::DeviceFile;
use flashfront_engine::format::{CheckpointHeader, CommitHeader, Entry, Superblock, seal_checksum};
use flashfront_engine::{BLOCK_BYTES, Key};

use super::damage::{Damage, DamageKind};

const BLOCK_LEN: usize = BLOCK_BYTES as usize;

/// A cache device, and what was seen to be damaged on it.
pub(super) struct Reader<'a> {
    pub(super) device: &'a DeviceFile,
    pub(super) superblock: &'a Superblock,
    pub(super) damage: Vec<Damage>,
}

impl Reader<'_> {
    pub(super) fn blocks(&self, offset: u64, blocks: u32) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; blocks as usize * BLOCK_LEN];
        self.device.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads a block that must be there; what the device can't read is damage.
    pub(super) fn sound_block(&mut self, kind: DamageKind, offset: u64) -> Option<Vec<u8>> {
        match self.blocks(offset, 1) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.report(kind, offset, "readable blocks", &format!("read error: {error}"));
                None
            }
        }
    }

    /// Reads blocks at once; where the device can't do that, one by one.
    pub(super) fn stretch(&self, offset: u64, blocks: u32) -> Stretch {
        match self.blocks(offset, blocks) {
            Ok(bytes) => Stretch { bytes, unreadable: BTreeMap::new() },
            Err(_) => {
                let mut it = Stretch { bytes: vec![0; blocks as usize * BLOCK_LEN], unreadable: BTreeMap::new() };
                for (nth, block) in (0..).zip(it.bytes.chunks_mut(BLOCK_LEN)) {
                    if let Err(error) = self.device.read_at(offset + u64::from(nth) * BLOCK_BYTES, block) {
                        it.unreadable.insert(nth, format!("read error: {error}"));
                    }
                }
                it
            }
        }
    }

    /// Reads a segment.
    pub(super) fn segment(&self, lane: u32, segment: u32) -> Segment {
        let slots = self.superblock.segment_blocks;
        let first_slot = segment * slots;
        Segment { lane, first_slot, stretch: self.stretch(self.superblock.slot_offset(lane, first_slot), slots) }
    }

    pub(super) fn report(&mut self, kind: DamageKind, offset: u64, expected: &str, found: &str) {
        self.damage.push(Damage {
            kind,
            offset,
            origin: None,
            lba: None,
            expected: expected.to_owned(),
            found: found.to_owned(),
        });
    }

    /// Whether the data behind a commit's header is what the header says.
    pub(super) fn data_is_whole(&self, header: &CommitHeader, lane: u32, slot: u32) -> bool {
        let (blocks, no_clean) = (header.data_blocks(), lacks_clean_data(self.superblock));
        let Ok(data) = self.blocks(self.superblock.slot_offset(lane, slot) + BLOCK_BYTES, blocks) else {
            return false;
        };
        let with_data = header.entries.iter().filter(|entry| entry.has_data());
        with_data.zip(data.chunks(BLOCK_LEN)).all(|(entry, block)| match *entry {
            // As in replay: such a commit is whole without it, and so is what comes after.
            Entry::Clean { .. } if no_clean => true,
            Entry::Dirty { key, checksum, .. } | Entry::Clean { key, checksum } => {
                checksum_of(block, key, self.superblock) == checksum
            }
            _ => true,
        })
    }

    /// The header at a slot, if it is a sound one of this cache and lane.
    pub(super) fn header(&self, lane: u32, slot: u32) -> Option<CommitHeader> {
        let block = self.blocks(self.superblock.slot_offset(lane, slot), 1).ok()?;
        self.decode(lane, slot, &block)
    }

    /// The header in a block, if it is a sound one of this cache, lane and slot.
    pub(super) fn decode(&self, lane: u32, slot: u32, block: &[u8]) -> Option<CommitHeader> {
        let header = CommitHeader::decode(block)?;
        let ours = header.cache_tag == self.superblock.cache_tag() && u32::from(header.lane) == lane;
        if ours { header.fitted(self.superblock, slot) } else { None }
    }

    /// The head of a checkpoint in a block, if it is a sound one of this cache, lane and area.
    pub(super) fn decode_head(&self, lane: u32, area: u32, block: &[u8]) -> Option<CheckpointHeader> {
        let head = CheckpointHeader::decode(block)?;
        let ours = head.cache_tag == self.superblock.cache_tag() && u32::from(head.lane) == lane;
        (ours && head.fits(self.superblock, area)).then_some(head)
    }
}

/// Blocks in RAM.
pub(super) struct Stretch {
    bytes: Vec<u8>,
    /// Why there is nothing to be read, by number.
    unreadable: BTreeMap<u32, String>,
}

impl Stretch {
    /// The block of this number, or why it can't be read.
    pub(super) fn block(&self, nth: u32) -> Result<&[u8], &str> {
        match self.unreadable.get(&nth) {
            None => Ok(&self.bytes[nth as usize * BLOCK_LEN..][..BLOCK_LEN]),
            Some(error) => Err(error),
        }
    }
}

/// A segment in RAM.
pub(super) struct Segment {
    pub(super) lane: u32,
    pub(super) first_slot: u32,
    stretch: Stretch,
}

impl Segment {
    pub(super) fn block(&self, slot: u32) -> Result<&[u8], &str> {
        self.stretch.block(slot - self.first_slot)
    }

    pub(super) fn end(&self) -> u32 {
        self.first_slot + (self.stretch.bytes.len() / BLOCK_LEN) as u32
    }
}

/// Whether this device has no data of clean blocks, as a mirror, or what it has is dropped: nothing
/// is damaged then.
pub(super) fn lacks_clean_data(superblock: &Superblock) -> bool {
    superblock.pairing.member != superblock.pairing.lead || superblock.pairing.clean_lost
}

/// The checksum that a block's index entry should have.
pub(super) fn checksum_of(block: &[u8], key: Key, superblock: &Superblock) -> u32 {
    let data = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, block) as u32;
    seal_checksum(data, key, superblock.cache_tag())
}
