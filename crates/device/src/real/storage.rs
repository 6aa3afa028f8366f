// SPDX-License-Identifier: MIT OR Apache-2.0
//! The storage behind a device: the device itself, and each file, disk and partition below it.
//!
//! Two paths can lead to the same bytes. They are a file and a loop device on it, a disk and its
//! partition, or two loop devices on one file. [`Storage`] lists all levels, down to the file or
//! disk at the bottom, and the bytes of each level that the device uses. `below` finds the levels,
//! `guard` keeps others away from them.
//!
//! Limits: the kernel does not tell the levels below a file on a network file system, on FUSE or on
//! overlayfs. For device-mapper and md devices sysfs tells the devices below, and not which of
//! their bytes are used.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use flashfront_nbd_proto::uri::Uri;

mod below;
pub(super) mod guard;
mod looped;

use below::Sys;

/// A file or a block device, whatever path leads to it. Valid while it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Store {
    /// A regular file: numbers of its file system and inode.
    File { dev: u64, ino: u64 },
    /// A block device.
    Block { rdev: u64 },
    /// An export of a server, or a volume in an object store: a hash of its URI.
    Export { uri: u64 },
}

impl Store {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        Ok(Self::of_meta(&file.metadata()?))
    }

    pub(super) fn of_meta(meta: &std::fs::Metadata) -> Self {
        match meta.file_type().is_block_device() {
            true => Self::Block { rdev: meta.rdev() },
            false => Self::File { dev: meta.dev(), ino: meta.ino() },
        }
    }
}

/// A level of the storage behind a device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Level {
    store: Store,
    /// The level as people name it.
    name: PathBuf,
    /// Bytes of the store that the device uses.
    from: u64,
    to: u64,
    /// The device uses all bytes of the range; else some of them, and which is not known.
    exact: bool,
    /// The level is below a loop device. The kernel lets others use it at the same time.
    under_loop: bool,
}

/// The storage behind a device. The first level is the device itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    levels: Vec<Level>,
}

/// Two paths that lead to the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    ways: [Vec<PathBuf>; 2],
}

impl Storage {
    /// Finds the storage behind a path; `None` if there is no file or block device.
    #[must_use]
    pub fn behind(path: &Path) -> Option<Self> {
        if let Some(url) = path.to_str().filter(|text| flashfront_bucket::is_url(text)) {
            return Some(Self::of_name(url.trim_end_matches('/')));
        }
        if let Some(uri) = path.to_str().filter(|text| Uri::is_uri(text)) {
            return Some(Self::of_uri(&uri.parse().ok()?));
        }
        let meta = std::fs::metadata(path).ok()?;
        let is_device = meta.is_file() || meta.file_type().is_block_device();
        is_device.then(|| Self::of(Store::of_meta(&meta), path, &Sys::default()))
    }

    fn of(store: Store, name: &Path, sys: &Sys) -> Self {
        let top = Level { store, name: name.into(), from: 0, to: u64::MAX, exact: true, under_loop: false };
        Self { levels: below::levels(top, sys) }
    }

    /// Names the storage behind an export, of which nothing more is known. Two URIs that differ may
    /// name the same export.
    pub(super) fn of_uri(uri: &Uri) -> Self {
        Self::of_name(&uri.to_string())
    }

    /// Names the storage behind a device by its URI alone.
    pub(super) fn of_name(name: &str) -> Self {
        let hash = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, name.as_bytes());
        let store = Store::Export { uri: hash };
        let level = Level { store, name: name.into(), from: 0, to: u64::MAX, exact: true, under_loop: false };
        Self { levels: vec![level] }
    }

    /// Returns the device itself.
    pub(super) fn top(&self) -> Store {
        self.levels[0].store
    }

    /// Finds the bytes that this and the other device both use, if there are any.
    #[must_use]
    pub fn shared_with(&self, other: &Self) -> Option<Shared> {
        let pairs =
            self.levels.iter().enumerate().flat_map(|one| other.levels.iter().enumerate().map(move |it| (one, it)));
        let ((one, _), (two, _)) = pairs.into_iter().find(|((_, one), (_, other))| one.meets(other))?;
        let way = |it: &Self, end: usize| it.levels[..=end].iter().map(|level| level.name.clone()).collect();
        Some(Shared { ways: [way(self, one), way(other, two)] })
    }

    /// Finds the first device that shares bytes with one before it: the places of both in `all`.
    #[must_use]
    pub fn first_shared(all: &[Option<Self>]) -> Option<(usize, usize, Shared)> {
        let mut users: HashMap<Store, Vec<usize>> = HashMap::new();
        for (at, storage) in all.iter().enumerate() {
            let Some(storage) = storage else { continue };
            let before = storage.levels.iter().filter_map(|level| users.get(&level.store)).flatten();
            for &other in before.collect::<BTreeSet<_>>() {
                let shared = all[other].as_ref().and_then(|it| it.shared_with(storage));
                if let Some(shared) = shared {
                    return Some((other, at, shared));
                }
            }
            for level in &storage.levels {
                users.entry(level.store).or_default().push(at);
            }
        }
        None
    }

    /// The disk or file that this and the other device both lie on, though on different bytes of
    /// it.
    #[must_use]
    pub fn neighbour_of(&self, other: &Self) -> Option<&Path> {
        let is_of_other = |level: &&Level| other.levels.iter().any(|it| it.store == level.store);
        self.levels.iter().find(is_of_other).map(|level| level.name.as_path())
    }

    /// Whether one of the levels is a file of this file system, by the number that `stat` tells.
    #[must_use]
    pub fn lies_on(&self, file_system: u64) -> bool {
        self.levels.iter().any(|level| matches!(level.store, Store::File { dev, .. } if dev == file_system))
    }

    /// Whether this block device is one of the levels.
    fn has(&self, rdev: u64) -> bool {
        self.levels.iter().any(|level| level.store == Store::Block { rdev })
    }
}

impl Level {
    /// Whether both use the same bytes for certain.
    fn meets(&self, other: &Self) -> bool {
        let contains = |outer: &Self, inner: &Self| outer.from <= inner.from && inner.to <= outer.to;
        self.store == other.store
            && match (self.exact, other.exact) {
                (true, true) => self.from < other.to && other.from < self.to,
                (true, false) => contains(self, other),
                (false, true) => contains(other, self),
                (false, false) => false,
            }
    }
}

impl Shared {
    /// Whether the second path leads to the first one itself.
    pub(super) fn is_of_first(&self) -> bool {
        self.ways[0].len() == 1
    }
}

impl fmt::Display for Shared {
    /// Says how each of the two paths leads there, unless one of them is the place itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told: Vec<String> = self.ways.iter().filter(|way| way.len() > 1).map(|way| on(way)).collect();
        f.write_str(&told.join(", and "))
    }
}

/// `/dev/loop0p1 is on /dev/loop0, which is on /data/disk.img`
fn on(way: &[PathBuf]) -> String {
    let names: Vec<String> = way.iter().map(|name| name.display().to_string()).collect();
    match &names[..] {
        [top, below @ ..] => format!("{top} is on {}", below.join(", which is on ")),
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests;
