// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells a blank device from one with data that no magic number names. That may be a raw database,
//! an archive, or a disk that is encrypted without a header.
//!
//! A device is blank if it holds zeroes, or what [`void`] wrote. Of a large device parts are read:
//! the head, the tail, and pieces of the rest at even distances. So data that covers less than a
//! 4,096th of the device may be missed, but not in its head or tail.

use std::io;

use super::WINDOW_BYTES;
use crate::real::DeviceFile;

/// A device of this size is read as a whole; of a larger one this is the head.
const HEAD_BYTES: u64 = 64 << 20;
const TAIL_BYTES: u64 = 16 << 20;
/// Pieces of the rest, and their size: 64 MiB in all.
const PIECES: u64 = 4096;
const PIECE_BYTES: u64 = 16 << 10;
/// Bytes of one read.
const READ_BYTES: u64 = 1 << 20;
/// The head of a device that a cache has left. It is filled with this line.
const LEFT: &[u8; 64] = b"Flashfront: a cache has left this device, all of it is free now\n";

/// Fills the head of a device that a cache leaves. Nothing on it is worth keeping from now on.
///
/// Any other use of the device overwrites some of these bytes, and so takes the word back.
///
/// # Errors
/// As writing does.
pub fn void(device: &DeviceFile) -> io::Result<()> {
    device.write_at(0, &LEFT.repeat(WINDOW_BYTES as usize / LEFT.len()))
}

/// Where the first data lies; nothing if the device is blank as far as it is looked at.
///
/// A part that can't be read counts as blank: `probe_device` tells of it where it matters.
#[must_use]
pub fn first_data(device: &DeviceFile) -> Option<u64> {
    let size = device.geometry().size_bytes;
    let mut bytes = vec![0; READ_BYTES as usize];
    if is_void(device) {
        return None;
    }
    let zeroes = vec![0; READ_BYTES as usize];
    let parts = parts(size);
    parts.into_iter().find_map(|(start, end)| {
        (start..end).step_by(READ_BYTES as usize).find_map(|at| {
            let len = READ_BYTES.min(end - at) as usize;
            device.read_at(at, &mut bytes[..len]).ok()?;
            if bytes[..len] == zeroes[..len] {
                return None;
            }
            bytes[..len].iter().position(|byte| *byte != 0).map(|nth| at + nth as u64)
        })
    })
}

/// The parts of a device that are looked at.
fn parts(size: u64) -> Vec<(u64, u64)> {
    let (head, tail) = (size.min(HEAD_BYTES), size.saturating_sub(TAIL_BYTES));
    if tail <= head {
        return vec![(0, size)];
    }
    let step = (tail - head) / PIECES;
    if step <= PIECE_BYTES {
        return vec![(0, size)];
    }
    let pieces = (0..PIECES).map(|nth| head + nth * step / 4096 * 4096).map(|at| (at, at + PIECE_BYTES));
    [(0, head)].into_iter().chain(pieces).chain([(tail, size)]).collect()
}

fn is_void(device: &DeviceFile) -> bool {
    let mut head = vec![0; WINDOW_BYTES as usize];
    device.read_at(0, &mut head).is_ok() && head.chunks_exact(LEFT.len()).all(|line| line == LEFT)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::real::Access;

    const MIB: u64 = 1 << 20;

    fn with(size: u64, data: &[(u64, &[u8])]) -> (tempfile::TempDir, DeviceFile) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let file = File::create(&path).unwrap();
        file.set_len(size).unwrap();
        data.iter().for_each(|(at, bytes)| file.write_all_at(bytes, *at).unwrap());
        (folder, DeviceFile::open(&path, Access::Exclusive).unwrap())
    }

    #[test]
    fn zeroes_are_blank_and_a_byte_anywhere_in_a_small_device_is_data() {
        for size in [MIB, 100 * MIB, 1 << 40] {
            assert_eq!(first_data(&with(size, &[]).1), None, "{size}");
        }
        let size = 100 * MIB;
        for at in [0, 1, MIB - 1, 10 * MIB + 4097, HEAD_BYTES, size - TAIL_BYTES - 1, size - 1] {
            assert_eq!(first_data(&with(size, &[(at, &[1])]).1), Some(at));
        }
    }

    #[test]
    fn a_share_of_a_large_device_is_seen() {
        let size = 1_u64 << 40;
        for at in [HEAD_BYTES - 1, size - TAIL_BYTES, size - 1] {
            assert_eq!(first_data(&with(size, &[(at, &[1])]).1), Some(at));
        }
        // A 4,096th of it lies over a piece, wherever it begins.
        let stretch = size / PIECES;
        for at in [HEAD_BYTES, size / 3, size / 2 + 12345, size - TAIL_BYTES - stretch - PIECE_BYTES] {
            let parts = parts(size);
            assert!(parts.iter().any(|(start, end)| *start >= at && *end <= at + stretch + PIECE_BYTES), "{at}");
        }
    }

    #[test]
    fn what_a_cache_has_left_is_blank_until_somebody_writes_into_its_head() {
        let (_folder, device) = with(8 * MIB, &[(5 * MIB, b"a block of a cache that has left")]);
        assert_eq!(first_data(&device), Some(5 * MIB));
        void(&device).unwrap();
        assert_eq!(first_data(&device), None);
        device.write_at(65536, &[7; 4096]).unwrap();
        assert_eq!(first_data(&device), Some(0));
    }
}
