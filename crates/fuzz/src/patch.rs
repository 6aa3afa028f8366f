// SPDX-License-Identifier: MIT OR Apache-2.0
//! Damage to a cache: fields changed, blocks copied, zeroed or rotten. If the input says so, the
//! checksum is made to fit, since no mutation would find a fitting checksum by itself.

use std::collections::BTreeMap;

use flashfront_engine::format::CheckpointHeader;

use crate::bytes::Bytes;
use crate::cache::{BLOCK, Cache, Kind};

/// The most changes of one input.
const PATCHES_MAX: u64 = 12;
/// Numbers near limits.
const EDGES: [u64; 8] = [0, 1, 7, 0x7fff_ffff, 0xffff_ffff, 1 << 32, 1 << 63, u64::MAX];

/// A damaged cache.
pub(crate) struct Damaged {
    pub(crate) cache: &'static Cache,
    /// Blocks that differ from the cache's: first byte, content.
    pub(crate) blocks: Vec<(usize, Vec<u8>)>,
    /// Whether checksums may fit that the engine never made. Then the engine's answer proves
    /// nothing.
    pub(crate) forged: bool,
}

impl Damaged {
    /// Damages one of these caches as the input says.
    pub(crate) fn new(caches: &'static [Cache], bytes: &mut Bytes<'_>) -> Self {
        let cache = &caches[bytes.below(caches.len() as u64) as usize];
        let mut blocks: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        let mut forged = false;
        for _ in 0..bytes.below(PATCHES_MAX + 1) {
            let what = bytes.u8();
            let (kind, at) = place(cache, bytes);
            let mut block = content(cache, &blocks, at);
            match what & 7 {
                0..=4 => change_field(&mut block, what, bytes),
                5 => block = content(cache, &blocks, place(cache, bytes).1),
                6 => block.fill(0),
                _ => block[bytes.below(BLOCK as u64) as usize] ^= 1 << bytes.below(8),
            }
            if what & 8 == 0 {
                fit_checksum(&mut block, kind);
                forged |= is_forged(cache, &block, &blocks);
            }
            blocks.insert(at, block);
        }
        Self { cache, blocks: blocks.into_iter().collect(), forged }
    }

    /// The whole device.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.cache.bytes.clone();
        for (at, block) in &self.blocks {
            bytes[*at..*at + BLOCK].copy_from_slice(block);
        }
        bytes
    }
}

/// Picks a block to be changed: its kind, and where it is.
fn place(cache: &Cache, bytes: &mut Bytes<'_>) -> (Kind, usize) {
    // Most mistakes can be made about the log, so it comes most often.
    let kinds = [
        Kind::Commit,
        Kind::CheckpointHead,
        Kind::Commit,
        Kind::CheckpointBody,
        Kind::Commit,
        Kind::Superblock,
        Kind::Other,
        Kind::CheckpointHead,
        Kind::Table,
    ];
    let of_kind = cache.of_kind(bytes.pick(&kinds));
    let all = if of_kind.is_empty() { &cache.blocks } else { of_kind };
    bytes.pick(all)
}

fn content(cache: &Cache, blocks: &BTreeMap<usize, Vec<u8>>, at: usize) -> Vec<u8> {
    blocks.get(&at).cloned().unwrap_or_else(|| cache.bytes[at..at + BLOCK].to_vec())
}

/// Changes a number of 1, 2, 4 or 8 bytes: to another number, or a little up or down.
fn change_field(block: &mut [u8], what: u8, bytes: &mut Bytes<'_>) {
    let width = 1 << (what >> 4 & 3);
    // The fixed parts of all structures are at the beginning; the superblock's is the longest, with
    // 104 bytes.
    let at = if what >> 6 & 1 == 0 { usize::from(bytes.u8()) } else { usize::from(bytes.u16()) };
    let at = at % (BLOCK / width) * width;
    let field = &mut block[at..at + width];
    let mut old = [0; 8];
    old[..width].copy_from_slice(field);
    let old = u64::from_le_bytes(old);
    let new = match what & 7 {
        0 | 1 => bytes.number(width),
        2 => old.wrapping_add_signed(i64::from(bytes.u8() as i8)),
        3 => bytes.pick(&EDGES),
        _ => bytes.pick(&EDGES).wrapping_sub(u64::from(bytes.u8())),
    };
    field.copy_from_slice(&new.to_le_bytes()[..width]);
}

/// Makes the checksum of a structure fit. Each structure has its checksum in its first block, as
/// docs/internals/format.md says.
pub(crate) fn fit_checksum(block: &mut [u8], kind: Kind) {
    let at = match kind {
        Kind::Superblock => 12,
        Kind::Commit | Kind::CheckpointHead | Kind::Table => 4,
        Kind::CheckpointBody => 0,
        Kind::Other => return,
    };
    block[at..at + 4].fill(0);
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, block) as u32;
    block[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

fn is_forged(cache: &Cache, block: &[u8], blocks: &BTreeMap<usize, Vec<u8>>) -> bool {
    if let Some(head) = CheckpointHeader::decode(block) {
        // Fewer bits of each checksum prove less.
        return head.checksum_bits != 32;
    }
    let heads = cache.of_kind(Kind::CheckpointHead).iter();
    let heads = heads.filter_map(|(_, at)| CheckpointHeader::decode(&content(cache, blocks, *at)));
    heads.map(|head| head.generation).any(|generation| cache.is_forged(block, generation))
}
