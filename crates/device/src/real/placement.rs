// SPDX-License-Identifier: MIT OR Apache-2.0
//! Says which devices' I/O may sleep in the system call that starts it, and how much a device takes
//! at a time without that.
//!
//! io_uring starts I/O in the thread that submits it. It leaves to workers I/O that says that it
//! would sleep. Local file systems and most drivers of block devices say so. FUSE does not (Linux
//! 6.18: from the 13th request on it sleeps until the file system answers). Network file systems
//! don't, nor do drivers that speak to a network while they take a request. Such devices get
//! threads of their own. A block device whose tags are all in use has further I/O wait for one, so
//! it gets fewer at a time.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::fstatfs;

use super::lock::sysfs;
use super::threads::WORKERS;

/// File systems that start direct I/O without sleeping, or say that they would.
///
/// They are ext2 to ext4, XFS, Btrfs, F2FS, bcachefs, tmpfs, ramfs (linux/magic.h, and the sources
/// of bcachefs).
const PROMPT_FILE_SYSTEMS: [u32; 7] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0xca45_1a4e, 0x0102_1994, 0x8584_58f6];
const OVERLAY: u32 = 0x794c_7630;
/// Block devices whose drivers sleep while they take a request (BLK_MQ_F_BLOCKING in Linux 6.18),
/// as their names begin. The loop driver has the flag too, and leaves all work to a thread.
const SLEEPING_DRIVERS: [&str; 4] = ["nbd", "mmcblk", "ubiblock", "drbd"];
/// More at a time bring no SSD any more.
const PLACES_MAX: usize = 256;
/// The part of a device's tags that is left to its other users: an eighth.
const LEFT_TO_OTHERS: usize = 8;
/// The number of tags where the kernel does not tell: most drivers have this many.
const TAGS: usize = 128;
/// Device-mapper on device-mapper is followed so far.
const DEPTH_MAX: u32 = 8;

/// How I/O of a device is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    /// Whether threads of its own do its I/O.
    pub(super) by_threads: bool,
    /// The number of I/Os at a time.
    pub(super) places: usize,
}

impl Placement {
    pub(super) fn of(file: &File, is_block: bool) -> Self {
        let meta = file.metadata().ok();
        let device = meta.map(|meta| if is_block { meta.rdev() } else { meta.dev() });
        let found = device.map(|device| look(&sysfs(device), DEPTH_MAX)).unwrap_or_default();
        let sleeps = found.sleeps || (!is_block && !is_prompt(file));
        if sleeps {
            return Self { by_threads: true, places: WORKERS };
        }
        let tags = found.tags.unwrap_or(TAGS);
        Self { by_threads: false, places: (tags - tags / LEFT_TO_OTHERS).clamp(1, PLACES_MAX) }
    }
}

/// What is known of a block device and all that it stands on.
#[derive(Debug, Default)]
struct Found {
    sleeps: bool,
    tags: Option<usize>,
}

/// Looks at a device by its folder in sysfs.
fn look(folder: &Path, depth: u32) -> Found {
    let Ok(folder) = folder.canonicalize() else { return Found::default() };
    // A partition is a folder in its disk's.
    let disk = if folder.join("partition").exists() { folder.join("..") } else { folder.clone() };
    let disk = disk.canonicalize().unwrap_or(disk);
    let name = disk.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let tags = std::fs::read_to_string(disk.join("queue/nr_requests")).ok();
    let own = Found {
        sleeps: SLEEPING_DRIVERS.iter().any(|driver| name.starts_with(driver)),
        tags: tags.and_then(|tags| tags.trim().parse().ok()),
    };
    let below = std::fs::read_dir(disk.join("slaves")).into_iter().flatten().flatten();
    let below: Vec<PathBuf> = if depth > 0 { below.map(|entry| entry.path()).collect() } else { Vec::new() };
    below
        .iter()
        .map(|folder| look(folder, depth - 1))
        .fold(own, |all, it| Found { sleeps: all.sleeps || it.sleeps, tags: all.tags.into_iter().chain(it.tags).min() })
}

/// Whether a file's file system starts I/O without sleeping.
fn is_prompt(file: &File) -> bool {
    let Ok(found) = fstatfs(file) else { return false };
    match found.f_type as u32 {
        OVERLAY => layers(file).is_some_and(|layers| !layers.is_empty() && layers.iter().all(|it| is_prompt_below(it))),
        magic => PROMPT_FILE_SYSTEMS.contains(&magic),
    }
}

fn is_prompt_below(layer: &Path) -> bool {
    rustix::fs::statfs(layer).is_ok_and(|found| PROMPT_FILE_SYSTEMS.contains(&(found.f_type as u32)))
}

/// The folders that an overlay is made of, if they can be seen from here.
fn layers(file: &File) -> Option<Vec<PathBuf>> {
    let device = file.metadata().ok()?.dev();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let wanted = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&wanted))?;
    layers_of(line)
}

/// The layers that a line of mountinfo names.
fn layers_of(line: &str) -> Option<Vec<PathBuf>> {
    let options = line.split(' ').next_back()?;
    let values = options.split(',').filter_map(|option| option.split_once('='));
    let folders = values.filter(|(key, _)| matches!(*key, "lowerdir" | "lowerdir+" | "datadir+" | "upperdir"));
    Some(folders.flat_map(|(_, value)| value.split(':')).filter(|it| !it.is_empty()).map(PathBuf::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device in a sysfs of our own: its folder.
    fn device(root: &Path, name: &str, tags: &str, below: &[&Path]) -> PathBuf {
        let folder = root.join(name);
        std::fs::create_dir_all(folder.join("queue")).unwrap();
        std::fs::create_dir_all(folder.join("slaves")).unwrap();
        std::fs::write(folder.join("queue/nr_requests"), tags).unwrap();
        for it in below {
            std::os::unix::fs::symlink(it, folder.join("slaves").join(it.file_name().unwrap())).unwrap();
        }
        folder
    }

    #[test]
    fn a_device_sleeps_if_any_below_does_and_has_as_many_tags_as_the_least() {
        let root = tempfile::tempdir().unwrap();
        let (disk, net) = (device(root.path(), "sda", "64\n", &[]), device(root.path(), "nbd3", "128\n", &[]));
        let raid = device(root.path(), "md0", "256\n", &[&disk]);
        let mapped = device(root.path(), "dm-1", "128\n", &[&raid, &net]);
        let part = disk.join("sda1");
        std::fs::create_dir(&part).unwrap();
        std::fs::write(part.join("partition"), "1\n").unwrap();
        for (folder, sleeps, tags) in
            [(&disk, false, 64), (&part, false, 64), (&raid, false, 64), (&net, true, 128), (&mapped, true, 64)]
        {
            let found = look(folder, DEPTH_MAX);
            assert_eq!((found.sleeps, found.tags), (sleeps, Some(tags)), "{}", folder.display());
        }
        assert_eq!(look(&root.path().join("none"), DEPTH_MAX).tags, None);
    }

    #[test]
    fn an_overlay_is_what_it_is_made_of() {
        let line =
            "40 30 0:35 / /mnt rw shared:1 - overlay overlay rw,lowerdir=/a:/b::/c,upperdir=/u,workdir=/w,xino=off";
        assert_eq!(layers_of(line).unwrap(), ["/a", "/b", "/c", "/u"].map(PathBuf::from));
    }

    #[test]
    fn proc_is_no_file_system_that_anything_is_known_of() {
        let file = File::open("/proc/self/stat").unwrap();
        assert_eq!(Placement::of(&file, false), Placement { by_threads: true, places: WORKERS });
    }
}
