// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system calls of blktrace's interface (linux/blktrace_api.h, linux/fs.h).
#![expect(unsafe_code, reason = "ioctls; every block has its SAFETY comment")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

const BLKTRACESETUP: libc::c_ulong = 0xc048_1273;
const BLKTRACESTART: libc::c_ulong = 0x1274;
const BLKTRACESTOP: libc::c_ulong = 0x1275;
const BLKTRACETEARDOWN: libc::c_ulong = 0x1276;

/// `struct blk_user_trace_setup`.
#[repr(C)]
struct Setup {
    name: [u8; 32],
    act_mask: u16,
    buf_size: u32,
    buf_nr: u32,
    start_lba: u64,
    end_lba: u64,
    pid: u32,
}

const _: () = assert!(size_of::<Setup>() == 72);

/// Events of requests on their way to the scheduler, Q among them.
const QUEUE: u16 = 1 << 4;

/// Sets the trace of a device up, with `buffers` buffers of `buffer_bytes` for each processor.
/// Returns the name of its folder in debugfs.
pub(super) fn set_up(device: &File, buffer_bytes: u32, buffers: u32) -> io::Result<String> {
    let mut setup = Setup {
        name: [0; 32],
        act_mask: QUEUE,
        buf_size: buffer_bytes,
        buf_nr: buffers,
        start_lba: 0,
        end_lba: 0,
        pid: 0,
    };
    // SAFETY: the ioctl reads and writes a `struct blk_user_trace_setup`, which has 72 bytes.
    let status = unsafe { libc::ioctl(device.as_raw_fd(), BLKTRACESETUP as _, &raw mut setup) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    let end = setup.name.iter().position(|byte| *byte == 0).unwrap_or(setup.name.len());
    Ok(String::from_utf8_lossy(&setup.name[..end]).into_owned())
}

/// Lets events be noted.
pub(super) fn start(device: &File) -> io::Result<()> {
    plain(device, BLKTRACESTART)
}

/// Lets none be noted any more; full and half-full buffers can be read then.
pub(super) fn stop(device: &File) -> io::Result<()> {
    plain(device, BLKTRACESTOP)
}

/// Removes the trace with its buffers.
pub(super) fn tear_down(device: &File) -> io::Result<()> {
    plain(device, BLKTRACETEARDOWN)
}

fn plain(device: &File, request: libc::c_ulong) -> io::Result<()> {
    // SAFETY: these ioctls have no argument.
    let status = unsafe { libc::ioctl(device.as_raw_fd(), request as _) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
