// SPDX-License-Identifier: MIT OR Apache-2.0
//! The places that a file's data has on the device of its file system, and which file system that
//! is.
#![expect(unsafe_code, reason = "an ioctl")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// Extents that one call tells of.
const EXTENTS: usize = 128;

/// `struct fiemap_extent` of linux/fiemap.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

/// `struct fiemap`, with room for extents.
#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Extent; EXTENTS],
}

/// The file is written back first, so that its data has places.
const FLAG_SYNC: u32 = 1;
/// The extent is the last one of the file.
const LAST: u32 = 1;
/// The extent has no place yet, its data lies among metadata, or it was never written.
const PLACELESS: u32 = 0x2 | 0x4 | 0x200 | 0x400 | 0x800;

/// The places of a file's data, in bytes of its file system's device, in the order of the file.
///
/// Which file systems tell places of their device, and not others, the caller must know.
///
/// # Errors
/// The file system has no such call, or it failed.
pub fn places_of(file: &File) -> io::Result<Vec<Range<u64>>> {
    // linux/fs.h: #define FS_IOC_FIEMAP _IOWR('f', 11, struct fiemap), whose size is without
    // extents.
    const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;
    let (mut places, mut start) = (Vec::new(), 0);
    loop {
        let mut map = Fiemap {
            start,
            length: u64::MAX - start,
            flags: FLAG_SYNC,
            mapped: 0,
            count: EXTENTS as u32,
            reserved: 0,
            extents: [Extent::default(); EXTENTS],
        };
        // SAFETY: the ioctl writes a `struct fiemap` and at most `count` extents behind it, for
        // which the array has room.
        let status = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP as _, &raw mut map) };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
        let extents = &map.extents[..EXTENTS.min(map.mapped as usize)];
        let placed = extents.iter().filter(|it| it.flags & PLACELESS == 0);
        places.extend(placed.map(|it| it.physical..it.physical.saturating_add(it.length)));
        match extents.last() {
            Some(last) if last.flags & LAST == 0 && last.length > 0 => start = last.logical + last.length,
            _ => return Ok(places),
        }
    }
}

/// The UUID of a file's file system. `None`: the kernel does not tell it (before Linux 6.9), or the
/// file system has none.
pub fn uuid_of(file: &File) -> Option<[u8; 16]> {
    // linux/fs.h: #define FS_IOC_GETFSUUID _IOR(0x15, 0, struct fsuuid2)
    const FS_IOC_GETFSUUID: libc::c_ulong = 0x8011_1500;
    /// `struct fsuuid2`.
    #[repr(C)]
    struct FsUuid {
        len: u8,
        uuid: [u8; 16],
    }
    let mut found = FsUuid { len: 0, uuid: [0; 16] };
    // SAFETY: the ioctl writes a `struct fsuuid2`, which is 17 bytes long.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_GETFSUUID as _, &raw mut found) };
    (status == 0 && found.len == 16).then_some(found.uuid)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const _: () = assert!(size_of::<Extent>() == 56 && size_of::<Fiemap>() == 32 + 56 * EXTENTS);

    #[test]
    fn a_file_with_data_has_places_or_the_file_system_has_no_such_call() {
        let folder = tempfile::tempdir_in(".").unwrap();
        let mut file = File::create(folder.path().join("x")).unwrap();
        file.write_all(&[7; 128 << 10]).unwrap();
        if let Ok(places) = places_of(&file) {
            let bytes: u64 = places.iter().map(|it| it.end - it.start).sum();
            assert!(bytes >= 128 << 10, "{places:?}");
        }
        let (pipe, _end) = io::pipe().unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(pipe));
        assert!(places_of(&pipe).is_err() && uuid_of(&pipe).is_none());
    }
}
