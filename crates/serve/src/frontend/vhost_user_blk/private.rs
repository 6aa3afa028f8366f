// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds out whether a client has mapped its memory for itself alone, as QEMU does without
//! `share=on`.
//!
//! The daemon would then see another memory than the guest: no request would ever arrive, and no
//! message would say why. A client of another user, or in another pid namespace, can't be looked
//! at. Its memory is taken for shared.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;

/// The advice for a user.
const WHAT_TO_DO: &str = "the client maps its memory for itself alone, so that the daemon would not see what the guest \
     writes; share it: with QEMU `-object memory-backend-memfd,...,share=on`, with libvirt `<access mode='shared'/>`";

/// Refuses a file that the process has mapped privately at this address.
///
/// # Errors
/// The mapping is private; the text says what to do.
pub(super) fn refuse(process: u32, address: u64, file: &File) -> io::Result<()> {
    let Ok(maps) = fs::read_to_string(format!("/proc/{process}/maps")) else { return Ok(()) };
    let inode = file.metadata()?.ino();
    if is_private(&maps, address, inode) { Err(io::Error::other(WHAT_TO_DO)) } else { Ok(()) }
}

/// Whether /proc/PID/maps has a private mapping of this inode at this address.
fn is_private(maps: &str, address: u64, inode: u64) -> bool {
    maps.lines().any(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [range, rights, _, _, node, ..] = fields[..] else { return false };
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let within = range
            .split_once('-')
            .and_then(|(begin, end)| Some((number(begin)?..number(end)?).contains(&address)))
            .unwrap_or(false);
        within && rights.ends_with('p') && node.parse() == Ok(inode)
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::MemfdFlags;
    use rustix::mm::{MapFlags, ProtFlags};

    use super::*;

    #[test]
    fn a_private_mapping_is_told_from_a_shared_one() {
        let file = File::from(rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
        let other = File::from(rustix::fs::memfd_create("other", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(8192).unwrap();
        for (flags, private) in [(MapFlags::SHARED, false), (MapFlags::PRIVATE, true)] {
            let rights = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping of our own file, which no other code touches.
            let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), 8192, rights, flags, file.as_fd(), 0) }.unwrap();
            let (process, address) = (std::process::id(), at as u64);
            assert_eq!(refuse(process, address + 4096, &file).is_err(), private);
            assert!(refuse(process, address, &other).is_ok(), "it is another file");
            // SAFETY: no reference into the mapping is left.
            unsafe { rustix::mm::munmap(at, 8192) }.unwrap();
        }
        assert!(refuse(u32::MAX, 0, &file).is_ok(), "there is no such process");
        assert!(WHAT_TO_DO.contains("share=on"));
    }
}
