// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes of the format: little-endian numbers, lists and texts with their length, checksums.

use crc_fast::{CrcAlgorithm, Digest};

/// Bytes of a sector, the unit of the map.
pub const SECTOR_BYTES: u64 = 512;

/// The largest volume: 1 PiB.
pub const SIZE_MAX: u64 = 1 << 50;

/// Computes the CRC-32C of some parts, one behind the other.
#[must_use]
pub fn crc(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize() as u32
}

/// Computes the checksum of stored bytes, which are for one place of the volume.
pub(crate) fn crc_at(sector: u64, stored: &[u8]) -> u32 {
    crc(&[&sector.to_le_bytes(), stored])
}

/// Bytes being written.
#[derive(Debug, Default)]
pub(crate) struct Put(pub(crate) Vec<u8>);

impl Put {
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Writes a number in as many bytes as it takes: seven bits in each, the lowest first, and the
    /// eighth bit if there are more.
    pub(crate) fn short(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.u8(value as u8)
    }

    /// Writes how far a number is from the one before, which is mostly near.
    pub(crate) fn step(&mut self, from: u64, to: u64) -> &mut Self {
        let step = to.wrapping_sub(from).cast_signed();
        self.short((step << 1 ^ step >> 63).cast_unsigned())
    }

    /// Writes the length of a list or text.
    pub(crate) fn count(&mut self, count: usize) -> &mut Self {
        self.u32(u32::try_from(count).expect("bug: a list of more than 2^32 entries"))
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.count(text.len()).bytes(text.as_bytes())
    }

    /// Puts the checksum of all bytes at this place, where zeroes are now.
    pub(crate) fn seal(mut self, at: usize) -> Vec<u8> {
        let sum = crc(&[&self.0]);
        self.0[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        self.0
    }
}

/// Says whether the checksum at this place is that of the bytes, taking itself as zero.
pub(crate) fn is_sealed(bytes: &[u8], at: usize) -> bool {
    let Some(found) = bytes.get(at..at + 4) else { return false };
    crc(&[&bytes[..at], &[0; 4], &bytes[at + 4..]]).to_le_bytes() == found
}

/// Bytes being read. Nothing of them is believed: each read may find that they have ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Take<'a>(pub(crate) &'a [u8]);

impl<'a> Take<'a> {
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|it| it[0])
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn short(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            value |= bits << shift;
            if bits << shift >> shift != bits {
                return None;
            }
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn short_u32(&mut self) -> Option<u32> {
        self.short()?.try_into().ok()
    }

    /// Reads a number that is near the one before.
    pub(crate) fn step(&mut self, from: u64) -> Option<u64> {
        let step = self.short()?;
        Some(from.wrapping_add(step >> 1 ^ (step & 1).wrapping_neg()))
    }

    pub(crate) fn step_u32(&mut self, from: u32) -> Option<u32> {
        self.step(from.into())?.try_into().ok()
    }

    /// Reads the length of a list whose entries have at least so many bytes. A length that can't be
    /// is an end.
    pub(crate) fn count(&mut self, entry_bytes: usize) -> Option<usize> {
        let count = self.u32()? as usize;
        (count.checked_mul(entry_bytes)? <= self.0.len()).then_some(count)
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        let len = self.count(1)?;
        String::from_utf8(self.bytes(len)?.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_numbers_and_steps_are_read_as_they_were_written() {
        let edges = [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::from(u32::MAX), 1 << 62, 1 << 63, u64::MAX - 1, u64::MAX];
        for from in edges {
            for to in edges {
                let mut put = Put::default();
                put.short(to).step(from, to);
                let mut take = Take(&put.0);
                assert_eq!((take.short(), take.step(from)), (Some(to), Some(to)), "{from} to {to}");
                assert!(take.0.is_empty());
                (0..put.0.len()).for_each(|len| {
                    let mut take = Take(&put.0[..len]);
                    assert!(take.short().and_then(|_| take.step(from)).is_none(), "cut at {len}");
                });
            }
        }
        let bytes = |value: u64| Put::default().short(value).0.len();
        assert_eq!([bytes(0x7f), bytes(0x80), bytes(u64::MAX)], [1, 2, 10]);
        assert_eq!(Take(&[0xff; 11]).short(), None, "no number has so many bytes");
        assert_eq!(Take(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).short(), None, "more than 64 bits");
        assert_eq!(Take(&[0xff, 0xff, 0xff, 0xff, 0x10]).short_u32(), None, "more than 32 bits");
    }
}
