// SPDX-License-Identifier: MIT OR Apache-2.0
//! Zeroes to write: one buffer for whole blocks, and one block for each ragged end.

use alloc::vec::Vec;

use crate::cx::{Cx, blocks_span};
use crate::fact::memory::Buf;
use crate::fact::types::BLOCK_BYTES;
use crate::organ::active::Range;
use crate::organ::piece::PieceKind;
use crate::organ::places::Places;

/// Zeroes up to this length are written into the cache like data; longer ones go to the origin.
pub(crate) const CACHED_BYTES_MAX: u64 = 64 << 10;
pub(crate) const WHOLE_BLOCKS: u32 = (CACHED_BYTES_MAX / BLOCK_BYTES) as u32;
/// Ragged ends at a time: 1 MiB of blocks. A disk completes some hundred a second.
pub(crate) const RAGGED_MAX: u32 = 256;

/// Zeroes to write.
pub(crate) struct Zeroes {
    /// [`CACHED_BYTES_MAX`] of them, which nobody changes, and how many requests use them.
    pub(crate) whole: Option<Buf>,
    pub(crate) users: usize,
    /// Blocks for ragged ends in use, and requests that wait for such blocks.
    pub(crate) ragged: Places<(usize, Zeroed)>,
}

/// What a request wants zeroed.
#[derive(Clone, Copy)]
pub(crate) struct Zeroed {
    pub(crate) range: Range,
    /// [`PieceKind::Zero`] or [`PieceKind::Punch`].
    pub(crate) kind: PieceKind,
    pub(crate) fua: bool,
}

/// What a request uses.
#[derive(Default)]
pub(crate) struct Used {
    /// Blocks for ragged ends.
    pub(crate) ragged: Vec<Buf>,
    /// The buffer for whole blocks.
    pub(crate) whole: bool,
}

impl Zeroes {
    pub(crate) fn new(origins: usize) -> Self {
        Self { whole: None, users: 0, ragged: Places::new(RAGGED_MAX, origins) }
    }

    /// A request of this origin is over that used these.
    /// There is one origin more.
    pub(crate) fn add_origin(&mut self) {
        self.ragged.add_origin();
    }

    pub(crate) fn give_back(&mut self, origin: usize, used: Used, cx: &mut Cx<'_>) {
        self.ragged.give_back(origin, used.ragged.len() as u32);
        used.ragged.into_iter().for_each(|buf| cx.free(buf, 1));
        self.users -= usize::from(used.whole);
        if let Some(buf) = self.whole.filter(|_| self.users == 0) {
            cx.free(buf, WHOLE_BLOCKS);
            self.whole = None;
        }
    }

    pub(crate) fn whole_blocks(&mut self, cx: &mut Cx<'_>) -> Buf {
        *self.whole.get_or_insert_with(|| {
            let buf = cx.alloc(WHOLE_BLOCKS);
            cx.mem.zero(blocks_span(buf, 0, WHOLE_BLOCKS));
            buf
        })
    }
}
