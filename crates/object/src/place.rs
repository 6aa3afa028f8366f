// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places of pages of the map in the store.

/// Bytes of a place in the root, about.
pub(crate) const PLACE_BYTES: usize = 14;

/// Where a page was stored last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PagePlace {
    pub(crate) object: u32,
    pub(crate) at: u64,
    pub(crate) bytes: u32,
    pub(crate) crc: u32,
}
