// SPDX-License-Identifier: MIT OR Apache-2.0
//! The features and the configuration space of virtio-blk, by which a guest knows its disk.
//!
//! Offsets are those of `struct virtio_blk_config` in the virtio 1.2 specification, section 5.2.4.

use flashfront_engine::{BLOCK_BYTES, SECTOR_BYTES};
use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ, VIRTIO_BLK_F_RO,
    VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_SIZE_MAX, VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_WRITE_ZEROES,
};
use virtio_bindings::bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

use super::super::Export;
use super::limits::{QUEUES_MAX, RANGE_SECTORS_MAX, RANGES_MAX, SEGMENT_BYTES_MAX, SEGMENTS_MAX};

/// The longest part of the space that can be asked for (VHOST_USER_MAX_CONFIG_SIZE).
const SPACE_BYTES: usize = 256;

/// The bit of a feature.
pub(super) const fn bit(feature: u32) -> u64 {
    1 << feature
}

/// The features that are offered for a volume, without the bits of vhost-user itself.
///
/// VIRTIO_BLK_F_CONFIG_WCE, by which a guest may switch the write cache off, is not offered. QEMU
/// asks for the configuration once, before it says which features are taken. It never says again
/// what the guest has chosen: neither to the next daemon nor after a reset. A guest could then
/// believe that there is no write cache, and send no FLUSH to a daemon that waits for one. Without
/// the feature FLUSH alone says that there is one (test:
/// `a_guest_is_told_of_the_write_cache_by_flush_alone`).
pub(super) fn features(export: &Export) -> u64 {
    let read_only = if export.read_only { bit(VIRTIO_BLK_F_RO) } else { 0 };
    let always = [
        VIRTIO_BLK_F_SIZE_MAX,
        VIRTIO_BLK_F_SEG_MAX,
        VIRTIO_BLK_F_BLK_SIZE,
        VIRTIO_BLK_F_TOPOLOGY,
        VIRTIO_BLK_F_FLUSH,
        VIRTIO_BLK_F_MQ,
        VIRTIO_BLK_F_DISCARD,
        VIRTIO_BLK_F_WRITE_ZEROES,
        VIRTIO_RING_F_INDIRECT_DESC,
        VIRTIO_RING_F_EVENT_IDX,
        VIRTIO_F_VERSION_1,
    ];
    always.into_iter().map(bit).fold(read_only, |all, one| all | one)
}

/// The configuration space.
pub(super) fn space(export: &Export) -> [u8; SPACE_BYTES] {
    let mut space = [0; SPACE_BYTES];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    let blocks = (BLOCK_BYTES / u64::from(export.block_bytes)) as u32;
    put(0, &(export.size_bytes / SECTOR_BYTES).to_le_bytes());
    put(8, &SEGMENT_BYTES_MAX.to_le_bytes());
    put(12, &SEGMENTS_MAX.to_le_bytes());
    put(20, &export.block_bytes.to_le_bytes());
    // Topology: 4 KiB is the unit of the cache, and the least that is written at once.
    put(24, &[blocks.trailing_zeros() as u8]);
    put(26, &(blocks as u16).to_le_bytes());
    // A write cache, for a client that looks though the feature isn't there.
    put(32, &[1]);
    put(34, &(QUEUES_MAX as u16).to_le_bytes());
    for at in [36, 48] {
        put(at, &RANGE_SECTORS_MAX.to_le_bytes());
        put(at + 4, &RANGES_MAX.to_le_bytes());
    }
    // A discard of less than a block changes nothing.
    put(44, &((BLOCK_BYTES / SECTOR_BYTES) as u32).to_le_bytes());
    put(56, &[1]);
    space
}
