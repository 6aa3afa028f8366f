// SPDX-License-Identifier: MIT OR Apache-2.0
//! The RAM front of a lane: copies of blocks that were read from the cache device, by slot.
//!
//! The bytes of a slot never change until its segment is written anew. So nothing has to be kept
//! coherent with writes. A rewritten block gets another slot, and [`RamFront::forget`] is called
//! when a commit opens over old slots. Copies are taken after verification (invariant 5).
//!
//! The front is set-associative: a slot has eight places, in one cache line of tags. Neighbouring
//! slots fall into neighbouring sets, so blocks that were written together never crowd a set.
//! Within a set the CLOCK of Corbato (1968) chooses. A copy that was not used since the hand last
//! passed goes first. So a scan pushes out blocks that were read once before blocks that were read
//! again.

use alloc::vec::Vec;

use crate::cx::Cx;
use crate::fact::memory::Buf;
use crate::fact::types::BLOCK_BYTES;
use crate::format::NO_SLOT;

const WAYS: usize = 8;
/// Blocks of one buffer: 1 MiB, so that RAM is taken as it is filled.
const BUF_BLOCKS: usize = 256;

/// A set lies in a cache line of its own. Without the alignment half of all sets would lie in two.
#[derive(Clone)]
#[repr(align(64))]
struct Set {
    slots: [u32; WAYS],
    /// Which slots were used since the hand passed, one bit each.
    used: u8,
    hand: u8,
}

/// Copies of blocks in RAM.
pub(crate) struct RamFront {
    sets: Vec<Set>,
    /// The copies' bytes: set after set, way after way.
    bufs: Vec<Option<Buf>>,
}

impl RamFront {
    /// Makes room for `bytes` bytes at most; none for 0.
    pub(crate) fn new(bytes: u64) -> Self {
        let sets = (bytes / (BLOCK_BYTES * WAYS as u64)) as usize;
        let bufs = (sets * WAYS).div_ceil(BUF_BLOCKS);
        Self {
            sets: alloc::vec![Set { slots: [NO_SLOT; WAYS], used: 0, hand: 0 }; sets],
            bufs: alloc::vec![None; bufs],
        }
    }

    /// Whether the front has no room at all.
    pub(crate) const fn is_none(&self) -> bool {
        self.sets.is_empty()
    }

    fn find(&self, slot: u32) -> Option<(usize, usize)> {
        if self.sets.is_empty() {
            return None;
        }
        let set = slot as usize % self.sets.len();
        let way = self.sets[set].slots.iter().position(|it| *it == slot)?;
        Some((set, way))
    }

    fn place(&self, set: usize, way: usize) -> Option<(Buf, u32)> {
        let block = set * WAYS + way;
        let buf = self.bufs[block / BUF_BLOCKS]?;
        Some((buf, (block % BUF_BLOCKS) as u32 * BLOCK_BYTES as u32))
    }

    /// The buffer and the byte where the copy of a slot begins, if there is one.
    pub(crate) fn get(&mut self, slot: u32) -> Option<(Buf, u32)> {
        let (set, way) = self.find(slot)?;
        self.sets[set].used |= 1 << way;
        self.place(set, way)
    }

    /// Where the copy of a slot is, without saying that it is used.
    pub(crate) fn peek(&self, slot: u32) -> Option<(Buf, u32)> {
        let (set, way) = self.find(slot)?;
        self.place(set, way)
    }

    /// The tags that a look for the copy of a slot begins with.
    pub(crate) fn looks_at(&self, slot: u32) -> Option<&[u32; WAYS]> {
        let set = (slot as usize).checked_rem(self.sets.len())?;
        Some(&self.sets[set].slots)
    }

    /// Whether there is a copy of a slot.
    pub(crate) fn holds(&self, slot: u32) -> bool {
        self.find(slot).is_some()
    }

    /// A place for the copy of a slot, which the caller fills now. `None`: there is no front, or it
    /// has that copy.
    pub(crate) fn take(&mut self, slot: u32, cx: &mut Cx<'_>) -> Option<(Buf, u32)> {
        if self.sets.is_empty() || self.holds(slot) {
            return None;
        }
        let nth = slot as usize % self.sets.len();
        let set = &mut self.sets[nth];
        let way = loop {
            let way = usize::from(set.hand);
            let free = set.slots[way] == NO_SLOT || set.used & 1 << way == 0;
            set.used &= !(1 << way);
            set.hand = (set.hand + 1) % WAYS as u8;
            if free {
                break way;
            }
        };
        set.slots[way] = slot;
        let buf = (nth * WAYS + way) / BUF_BLOCKS;
        if self.bufs[buf].is_none() {
            let blocks = (self.sets.len() * WAYS - buf * BUF_BLOCKS).min(BUF_BLOCKS);
            self.bufs[buf] = Some(cx.alloc_ram_front(blocks as u32));
        }
        self.place(nth, way)
    }

    /// Forgets the copies of slots that will be written anew.
    pub(crate) fn forget(&mut self, slots: core::ops::Range<u32>) {
        if self.sets.is_empty() {
            return;
        }
        for slot in slots {
            if let Some((set, way)) = self.find(slot) {
                self.sets[set].slots[way] = NO_SLOT;
            }
        }
    }

    /// Memory of the tags.
    pub(crate) fn bytes(&self) -> u64 {
        (self.sets.len() * size_of::<Set>()) as u64
    }
}
