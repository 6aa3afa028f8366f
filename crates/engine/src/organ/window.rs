// SPDX-License-Identifier: MIT OR Apache-2.0
//! The window's bytes: copies of blocks that were read from an origin and are not in the cache.
//!
//! Locks keep them coherent. A copy is put in while a read holds its range. Whatever changes a
//! block holds its range alone and forgets the copy first ([`RamWindow::forget`]). Neighbours,
//! which nobody locks, are put in only if nobody has asked to change them since they were read
//! ([`crate::act::neighbours`]).
//!
//! So a block is in the window or in the index, never in both (checked by `check`).

use alloc::vec::Vec;

use crate::cx::Cx;
use crate::fact::memory::{Buf, Span};
use crate::fact::types::BLOCK_BYTES;
use crate::organ::index::Flat;
use crate::policy::{Policy, Window};

/// Blocks of one buffer: 1 MiB, so that RAM is taken as it is filled.
const BUF_BLOCKS: usize = 256;

/// The window of a lane.
pub(crate) struct RamWindow {
    window: Window,
    bufs: Vec<Buf>,
}

impl RamWindow {
    pub(crate) fn new(cache_blocks: u64, lanes: u64) -> Self {
        Self { window: Window::new(cache_blocks, lanes), bufs: Vec::new() }
    }

    pub(crate) fn holds(&self, flat: Flat) -> bool {
        self.window.find(flat.0).is_some()
    }

    /// The copy of a block that is read, and whether the block came along with another one and is
    /// asked for for the first time. Then the policy is to be asked about it
    /// ([`RamWindow::stays`]).
    pub(crate) fn read(&mut self, flat: Flat, policy: &mut dyn Policy) -> Option<(Span, bool)> {
        let place = self.window.find(flat.0)?;
        let first = self.window.read(place, policy);
        Some((self.span(place), first))
    }

    /// A neighbour that was asked for stays here, seen so often.
    pub(crate) fn stays(&mut self, flat: Flat, seen: u8) {
        if let Some(place) = self.window.find(flat.0) {
            self.window.stays(place, seen);
        }
    }

    /// Whether neighbours from that unit should come here.
    pub(crate) fn wants_neighbours(&self, unit: u64) -> bool {
        self.window.wants_neighbours(unit)
    }

    /// Takes a copy of a neighbour.
    pub(crate) fn put_neighbour(&mut self, flat: Flat, from: Span, policy: &mut dyn Policy, cx: &mut Cx<'_>) {
        if let Some(put) = self.window.put_neighbour(flat.0) {
            self.take_copy(put, from, policy, cx);
        }
    }

    /// Takes a copy of a block.
    pub(crate) fn put(&mut self, flat: Flat, seen: u8, from: Span, policy: &mut dyn Policy, cx: &mut Cx<'_>) {
        match self.window.put(flat.0, seen) {
            Some(put) => self.take_copy(put, from, policy, cx),
            None => policy.left_window(flat.0, seen),
        }
    }

    fn take_copy(
        &mut self,
        (place, left): (u32, Option<(u64, u8)>),
        from: Span,
        policy: &mut dyn Policy,
        cx: &mut Cx<'_>,
    ) {
        if let Some((key, seen)) = left {
            policy.left_window(key, seen);
        }
        if place as usize / BUF_BLOCKS == self.bufs.len() {
            let blocks = (self.window.capacity() - place as usize).min(BUF_BLOCKS);
            self.bufs.push(cx.alloc_window(blocks as u32));
        }
        let to = self.span(place);
        cx.mem.copy(from, to.buf(), to.offset());
    }

    /// The blocks are written anew, or are in the cache.
    pub(crate) fn forget(&mut self, first: Flat, end: Flat) {
        self.window.forget(first.0..end.0);
    }

    pub(crate) fn flats(&self) -> impl Iterator<Item = Flat> + '_ {
        self.window.keys().map(Flat)
    }

    fn span(&self, place: u32) -> Span {
        let (buf, block) = (self.bufs[place as usize / BUF_BLOCKS], place % BUF_BLOCKS as u32);
        Span::new(buf, block * BLOCK_BYTES as u32, BLOCK_BYTES as u32)
    }

    /// Memory of the table.
    pub(crate) fn bytes(&self) -> u64 {
        self.window.bytes()
    }
}
