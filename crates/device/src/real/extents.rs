// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the holes of a file by SEEK_HOLE and SEEK_DATA.
//!
//! These calls may sleep, as long as the file system does: the engine's thread never makes them.
//! They set the file's position, which no other code uses. A block device has no such calls, and
//! some file systems haven't, either: the answer is an error, or all data.

use std::fs::File;

use flashfront_engine::{Extent, SECTOR_BYTES, put_extents};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Writes a list of the extents of `len` bytes at `offset`, as far as there is room in `into`.
pub(super) fn map(file: &File, offset: u64, len: u64, into: &mut [u8]) -> Result<(), Errno> {
    let end = offset + len;
    // Behind the end of a file that has become shorter nothing can be read.
    if (rustix::fs::fstat(file)?.st_size as u64) < end {
        return Err(Errno::IO);
    }
    let mut error = None;
    let mut at = offset;
    let next = std::iter::from_fn(|| {
        if at >= end {
            return None;
        }
        match extent(file, at, end) {
            Ok(extent) => {
                at += extent.bytes;
                Some(extent)
            }
            Err(errno) => {
                error = Some(errno);
                None
            }
        }
    });
    put_extents(into, next);
    error.map_or(Ok(()), Err)
}

/// The extent that begins at `at`. A hole has no part of a sector.
fn extent(file: &File, at: u64, end: u64) -> Result<Extent, Errno> {
    let data = match seek(file, SeekFrom::Data(at)) {
        Ok(data) => data.min(end) / SECTOR_BYTES * SECTOR_BYTES,
        // ENXIO: no data from here to the end of the file.
        Err(Errno::NXIO) => end,
        Err(errno) => return Err(errno),
    };
    if data > at {
        return Ok(Extent { bytes: data - at, hole: true });
    }
    let hole = seek(file, SeekFrom::Hole(at))?.next_multiple_of(SECTOR_BYTES).min(end);
    // A hole that was made since would be found the next time.
    Ok(Extent { bytes: hole.max(at + SECTOR_BYTES) - at, hole: false })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use flashfront_engine::extents;
    use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};

    use super::*;

    const fn hole(bytes: u64) -> Extent {
        Extent { bytes, hole: true }
    }

    const fn data(bytes: u64) -> Extent {
        Extent { bytes, hole: false }
    }

    fn mapped(file: &File, offset: u64, len: u64, room: usize) -> Vec<Extent> {
        let mut list = vec![0xff; room * 8];
        map(file, offset, len, &mut list).unwrap();
        extents(&list).collect()
    }

    #[test]
    fn holes_of_a_file_are_found() {
        let file = File::from(memfd_create("map", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(1 << 20).unwrap();
        assert_eq!(mapped(&file, 0, 1 << 20, 4), [hole(1 << 20)]);
        file.write_all_at(&[7; 8192], 65536).unwrap();
        file.write_all_at(&[7; 4096], (1 << 20) - 4096).unwrap();
        let all = [hole(65536), data(8192), hole((1 << 20) - 65536 - 12288), data(4096)];
        assert_eq!(mapped(&file, 0, 1 << 20, 8), all);
        assert_eq!(mapped(&file, 0, 1 << 20, 2), all[..2], "as many as there is room for");
        assert_eq!(mapped(&file, 66048, 512, 8), [data(512)]);
        assert_eq!(mapped(&file, 512, 66048, 8), [hole(65024), data(1024)]);
        fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 65536, 4096).unwrap();
        assert_eq!(mapped(&file, 65536, 8192, 8), [hole(4096), data(4096)]);
    }

    #[test]
    fn what_has_no_holes_says_so() {
        let (pipe, _end) = std::io::pipe().unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(pipe));
        assert!(map(&pipe, 0, 512, &mut [0; 64]).is_err());
        let file = File::from(memfd_create("short", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(512).unwrap();
        assert_eq!(map(&file, 0, 1024, &mut [0; 64]), Err(Errno::IO), "a file that became shorter");
    }
}
