// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which block of the origin is in which slot of the SSD.
//!
//! Slots are filled in the order of their places; when all are taken, a hand goes round and takes
//! the first that holds no dirty block and was not read since the hand last passed (second chance:
//! what an LRU list decides, for a bit each).

/// Blocks of a piece of the map, which is there only where any of them is on the SSD: 4 MiB.
const PIECE: u64 = 1024;

struct Piece {
    live: u32,
    /// Slot + 1; 0: not on the SSD.
    slots: [u32; PIECE as usize],
}

pub(super) struct Slots {
    pieces: Vec<Option<Box<Piece>>>,
    /// Block + 1 of each slot; 0: free.
    blocks: Vec<u32>,
    read_since: Vec<u64>,
    hand: usize,
}

impl Slots {
    pub(super) fn new(origin_blocks: u64, slots: u64) -> Self {
        assert!(origin_blocks < u64::from(u32::MAX) && slots > 0, "DATA of at most 16 TB, and an SSD");
        Self {
            pieces: (0..origin_blocks.div_ceil(PIECE)).map(|_| None).collect(),
            blocks: vec![0; slots as usize],
            read_since: vec![0; slots.div_ceil(64) as usize],
            hand: 0,
        }
    }

    /// Where a block is.
    pub(super) fn find(&self, block: u64) -> Option<u64> {
        let piece = self.pieces[(block / PIECE) as usize].as_ref()?;
        u64::from(piece.slots[(block % PIECE) as usize]).checked_sub(1)
    }

    /// A read was answered from it.
    pub(super) fn note_read(&mut self, slot: u64) {
        self.read_since[(slot / 64) as usize] |= 1 << (slot % 64);
    }

    /// The slot of a block, a new one if it has none; `dirty` blocks keep theirs.
    pub(super) fn place(&mut self, block: u64, dirty: impl Fn(u64) -> bool) -> u64 {
        if let Some(slot) = self.find(block) {
            return slot;
        }
        let slot = loop {
            let slot = self.hand;
            self.hand = (slot + 1) % self.blocks.len();
            let (word, bit) = (&mut self.read_since[slot / 64], 1_u64 << (slot % 64));
            let Some(old) = u64::from(self.blocks[slot]).checked_sub(1) else { break slot };
            if *word & bit != 0 {
                *word &= !bit;
            } else if !dirty(old) {
                self.forget(old);
                break slot;
            }
        };
        self.blocks[slot] = block as u32 + 1;
        let piece = self.pieces[(block / PIECE) as usize]
            .get_or_insert_with(|| Box::new(Piece { live: 0, slots: [0; PIECE as usize] }));
        piece.live += 1;
        piece.slots[(block % PIECE) as usize] = slot as u32 + 1;
        slot as u64
    }

    fn forget(&mut self, block: u64) {
        let place = &mut self.pieces[(block / PIECE) as usize];
        let Some(piece) = place else { return };
        piece.slots[(block % PIECE) as usize] = 0;
        piece.live -= 1;
        if piece.live == 0 {
            *place = None;
        }
    }
}
