// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns direct I/O on where the file system can, and finds the alignment that it needs.

use std::fs::File;
use std::io;

use rustix::fs::{OFlags, StatxFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::aligned::AlignedBuf;

/// Turns direct I/O on; says the alignment it needs, or `None` if it stays off.
pub(super) fn direct(file: &File, is_block: bool, size_bytes: u64) -> io::Result<Option<u32>> {
    let flags = fcntl_getfl(file)?;
    match fcntl_setfl(file, flags | OFlags::DIRECT) {
        Ok(()) => {}
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    }
    let needed = if is_block { rustix::fs::ioctl_blksszget(file)? } else { file_alignment(file, size_bytes)? };
    // The engine could not address blocks above 4 KiB, or reach a tail that isn't a whole block.
    // Both go through the page cache (no such block device exists).
    let fits = (512..=4096).contains(&needed) && size_bytes.is_multiple_of(u64::from(needed));
    if !fits {
        fcntl_setfl(file, flags)?;
    }
    Ok(fits.then_some(needed))
}

/// What direct I/O on this regular file must be aligned to; a large number if it is not possible.
fn file_alignment(file: &File, size_bytes: u64) -> io::Result<u32> {
    // STATX_DIOALIGN (Linux 6.1: ext4, xfs, f2fs, later btrfs). Older kernels and other file
    // systems leave the bit unset: then trial reads tell.
    let asked = rustix::fs::statx(file, c"", rustix::fs::AtFlags::EMPTY_PATH, StatxFlags::from_bits_retain(DIOALIGN));
    if let Ok(stat) = asked
        && stat.stx_mask & DIOALIGN != 0
    {
        // 0 = no direct I/O on this file (encrypted, data=journal).
        return Ok(match stat.stx_dio_offset_align.max(stat.stx_dio_mem_align) {
            0 => u32::MAX,
            align => align.max(512).next_power_of_two(),
        });
    }
    let mut buf = AlignedBuf::new(8192);
    for align in [512, 4096] {
        let align_bytes = align as usize;
        if size_bytes < 2 * u64::from(align) {
            continue;
        }
        // Offset, length and address are all odd multiples.
        match rustix::io::pread(file, &mut buf[align_bytes..2 * align_bytes], u64::from(align)) {
            Ok(_) => return Ok(align),
            Err(Errno::INVAL) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(u32::MAX)
}

const DIOALIGN: u32 = 0x2000;
