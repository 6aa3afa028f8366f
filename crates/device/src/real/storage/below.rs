// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the levels below a device, by what sysfs and the loop driver tell.

use std::fs;
use std::path::{Path, PathBuf};

use super::looped::{self, Backing};
use super::{Level, Store};

/// Devices on devices are followed so far.
const DEPTH_MAX: usize = 16;

/// The folders of sysfs and of the device nodes; others in tests.
#[derive(Clone, Debug)]
pub(super) struct Sys {
    pub(super) root: PathBuf,
    pub(super) dev: PathBuf,
}

impl Default for Sys {
    fn default() -> Self {
        Self { root: "/sys".into(), dev: "/dev".into() }
    }
}

impl Sys {
    /// The folder of a block device.
    pub(super) fn folder(&self, rdev: u64) -> PathBuf {
        let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
        self.root.join(format!("dev/block/{major}:{minor}"))
    }

    /// The node that the kernel has for a block device, whether or not it is there.
    pub(super) fn node(&self, rdev: u64) -> PathBuf {
        let name = fs::canonicalize(self.folder(rdev)).ok();
        let name = name.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().replace('!', "/"));
        self.dev.join(name.unwrap_or_else(|| format!("block/{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev))))
    }

    /// The number in a file of a device's folder.
    fn number(&self, folder: &Path, name: &str) -> Option<u64> {
        fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok()
    }

    /// The device that a folder is of.
    pub(super) fn rdev(&self, folder: &Path) -> Option<u64> {
        let text = fs::read_to_string(folder.join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
    }
}

/// A level and all levels below it.
pub(super) fn levels(top: Level, sys: &Sys) -> Vec<Level> {
    let mut levels = vec![top];
    let mut at = 0;
    while let Some(level) = levels.get(at).filter(|_| levels.len() < DEPTH_MAX * DEPTH_MAX) {
        let next = below(level, sys);
        for level in next {
            if !levels.contains(&level) {
                levels.push(level);
            }
        }
        at += 1;
    }
    levels
}

/// The next levels below this one: none below a file or a disk, several below an array.
fn below(level: &Level, sys: &Sys) -> Vec<Level> {
    let Store::Block { rdev } = level.store else { return Vec::new() };
    let folder = sys.folder(rdev);
    if folder.join("partition").exists() {
        return partition(level, &folder, sys).into_iter().collect();
    }
    if let Some(backing) = looped::backing(rdev, sys) {
        return file(level, backing, sys).into_iter().collect();
    }
    // Device-mapper, md, bcache: which bytes of the devices below are used sysfs doesn't tell.
    let Ok(slaves) = fs::read_dir(folder.join("slaves")) else { return Vec::new() };
    let slaves = slaves.flatten().filter_map(|slave| sys.rdev(&slave.path()));
    let used = |rdev| Level {
        store: Store::Block { rdev },
        name: sys.node(rdev),
        from: 0,
        to: u64::MAX,
        exact: false,
        under_loop: false,
    };
    slaves.map(used).collect()
}

/// The disk of a partition.
fn partition(level: &Level, folder: &Path, sys: &Sys) -> Option<Level> {
    // sysfs counts in 512 bytes, whatever the disk's sectors are.
    let start = sys.number(folder, "start")?.checked_mul(512)?;
    let len = sys.number(folder, "size")?.checked_mul(512)?;
    let disk = fs::canonicalize(folder).ok()?.parent()?.to_owned();
    let rdev = sys.rdev(&disk)?;
    let (from, to) = moved(level, start, start.saturating_add(len));
    Some(Level { store: Store::Block { rdev }, name: sys.node(rdev), from, to, under_loop: false, ..level.clone() })
}

/// The file of a loop device, or the block device that it uses as one.
fn file(level: &Level, backing: Backing, sys: &Sys) -> Option<Level> {
    let name = match backing.store? {
        Store::Block { rdev } => sys.node(rdev),
        Store::File { .. } | Store::Export { .. } => backing.path,
    };
    let end = backing.offset.saturating_add(backing.len.unwrap_or(u64::MAX));
    let (from, to) = moved(level, backing.offset, end);
    Some(Level { store: backing.store?, name, from, to, under_loop: true, ..level.clone() })
}

/// A level's range, as bytes of the level below, which has this one from `start` to `end`.
fn moved(level: &Level, start: u64, end: u64) -> (u64, u64) {
    let shift = |at: u64| start.saturating_add(at).min(end);
    (shift(level.from), shift(level.to))
}
