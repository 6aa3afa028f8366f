// SPDX-License-Identifier: MIT OR Apache-2.0
//! A destage run: which versions of which blocks are on their way to the origin.

use alloc::vec::Vec;

use crate::fact::io::{DeviceError, DeviceId};
use crate::fact::memory::Buf;
use crate::fact::types::Time;
use crate::organ::index::Flat;
use crate::organ::reach::{FAR_RUN_BLOCKS_MAX, RUN_BLOCKS_MAX};

/// The size of the buffer for a run of so many blocks. There are two sizes: with many each size
/// would want chunks of memory of its own.
pub(crate) const fn buffer_blocks(blocks: u32) -> u32 {
    if blocks <= FAR_RUN_BLOCKS_MAX { FAR_RUN_BLOCKS_MAX } else { RUN_BLOCKS_MAX }
}

/// A destage run.
pub(crate) struct Run {
    pub(crate) first: Flat,
    /// The version of each block: the slot that it was taken from, and its checksum; no slot if
    /// that is no version any more.
    pub(crate) versions: Vec<(u32, u32)>,
    pub(crate) buf: Option<Buf>,
    /// Which member of a mirrored cache it is read from.
    pub(crate) device: DeviceId,
    pub(super) pending: u32,
    pub(super) result: Result<(), DeviceError>,
    /// How many flushes its origin had failed when its write began.
    pub(super) failed_flushes: u32,
    /// When its write began.
    pub(super) began: Time,
}

/// The end of a batch whose flush is over. It has the number of runs, how many of them have not
/// heard of the flush, and how many blocks became clean.
#[derive(Default)]
pub(super) struct Ending {
    pub(super) runs: u32,
    pub(super) left: u32,
    pub(super) cleaned: u64,
}
