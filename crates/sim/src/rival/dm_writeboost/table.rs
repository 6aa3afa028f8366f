// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table knows which block of the origin is in which slot of dm-writeboost's ring, both ways,
//! in flat arrays.

/// Blocks of a segment, without its head.
pub(super) const SEGMENT_BLOCKS: u32 = 127;
/// Blocks of the superblock: 1 MiB.
const HEAD_BLOCKS: u32 = 256;
/// Blocks of the origin whose slots are in one array. The array exists once one of them was cached.
const CHUNK: usize = 256;

type Chunk = Box<[u32; CHUNK]>;

#[derive(Debug)]
pub(super) struct Table {
    segments: u64,
    /// For each block its slot plus one; 0 = it is not cached.
    chunks: Vec<Option<Chunk>>,
    /// For each slot its block plus one; 0 = there is none, or it was written again since.
    blocks: Vec<u32>,
    dirty: Vec<bool>,
    dirty_blocks: u64,
}

impl Table {
    pub(super) fn new(origin_bytes: u64, cache_bytes: u64) -> Self {
        let segments = (cache_bytes / 4096 - u64::from(HEAD_BLOCKS)) / u64::from(SEGMENT_BLOCKS + 1);
        let slots = (segments * u64::from(SEGMENT_BLOCKS)) as usize;
        Self {
            segments,
            chunks: vec![None; (origin_bytes / 4096) as usize / CHUNK + 1],
            blocks: vec![0; slots],
            dirty: vec![false; slots],
            dirty_blocks: 0,
        }
    }

    pub(super) const fn segments(&self) -> u64 {
        self.segments
    }

    pub(super) const fn dirty_blocks(&self) -> u64 {
        self.dirty_blocks
    }

    /// The first slot of a segment. `number` counts segments since the beginning.
    pub(super) const fn first_slot(&self, number: u64) -> u32 {
        (number % self.segments) as u32 * SEGMENT_BLOCKS
    }

    /// The place of a slot, in blocks on the cache device. The head of a segment is before its
    /// first slot.
    pub(super) const fn place_of(&self, slot: u32) -> u32 {
        HEAD_BLOCKS + slot / SEGMENT_BLOCKS * (SEGMENT_BLOCKS + 1) + 1 + slot % SEGMENT_BLOCKS
    }

    pub(super) fn slot_of(&self, block: u32) -> Option<u32> {
        let chunk = self.chunks[block as usize / CHUNK].as_ref()?;
        chunk[block as usize % CHUNK].checked_sub(1)
    }

    /// Notes that a block is in this slot now.
    pub(super) fn set(&mut self, slot: u32, block: u32, dirty: bool) {
        let at = slot as usize;
        if let Some(old) = self.slot_of(block).filter(|old| *old != slot) {
            self.undirty(old);
            self.blocks[old as usize] = 0;
        }
        let chunk = self.chunks[block as usize / CHUNK].get_or_insert_with(|| Box::new([0; CHUNK]));
        chunk[block as usize % CHUNK] = slot + 1;
        self.blocks[at] = block + 1;
        if dirty && !self.dirty[at] {
            self.dirty[at] = true;
            self.dirty_blocks += 1;
        }
    }

    fn undirty(&mut self, slot: u32) {
        self.dirty_blocks -= u64::from(std::mem::take(&mut self.dirty[slot as usize]));
    }

    /// Finds the dirty blocks of the segment that begins at slot `first`.
    pub(super) fn dirty_of(&self, first: u32, found: &mut Vec<(u32, u32)>) {
        let dirty = (first..first + SEGMENT_BLOCKS).filter(|slot| self.dirty[*slot as usize]);
        found.extend(dirty.map(|slot| (slot, self.blocks[slot as usize] - 1)));
    }

    /// Notes that a slot's block was written to the origin, if the slot still has that block.
    pub(super) fn clean(&mut self, slot: u32, block: u32) {
        if self.blocks[slot as usize] == block + 1 {
            self.undirty(slot);
        }
    }

    /// Begins a segment anew: the blocks that were in it are no longer cached.
    pub(super) fn reuse(&mut self, number: u64) {
        let first = self.first_slot(number) as usize;
        for block in &mut self.blocks[first..first + SEGMENT_BLOCKS as usize] {
            if let Some(block) = std::mem::take(block).checked_sub(1)
                && let Some(chunk) = &mut self.chunks[block as usize / CHUNK]
            {
                chunk[block as usize % CHUNK] = 0;
            }
        }
    }
}
