// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the mount points of the kernel's own file systems.

use std::fs;
use std::path::PathBuf;

/// Finds the mount point of a file system of this type; an error says how to mount it.
pub(super) fn of(kind: &str, usual: &str) -> Result<PathBuf, String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut all = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let point = words.next()?;
        // proc(5): a space is written as \040.
        (words.next()? == kind).then(|| PathBuf::from(point.replace("\\040", " ")))
    });
    // A mount that another one covers is listed, too: the last one is seen.
    all.next_back().ok_or_else(|| format!("{kind} is not mounted (`mount -t {kind} {kind} {usual}`)"))
}
