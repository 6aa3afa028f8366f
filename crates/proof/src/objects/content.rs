// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a volume holds, as a stamp for each of its blocks, and how writes change it.

use flashfront_object::SECTOR_BYTES;

/// Blocks that are looked at.
pub(super) const BLOCKS: usize = 96;
/// Sectors of a block.
pub(super) const BLOCK_SECTORS: u64 = 8;
/// Blocks lie in groups, far apart, so that each has a page of the map.
const GROUP: usize = 16;
const GROUP_SECTORS: u64 = 40_000;
/// Sectors of the volume.
pub(super) const SECTORS: u64 = (BLOCKS / GROUP) as u64 * GROUP_SECTORS;

/// The first sector of a block.
pub(super) fn sector(block: usize) -> u64 {
    // An odd place, so that blocks cross the borders of extents.
    (block / GROUP) as u64 * GROUP_SECTORS + 500 + (block % GROUP) as u64 * BLOCK_SECTORS
}

/// How many blocks from here on lie side by side, at most so many.
pub(super) fn side_by_side(block: usize, most: usize) -> usize {
    most.min(GROUP - block % GROUP)
}

/// A stamp for each block. 0: zeroes.
pub(super) type Content = Vec<u64>;

/// A change: blocks that follow each other have these stamps from now on.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) block: usize,
    pub(super) stamps: Vec<u64>,
}

impl Change {
    /// A write with one stamp.
    pub(super) fn write(block: usize, blocks: usize, stamp: u64) -> Self {
        Self { block, stamps: vec![stamp; blocks] }
    }

    pub(super) fn apply(&self, content: &mut Content) {
        content[self.block..self.block + self.stamps.len()].copy_from_slice(&self.stamps);
    }

    /// The bytes of the write.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let words = (BLOCK_SECTORS * SECTOR_BYTES) as usize / size_of::<u64>();
        self.stamps.iter().flat_map(|stamp| stamp.to_le_bytes().repeat(words)).collect()
    }
}

/// Reads the stamps of blocks; each must be whole.
pub(super) fn stamps(bytes: &[u8]) -> Result<Vec<u64>, String> {
    bytes
        .chunks((BLOCK_SECTORS * SECTOR_BYTES) as usize)
        .map(|block| {
            let (words, _) = block.as_chunks::<8>();
            let first = words.first().copied().unwrap_or_default();
            match words.iter().all(|it| *it == first) {
                true => Ok(u64::from_le_bytes(first)),
                false => Err("a block is torn".to_owned()),
            }
        })
        .collect()
}
