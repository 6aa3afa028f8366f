// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stamp fills a sector with its place and the number of the write that put it there.
//!
//! Every byte of a sector depends on both. So a sector that is misplaced, torn, stale or made up of
//! two is told from a sound one.

/// Bytes of a sector.
pub(crate) const SECTOR: usize = flashfront_engine::SECTOR_BYTES as usize;

/// What the bytes of a sector are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Content {
    /// Zeroes.
    Zero,
    /// What the write of this number put there.
    Write(u32),
    /// Anything: the sector was discarded. As a reading: none of the others.
    Any,
}

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 27)
}

fn word(place: u64, write: u32, nth: u64) -> u64 {
    match nth {
        0 => place,
        1 => u64::from(write) | 0x57a4_0000_0000_0000,
        _ => mix(place ^ (u64::from(write) << 32) ^ nth.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
    }
}

fn place(origin: usize, sector: u64) -> u64 {
    (origin as u64) << 48 | sector
}

/// Fills the bytes of one sector with the stamp of a write.
pub fn stamp(origin: usize, sector: u64, write: u32, bytes: &mut [u8]) {
    for (nth, chunk) in bytes.chunks_exact_mut(8).enumerate() {
        chunk.copy_from_slice(&word(place(origin, sector), write, nth as u64).to_le_bytes());
    }
}

/// What the bytes of one sector are; [`Content::Any`] if they are neither zeroes nor a stamp of
/// this place.
#[must_use]
pub fn identify(origin: usize, sector: u64, bytes: &[u8]) -> Content {
    let words = |nth: usize| u64::from_le_bytes(bytes[nth * 8..nth * 8 + 8].try_into().expect("8 bytes"));
    if words(0) == 0 && words(1) == 0 && bytes.iter().all(|&byte| byte == 0) {
        return Content::Zero;
    }
    let write = words(1) as u32;
    let sound = (0..SECTOR / 8).all(|nth| words(nth) == word(place(origin, sector), write, nth as u64));
    if sound { Content::Write(write) } else { Content::Any }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_known_at_its_place_only() {
        let mut bytes = [0; SECTOR];
        assert_eq!(identify(0, 0, &bytes), Content::Zero);
        stamp(1, 77, 5, &mut bytes);
        assert_eq!(identify(1, 77, &bytes), Content::Write(5));
        assert_eq!(identify(1, 78, &bytes), Content::Any);
        assert_eq!(identify(0, 77, &bytes), Content::Any);
        bytes[511] ^= 1;
        assert_eq!(identify(1, 77, &bytes), Content::Any);
    }
}
