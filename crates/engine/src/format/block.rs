// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all structures of the cache device have in common: blocks, their checksum, texts, numbers.

use alloc::string::String;

use crate::fact::types::BLOCK_BYTES;

/// The first number that is no count. Commits, openings, checkpoints and updates are counted from
/// 0. A number from here on is damage whose checksum happens to fit, or a forgery. Code that adds 1
/// to a smaller number need not think of the end.
pub const NUMBER_MAX: u64 = 1 << 62;

pub(super) const BLOCK_LEN: usize = BLOCK_BYTES as usize;

/// CRC-32C (Castagnoli; RFC 3720). A table is fast enough for one block in a commit of 252.
static CRC32C: crc::Crc<u32, crc::Table<16>> = crc::Crc::<u32, crc::Table<16>>::new(&crc::CRC_32_ISCSI);

/// CRC-32C of a block whose own 4-byte CRC field at `field` is taken as zero.
pub(super) fn block_crc(block: &[u8], field: usize) -> u32 {
    let mut digest = CRC32C.digest();
    digest.update(&block[..field]);
    digest.update(&[0; 4]);
    digest.update(&block[field + 4..]);
    digest.finalize()
}

/// The text before the first zero.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Puts a text, cut to whole characters, before zeroes.
pub(super) fn put_text(to: &mut [u8], from: &str) {
    let mut end = from.len().min(to.len());
    while !from.is_char_boundary(end) {
        end -= 1;
    }
    to[..end].copy_from_slice(&from.as_bytes()[..end]);
}
