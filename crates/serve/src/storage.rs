// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which storage is behind a path: another path may lead to the same, also through loop devices.
//!
//! A guard against accidents, as far as sysfs tells: a cache on its own origin destroys it, and a file
//! that is attached to a loop device can be changed (mounted) although we hold its lock.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Loop devices on loop devices are followed so far.
const DEPTH_MAX: u32 = 8;

/// A file that a loop device uses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} is attached to {device}, through which others can change it; use that device, or detach it first (losetup --detach {device})", path = path.display(), device = device.display())]
pub struct AttachedError {
    /// The file.
    pub path: PathBuf,
    /// The loop device.
    pub device: PathBuf,
}

/// What is behind a path in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storage {
    File { dev: u64, ino: u64 },
    Device { rdev: u64 },
}

/// Whether both paths lead to the same storage.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    let storage = behind(one, DEPTH_MAX);
    storage.is_some() && storage == behind(other, DEPTH_MAX)
}

fn behind(path: &Path, depth: u32) -> Option<Storage> {
    let meta = fs::metadata(path).ok()?;
    if !meta.file_type().is_block_device() {
        return Some(Storage::File { dev: meta.dev(), ino: meta.ino() });
    }
    let backing = backing_file(meta.rdev()).filter(|_| depth > 0);
    backing.and_then(|file| behind(&file, depth - 1)).or(Some(Storage::Device { rdev: meta.rdev() }))
}

/// The file behind a loop device, or behind a partition of one.
fn backing_file(rdev: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let places = [folder.join("loop/backing_file"), folder.join("../loop/backing_file")];
    places
        .iter()
        .find_map(|place| fs::read_to_string(place).ok())
        .map(|text| PathBuf::from(text.trim_end_matches('\n')))
}

/// Refuses a file that a loop device uses.
pub(crate) fn check_not_attached(path: &Path) -> Result<(), AttachedError> {
    let file = fs::metadata(path).ok().filter(fs::Metadata::is_file);
    let (Some(meta), Ok(devices)) = (file, fs::read_dir("/sys/block")) else { return Ok(()) };
    for device in devices.flatten() {
        let Ok(text) = fs::read_to_string(device.path().join("loop/backing_file")) else { continue };
        let backing = fs::metadata(text.trim_end_matches('\n'));
        if backing.is_ok_and(|backing| (backing.dev(), backing.ino()) == (meta.dev(), meta.ino())) {
            let device = Path::new("/dev").join(device.file_name());
            return Err(AttachedError { path: path.to_owned(), device });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Loop devices need root: tests/e2e/format_discard.rs has them.
    #[test]
    fn links_lead_to_the_same_file() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("one"), "").unwrap();
        fs::write(at("other"), "").unwrap();
        std::os::unix::fs::symlink(at("one"), at("symbolic")).unwrap();
        fs::hard_link(at("one"), at("hard")).unwrap();
        assert!(is_same(&at("one"), &at("symbolic")) && is_same(&at("hard"), &at("symbolic")));
        assert!(!is_same(&at("one"), &at("other")));
        assert!(!is_same(&at("nothing"), &at("nothing")), "nothing is behind either");
        check_not_attached(&at("one")).unwrap();
    }
}
