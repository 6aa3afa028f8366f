// SPDX-License-Identifier: MIT OR Apache-2.0
//! The slots know which block of the origin is where on the SSD.
//!
//! Slots are filled in the order of their places. When all are taken, a hand goes round. It takes
//! the first slot that holds no dirty block and was not read since the hand last passed. This is
//! second chance, which decides what an LRU list does, for a bit each.

/// Blocks of a page of the map, which is there only where any of them is on the SSD: 4 MiB.
const PAGE: u64 = 1024;

struct Page {
    live: u32,
    /// Slot + 1; 0: not on the SSD.
    slots: [u32; PAGE as usize],
}

pub(super) struct Slots {
    pages: Vec<Option<Box<Page>>>,
    /// Block + 1 of each slot; 0: free.
    blocks: Vec<u32>,
    read_since: Vec<u64>,
    hand: usize,
}

impl Slots {
    pub(super) fn new(origin_blocks: u64, slots: u64) -> Self {
        assert!(origin_blocks < u64::from(u32::MAX) && slots > 0, "DATA of at most 16 TB, and an SSD");
        Self {
            pages: (0..origin_blocks.div_ceil(PAGE)).map(|_| None).collect(),
            blocks: vec![0; slots as usize],
            read_since: vec![0; slots.div_ceil(64) as usize],
            hand: 0,
        }
    }

    /// Finds the slot of a block.
    pub(super) fn find(&self, block: u64) -> Option<u64> {
        let page = self.pages[(block / PAGE) as usize].as_ref()?;
        u64::from(page.slots[(block % PAGE) as usize]).checked_sub(1)
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
        let page = self.pages[(block / PAGE) as usize]
            .get_or_insert_with(|| Box::new(Page { live: 0, slots: [0; PAGE as usize] }));
        page.live += 1;
        page.slots[(block % PAGE) as usize] = slot as u32 + 1;
        slot as u64
    }

    fn forget(&mut self, block: u64) {
        let place = &mut self.pages[(block / PAGE) as usize];
        let Some(page) = place else { return };
        page.slots[(block % PAGE) as usize] = 0;
        page.live -= 1;
        if page.live == 0 {
            *place = None;
        }
    }
}
