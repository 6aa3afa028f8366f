// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loop devices: the file that each of them uses, and which bytes of it.
//!
//! The loop driver names the file by its inode (`LOOP_GET_STATUS64`), which is the same in all
//! mount namespaces, and also after the file was removed. The call takes a user that may open the
//! loop device; for others the path in sysfs has to do.
#![expect(unsafe_code, reason = "an ioctl")]

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::Store;
use super::below::Sys;

/// The file behind a loop device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Backing {
    /// The file or block device; `None` if that can't be known.
    pub(super) store: Option<Store>,
    /// The path by which it was attached, as it is seen from here.
    pub(super) path: PathBuf,
    /// First byte.
    pub(super) offset: u64,
    /// Bytes; `None`: up to the file's end.
    pub(super) len: Option<u64>,
}

/// linux/loop.h: the start of `struct loop_info64`, and room for the rest.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    rest: [u64; 24],
}

/// Finds the file behind a loop device; `None` if it is no loop device, or uses nothing.
pub(super) fn backing(rdev: u64, sys: &Sys) -> Option<Backing> {
    let folder = sys.folder(rdev).join("loop");
    let text = fs::read_to_string(folder.join("backing_file")).ok()?;
    let path = PathBuf::from(text.trim_end_matches('\n'));
    let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    let told = status(&sys.node(rdev), rdev);
    let (store, offset, limit) = match told {
        Some(it) if it.rdevice != 0 => (Some(Store::Block { rdev: it.rdevice }), it.offset, it.sizelimit),
        Some(it) => (Some(Store::File { dev: it.device, ino: it.inode }), it.offset, it.sizelimit),
        None => {
            let meta = fs::metadata(&path).ok();
            (meta.map(|it| Store::of_meta(&it)), number("offset").unwrap_or(0), number("sizelimit").unwrap_or(0))
        }
    };
    Some(Backing { store, path, offset, len: (limit > 0).then_some(limit) })
}

/// Lists all loop devices in use, but for those on file systems that may not answer and that hold
/// no store of `dev`.
///
/// A file on FUSE or NFS is on none of the disks here, and to ask for it can take for ever.
pub(super) fn attached(sys: &Sys, dev: Option<u64>) -> Vec<u64> {
    let silent = silent_mounts(dev);
    let is_silent = |path: &Path| silent.iter().any(|mount| path.starts_with(mount));
    let Ok(entries) = fs::read_dir(sys.root.join("block")) else { return Vec::new() };
    let uses = entries.flatten().filter(|entry| {
        let text = fs::read_to_string(entry.path().join("loop/backing_file"));
        text.is_ok_and(|text| !is_silent(Path::new(text.trim_end_matches('\n'))))
    });
    uses.filter_map(|entry| sys.rdev(&entry.path())).collect()
}

/// Lists the mount points of file systems that a process or another machine answers for, but for
/// the one of `dev`.
fn silent_mounts(dev: Option<u64>) -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let ours = dev.map(|dev| format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev)));
    let mount = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let fields: Vec<&str> = before.split(' ').collect();
        let kind = after.split(' ').next()?;
        let is_remote = ["fuse", "nfs", "cifs", "smb", "9p", "ceph", "afs"].iter().any(|it| kind.starts_with(it));
        let is_ours = ours.as_deref() == fields.get(2).copied();
        // proc(5): a space is written as \040.
        (is_remote && !is_ours).then(|| fields.get(4).map(|point| PathBuf::from(point.replace("\\040", " "))))?
    };
    text.lines().filter_map(mount).collect()
}

/// Asks the driver; `None` where it can't be asked.
fn status(node: &Path, rdev: u64) -> Option<LoopInfo64> {
    const LOOP_GET_STATUS64: libc::c_ulong = 0x4c05;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(node, flags, Mode::empty()).ok()?;
    // A folder of /dev that another user has made may have other devices by these names.
    rustix::fs::fstat(&file).ok().filter(|stat| stat.st_rdev == rdev)?;
    let mut info = LoopInfo64 { device: 0, inode: 0, rdevice: 0, offset: 0, sizelimit: 0, rest: [0; 24] };
    // SAFETY: the ioctl writes a `struct loop_info64`, which has 232 bytes, to the pointer.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), LOOP_GET_STATUS64 as _, &raw mut info) };
    (done == 0).then_some(info)
}

const _: () = assert!(size_of::<LoopInfo64>() == 232);
