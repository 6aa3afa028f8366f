// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes and mounts that use a file or block device, for messages, and to reach a file without
//! a path.
//!
//! What a user may not see of other users' processes is left out. No file system is asked: a
//! process that has a file of a hung one open must not hold up this one.

use std::fs;
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};

use super::storage::Store;

/// A process that has a file open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opener {
    pid: u32,
    /// Opens the file once more (proc(5)).
    pub(super) link: PathBuf,
    /// The process holds a lock by this descriptor.
    locks: bool,
}

/// Processes that have the file or block device open.
pub(super) fn openers(store: Store) -> Vec<Opener> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.flat_map(|pid| of_process(pid, store)).collect()
}

fn of_process(pid: u32, store: Store) -> Vec<Opener> {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let Ok(entries) = fs::read_dir(folder.join("fdinfo")) else { return Vec::new() };
    let opener = |entry: fs::DirEntry| {
        let info = fs::read_to_string(entry.path()).ok()?;
        let link = folder.join("fd").join(entry.file_name());
        // Since Linux 5.14 the inode is told here.
        let ino = info.lines().find_map(|line| line.strip_prefix("ino:")?.trim().parse::<u64>().ok());
        if let (Store::File { ino: wanted, .. }, Some(ino)) = (store, ino)
            && ino != wanted
        {
            return None;
        }
        (store_of(&link)? == store).then(|| Opener { pid, link, locks: info.contains("\nlock:") })
    };
    entries.flatten().filter_map(opener).collect()
}

/// Returns the target of a link, by what the kernel knows of it already.
fn store_of(link: &std::path::Path) -> Option<Store> {
    let wanted = StatxFlags::TYPE | StatxFlags::INO;
    let stat = statx(CWD, link, AtFlags::STATX_DONT_SYNC, wanted).ok()?;
    Some(match u32::from(stat.stx_mode) & libc::S_IFMT {
        libc::S_IFBLK => Store::Block { rdev: makedev(stat.stx_rdev_major, stat.stx_rdev_minor) },
        _ => Store::File { dev: makedev(stat.stx_dev_major, stat.stx_dev_minor), ino: stat.stx_ino },
    })
}

/// Names the user of a file or block device, as far as can be seen: `process 12 (flashfront)`, `the
/// mount at /home`.
pub(super) fn who_has(store: Store) -> Option<String> {
    let mut found = openers(store);
    // One with a lock is the one; of a block device, the kernel's users come before a process that
    // only reads.
    found.sort_by_key(|it| !it.locks);
    let process = |it: &Opener| {
        let name = fs::read_to_string(format!("/proc/{}/comm", it.pid)).unwrap_or_default();
        format!("process {} ({})", it.pid, name.trim())
    };
    let locker = found.first().filter(|it| it.locks).map(process);
    let of_kernel = || match store {
        Store::Block { rdev } => mount_of(rdev).or_else(|| device_on(rdev)),
        Store::File { .. } | Store::Export { .. } => None,
    };
    locker.or_else(of_kernel).or_else(|| found.first().map(process))
}

fn mount_of(rdev: u64) -> Option<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let number = format!("{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev));
    let fields = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let point = fields.filter(|it| it.get(2) == Some(&number.as_str())).find_map(|it| it.get(4).copied())?;
    Some(format!("the mount at {point}"))
}

/// A device-mapper or md device on it.
fn device_on(rdev: u64) -> Option<String> {
    let folder = super::lock::sysfs(rdev).join("holders");
    let name = fs::read_dir(folder).ok()?.flatten().next()?.file_name();
    Some(format!("/dev/{}", name.to_string_lossy()))
}
