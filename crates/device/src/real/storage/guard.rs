// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps others away from the levels below a device, for as long as the device is open.
//!
//! The kernel keeps two users from a disk and its partition, or from a disk and a device-mapper or
//! md device on it (`O_EXCL`). It keeps no user from a file that a loop device uses. So each file
//! below a device is locked as well. It is shared with `flock`, since two loop devices may use
//! different parts of one file. The bytes that are used have a range lock. A process that has the
//! file itself locks all of it, by both ways.
//!
//! Another mount namespace, or its removal, can make a file unreachable by its path. Then it is
//! reached through a process that has it open; if there is none, the file has no other user.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::below::Sys;
use super::{Level, Shared, Storage, Store, looped};
use crate::real::holder;
use crate::real::lock::{Access, flocked, range_locked};

/// Why a device can't be had.
#[derive(Debug)]
pub(in crate::real) enum Refused {
    /// Another process uses a level below the device, or a level beside it.
    Busy { at: Location },
    /// A loop device that is not below it uses the same bytes.
    Attached { device: PathBuf, shared: Shared },
    /// A system call failed.
    Failed(&'static str, Errno),
}

/// A level that is in use, and how the device leads to it.
#[derive(Debug)]
pub(in crate::real) struct Location {
    pub(in crate::real) store: Store,
    pub(in crate::real) name: PathBuf,
    pub(in crate::real) way: String,
}

/// Locks on what lies below a device.
#[derive(Debug, Default)]
pub(in crate::real) struct Guard {
    _held: Vec<File>,
}

/// Finds the storage behind an open device.
pub(in crate::real) fn storage(file: &File, path: &Path) -> io::Result<Storage> {
    Ok(Storage::of(Store::of(file)?, path, &Sys::default()))
}

/// Locks what lies below the device.
pub(in crate::real) fn lock_below(storage: &Storage, access: Access) -> Result<Guard, Refused> {
    let mut held = Vec::new();
    for (nth, level) in storage.levels.iter().enumerate().skip(1) {
        let locked = match level.store {
            Store::File { .. } => lock_file(level, access),
            Store::Block { rdev } if level.under_loop => lock_block(level, rdev, access),
            // The kernel's own claims do it.
            Store::Block { .. } | Store::Export { .. } => Ok(None),
        };
        match locked {
            Ok(file) => held.extend(file),
            Err(Errno::WOULDBLOCK | Errno::BUSY) => return Err(Refused::Busy { at: storage.place(nth) }),
            Err(errno) => return Err(Refused::Failed("lock what is below", errno)),
        }
    }
    Ok(Guard { _held: held })
}

/// Refuses a device that a loop device uses, too, and that is not below it. `ReadOnly` lets pass
/// what is only attached.
pub(in crate::real) fn check_beside(storage: &Storage, access: Access) -> Result<(), Refused> {
    let sys = Sys::default();
    let dev = storage.levels.iter().find_map(|level| match level.store {
        Store::File { dev, .. } => Some(dev),
        Store::Block { .. } | Store::Export { .. } => None,
    });
    for rdev in looped::attached(&sys, dev).into_iter().filter(|rdev| !storage.has(*rdev)) {
        let device = sys.node(rdev);
        let other = Storage::of(Store::Block { rdev }, &device, &sys);
        let Some(shared) = storage.shared_with(&other) else { continue };
        match access {
            Access::Exclusive => return Err(Refused::Attached { device, shared }),
            Access::ReadOnly if is_claimed(&device, rdev) => {
                let at = Location { store: Store::Block { rdev }, name: device, way: shared.to_string() };
                return Err(Refused::Busy { at });
            }
            Access::ReadOnly => {}
        }
    }
    Ok(())
}

impl Storage {
    fn place(&self, nth: usize) -> Location {
        let level = &self.levels[nth];
        let names: Vec<PathBuf> = self.levels[..=nth].iter().map(|level| level.name.clone()).collect();
        Location { store: level.store, name: level.name.clone(), way: super::on(&names) }
    }
}

fn lock_file(level: &Level, access: Access) -> Result<Option<File>, Errno> {
    let Some(file) = reach(level) else { return Ok(None) };
    flocked(&file, FlockOperation::NonBlockingLockShared)?;
    let exclusive = access == Access::Exclusive && level.exact;
    match range_locked(&file, exclusive, level.from, level.to) {
        // Opened to be read only, since this user may no more.
        Err(Errno::BADF) => range_locked(&file, false, level.from, level.to)?,
        other => other?,
    };
    Ok(Some(file))
}

fn lock_block(level: &Level, rdev: u64, access: Access) -> Result<Option<File>, Errno> {
    if access == Access::Exclusive && is_claimed(&level.name, rdev) {
        return Err(Errno::BUSY);
    }
    let Some(file) = open(&level.name, level.store, OFlags::RDONLY).ok() else { return Ok(None) };
    flocked(&file, FlockOperation::NonBlockingLockShared)?;
    Ok(Some(file))
}

/// Whether the block device is claimed: by a mount, an array, or a daemon.
fn is_claimed(node: &Path, rdev: u64) -> bool {
    matches!(open(node, Store::Block { rdev }, OFlags::RDONLY | OFlags::EXCL), Err(Errno::BUSY))
}

/// Opens the file of a level, writable if possible.
fn reach(level: &Level) -> Option<File> {
    let at_path = |path: &Path| {
        std::fs::metadata(path).ok().filter(|meta| Store::of_meta(meta) == level.store)?;
        [OFlags::RDWR, OFlags::RDONLY].into_iter().find_map(|mode| open(path, level.store, mode).ok())
    };
    at_path(&level.name).or_else(|| holder::openers(level.store).iter().find_map(|it| at_path(&it.link)))
}

/// Opens a path if it leads to that store.
fn open(path: &Path, store: Store, mode: OFlags) -> Result<File, Errno> {
    let flags = mode | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let found = Store::of(&file).map_err(|_| Errno::IO)?;
    if found == store { Ok(file) } else { Err(Errno::NOENT) }
}
