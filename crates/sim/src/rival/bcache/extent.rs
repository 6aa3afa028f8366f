// SPDX-License-Identifier: MIT OR Apache-2.0
//! An extent is a run of neighbouring blocks of the origin, and their place on the cache device.

/// Where some blocks of the origin are. All in blocks of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) len: u32,
    /// The place on the cache device.
    pub(super) place: u32,
    /// The bucket's generation when the extent was written.
    pub(super) generation: u32,
    pub(super) dirty: bool,
}

impl Extent {
    /// Reads or writes it.
    pub(super) const fn io(&self, read: bool) -> CacheIo {
        CacheIo { read, place: self.place, len: self.len }
    }
}

/// An I/O of the cache device, in blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheIo {
    pub(super) read: bool,
    pub(super) place: u32,
    pub(super) len: u32,
}
