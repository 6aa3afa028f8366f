// SPDX-License-Identifier: MIT OR Apache-2.0
//! The use of a chunk: for whom its buffers are, and which of them are in use.

use std::ptr::NonNull;

#[cfg(debug_assertions)]
use flashfront_engine::Buf;

#[cfg(debug_assertions)]
use super::classes::UNITS;

/// The owner of a chunk's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pool {
    Engine = 0,
    /// Front-ends: see [`Share`](super::Share).
    Passing = 1,
    Waiting = 2,
    Payload = 3,
    /// The chunk has no owner: its pages are given back, and it is in no list of free buffers.
    Nobody = 4,
}

/// Pools that have lists of free buffers.
pub(super) const POOLS: usize = 4;

/// The use of one chunk.
#[derive(Debug)]
pub(super) struct Use {
    pub(super) base: NonNull<u8>,
    pub(super) pool: Pool,
    pub(super) class: u8,
    /// Looks in a row that found it idle.
    pub(super) idle: u8,
    /// Buffers in use.
    pub(super) live: u32,
    /// The units that start a buffer in use.
    #[cfg(debug_assertions)]
    pub(super) starts: [u64; UNITS / 64],
}

// SAFETY: `base` is the address of a chunk, which is `Send`.
unsafe impl Send for Use {}
// SAFETY: as above.
unsafe impl Sync for Use {}

impl Use {
    pub(super) fn new(base: NonNull<u8>, pool: Pool, class: usize) -> Self {
        Self {
            base,
            pool,
            class: class as u8,
            idle: 0,
            live: 0,
            #[cfg(debug_assertions)]
            starts: [0; UNITS / 64],
        }
    }

    #[cfg(debug_assertions)]
    pub(super) fn is_live(&self, buf: Buf) -> bool {
        let unit = buf.0 as usize % UNITS;
        self.starts[unit / 64] >> (unit % 64) & 1 == 1
    }

    #[cfg(debug_assertions)]
    pub(super) fn flip(&mut self, buf: Buf) {
        let unit = buf.0 as usize % UNITS;
        self.starts[unit / 64] ^= 1 << (unit % 64);
    }
}
