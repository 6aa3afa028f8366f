// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and writes the superblocks of a cache device, as a daemon does before the engine opens.

use flashfront_device::Device;
use flashfront_device::sim::RamDisk;
use flashfront_engine::BLOCK_BYTES;
use flashfront_engine::format::Superblock;

/// Reads the newest sound copy of a superblock, with its table of volumes.
pub(super) fn read_superblock(cache: &RamDisk) -> Option<Superblock> {
    let read = |offset| {
        let mut block = vec![0; BLOCK_BYTES as usize];
        cache.peek(offset, &mut block);
        Superblock::decode(&block).ok()
    };
    let copies = Superblock::offsets(cache.geometry().size_bytes).map(read);
    let mut newest = copies.into_iter().flatten().max_by_key(|copy| copy.update)?;
    let table = newest.read_table(|offset, block| {
        cache.peek(offset, block);
        Ok::<(), ()>(())
    });
    table.is_ok().then_some(newest)
}

/// Writes both copies of a member's superblock.
pub(super) fn write_superblock(cache: &mut RamDisk, superblock: &Superblock, member: u8) {
    let mut superblock = superblock.clone();
    superblock.pairing.member = member;
    if let Some((offset, bytes)) = superblock.encode_table() {
        cache.poke(offset, &bytes);
    }
    for offset in Superblock::offsets(superblock.cache_bytes) {
        cache.poke(offset, &superblock.encode());
    }
}
