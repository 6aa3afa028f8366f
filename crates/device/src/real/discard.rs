// SPDX-License-Identifier: MIT OR Apache-2.0
//! BLKDISCARD: tells a block device that nothing in a range is needed any more (TRIM, UNMAP).
//!
//! What the range reads as afterwards is the device's affair. The one ioctl that rustix doesn't
//! have.
#![expect(unsafe_code, reason = "an ioctl")]

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::io::Errno;

use super::file::DeviceFile;

/// Bytes that are discarded by one call: it can't be interrupted, and a slow device takes seconds
/// for some GiB.
const STEP_BYTES: u64 = 1 << 30;

/// Discards whole logical blocks of a block device; says whether the device can.
///
/// # Errors
/// When it can, and it failed. A regular file can't, by this way.
pub fn discard(device: &DeviceFile, offset: u64, len: u64) -> std::io::Result<bool> {
    let end = offset + len;
    for at in (offset..end).step_by(STEP_BYTES as usize) {
        let bytes = (end - at).min(STEP_BYTES);
        if let Some(remote) = device.remote() {
            if !remote.discard(at, bytes)? {
                return Ok(false);
            }
            continue;
        }
        let Some(file) = device.file() else { return Ok(false) };
        match blkdiscard(file, at, bytes) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(true)
}

/// The ioctl itself.
pub(super) fn blkdiscard(file: &File, offset: u64, len: u64) -> Result<(), Errno> {
    // linux/fs.h: #define BLKDISCARD _IO(0x12,119), argument uint64_t range[2].
    const BLKDISCARD: libc::c_ulong = 0x1277;
    let range = [offset, len];
    // SAFETY: the ioctl reads two u64 from the pointer.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), BLKDISCARD as _, &raw const range) };
    if status == 0 { Ok(()) } else { Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)) }
}
