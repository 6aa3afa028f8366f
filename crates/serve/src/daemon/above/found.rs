// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds what lies above our files and block devices, as far as /proc and /sys tell. Only these two
//! are read.
//!
//! Above them lie loop devices, partitions, device-mapper and md devices, loop devices over files
//! of file systems on these, and so on. File systems mounted from any of them count in every mount
//! namespace that this user may look into. (Test of all of it with a real kernel: end to end,
//! `fuse`.)

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::config::{Config, Listener};
use crate::mounts::unescape;
use crate::report::counted;

/// Devices on devices are followed so far.
const DEPTH_MAX: usize = 8;

/// The files and block devices from which the search begins.
#[derive(Clone, Debug, Default)]
pub(in crate::daemon) struct Roots {
    /// Mounted folders with a file for each volume.
    pub(super) folders: Vec<PathBuf>,
    /// Block devices, by their names in /sys/block.
    pub(super) devices: Vec<String>,
}

impl Roots {
    /// Lists what a daemon with this configuration shows to its machine. Folders must not be
    /// mounted yet.
    pub(in crate::daemon) fn of(config: &Config) -> Self {
        let mut roots = Self::default();
        for listener in &config.listeners {
            match listener {
                // A folder that a crash has left is resolved by its parent.
                Listener::Fuse(folder) => roots.folders.extend(folder.canonicalize().ok().or_else(|| {
                    let absolute = std::path::absolute(folder).ok()?;
                    Some(absolute.parent()?.canonicalize().ok()?.join(absolute.file_name()?))
                })),
                Listener::Ublk(first) => {
                    let numbers = config.volumes.iter().map(|volume| first.saturating_add(volume.id.0));
                    roots.devices.extend(numbers.map(|number| format!("ublkb{number}")));
                }
                Listener::Nbd(_) | Listener::VhostUserBlk { .. } => {}
            }
        }
        roots
    }

    pub(super) fn is_empty(&self) -> bool {
        self.folders.is_empty() && self.devices.is_empty()
    }
}

/// Something that may hold data which it has not written yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// A mounted file system.
    FileSystem {
        /// The mount point, as its users see it.
        at: PathBuf,
        /// How it is reached from here.
        reach: PathBuf,
        /// The process that has these mounts in its namespace, if that is not ours.
        namespace_of: Option<u32>,
    },
    /// A block device that programs may write to as a file.
    Device(PathBuf),
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FileSystem { at, namespace_of: None, .. } => write!(f, "{}", at.display()),
            Self::FileSystem { at, namespace_of: Some(pid), .. } => {
                write!(f, "{} (as process {pid} sees it)", at.display())
            }
            Self::Device(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Everything that lies above the roots.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// Whatever is on a device of this level, the lowest first.
    pub(super) levels: Vec<Vec<Holder>>,
    /// Things that can't be seen from here, a sentence each.
    pub(super) unseen: Vec<String>,
}

/// Looks for it.
pub(super) fn above(roots: &Roots) -> Found {
    let (views, hidden) = views(Path::new("/proc"));
    let mut found = Found::default();
    let sys = Path::new("/sys");
    let mut seen = BTreeSet::new();
    let mut folders: Vec<PathBuf> = roots.folders.clone();
    let ours: BTreeSet<u64> = views.iter().take(1).flat_map(|view| view.devices_at(&roots.folders)).collect();
    folders.extend(views.iter().flat_map(|view| view.places_of(&ours)));
    let mut level: Vec<String> = roots.devices.clone();
    level.extend(loops_over(sys, |file| folders.iter().any(|folder| file.starts_with(folder))));
    for _ in 0..DEPTH_MAX {
        level.retain(|name| seen.insert(name.clone()));
        if level.is_empty() {
            break;
        }
        let devices: BTreeMap<u64, String> =
            level.iter().filter_map(|name| Some((number(sys, name)?, name.clone()))).collect();
        let mounts = mounts_of(&views, &devices);
        let mut holders: Vec<Holder> = mounts.iter().map(|(view, mount)| view.holder(mount)).collect();
        holders.extend(level.iter().map(|name| Holder::Device(Path::new("/dev").join(name.replace('!', "/")))));
        found.levels.push(holders);
        let on_these = |file: &Path| {
            mounts.iter().any(|(view, mount)| view.innermost(file).is_some_and(|inner| inner.at == mount.at))
        };
        let mut next: Vec<String> = level.iter().flat_map(|name| parts_and_holders(sys, name)).collect();
        next.extend(loops_over(sys, on_these));
        level = next;
    }
    if hidden > 0 && !found.levels.is_empty() {
        found.unseen.push(format!(
            "other users' mounts ({}) can't be seen without root: a file system that only they have mounted is not asked to write what it holds",
            counted(hidden as u64, "process")
        ));
    }
    found
}

/// The mounts of one namespace.
#[derive(Debug)]
struct View {
    /// A process in this namespace; none: it is our own.
    pid: Option<u32>,
    mounts: Vec<Mount>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    device: u64,
    at: PathBuf,
    source: PathBuf,
}

impl View {
    fn holder(&self, mount: &Mount) -> Holder {
        let reach = match self.pid {
            None => mount.at.clone(),
            Some(pid) => {
                PathBuf::from(format!("/proc/{pid}/root")).join(mount.at.strip_prefix("/").unwrap_or(&mount.at))
            }
        };
        Holder::FileSystem { at: mount.at.clone(), reach, namespace_of: self.pid }
    }

    /// The mount that a path is on.
    fn innermost(&self, path: &Path) -> Option<&Mount> {
        let holds = self.mounts.iter().filter(|mount| path.starts_with(&mount.at));
        // Of several at one place the last one is on top.
        holds.max_by_key(|mount| mount.at.as_os_str().len())
    }

    /// The numbers of the file systems that are mounted at these folders.
    fn devices_at(&self, folders: &[PathBuf]) -> Vec<u64> {
        self.mounts.iter().filter(|mount| folders.contains(&mount.at)).map(|mount| mount.device).collect()
    }

    /// Finds the mount points of the file systems with these device numbers.
    fn places_of(&self, devices: &BTreeSet<u64>) -> Vec<PathBuf> {
        self.mounts.iter().filter(|mount| devices.contains(&mount.device)).map(|mount| mount.at.clone()).collect()
    }
}

/// A mount of each file system on these devices.
fn mounts_of<'a>(views: &'a [View], devices: &BTreeMap<u64, String>) -> Vec<(&'a View, &'a Mount)> {
    let mut known = BTreeSet::new();
    let mut all = Vec::new();
    for view in views {
        for mount in &view.mounts {
            // btrfs has numbers of its own, and names its device as the source.
            let source = || fs::metadata(&mount.source).ok().filter(|_| mount.source.starts_with("/dev"));
            let on = devices.contains_key(&mount.device) || source().is_some_and(|it| devices.contains_key(&it.rdev()));
            if on && known.insert(mount.device) {
                all.push((view, mount));
            }
        }
    }
    all
}

/// The mount namespaces that can be looked into, our own first; and how many processes' can't.
fn views(proc: &Path) -> (Vec<View>, usize) {
    let mut known = BTreeSet::new();
    let mut hidden = 0;
    let mut all = Vec::new();
    if let Ok(namespace) = fs::read_link(proc.join("self/ns/mnt")) {
        known.insert(namespace);
    }
    all.extend(table(&proc.join("self")).map(|mounts| View { pid: None, mounts }));
    let processes = fs::read_dir(proc).into_iter().flatten().flatten();
    let mut pids: Vec<u32> = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    for pid in pids {
        let folder = proc.join(pid.to_string());
        match fs::read_link(folder.join("ns/mnt")) {
            Ok(namespace) => {
                if known.insert(namespace) {
                    all.extend(table(&folder).map(|mounts| View { pid: Some(pid), mounts }));
                }
            }
            Err(error) => hidden += usize::from(error.kind() == std::io::ErrorKind::PermissionDenied),
        }
    }
    (all, hidden)
}

fn table(process: &Path) -> Option<Vec<Mount>> {
    let text = fs::read(process.join("mountinfo")).ok()?;
    Some(String::from_utf8_lossy(&text).lines().filter_map(mount).collect())
}

/// proc_pid_mountinfo(5): ID parent device root PLACE options [tags] - TYPE SOURCE options.
fn mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut words = before.split(' ').skip(2);
    let (device, at) = (words.next()?, words.nth(1)?);
    let source = after.split(' ').nth(1)?;
    let path = |text: &str| PathBuf::from(OsString::from_vec(unescape(text)));
    Some(Mount { device: device_number(device)?, at: path(at), source: path(source) })
}

/// "7:0" as stat(2) has it.
fn device_number(text: &str) -> Option<u64> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

fn number(sys: &Path, name: &str) -> Option<u64> {
    device_number(&fs::read_to_string(sys.join("class/block").join(name).join("dev")).ok()?)
}

/// Partitions of a device, and the devices that have it for a part.
fn parts_and_holders(sys: &Path, name: &str) -> Vec<String> {
    let folder = sys.join("class/block").join(name);
    let names = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect::<Vec<_>>()
    };
    let mut all = names(&folder.join("holders"));
    all.extend(names(&folder).into_iter().filter(|entry| folder.join(entry).join("partition").exists()));
    all
}

/// Loop devices over files that are meant.
fn loops_over(sys: &Path, is_meant: impl Fn(&Path) -> bool) -> Vec<String> {
    let entries = fs::read_dir(sys.join("class/block")).into_iter().flatten().flatten();
    let over = |entry: fs::DirEntry| {
        let text = fs::read(entry.path().join("loop/backing_file")).ok()?;
        let text = text.strip_suffix(b"\n").unwrap_or(&text).to_vec();
        let name = entry.file_name().into_string().ok()?;
        is_meant(&PathBuf::from(OsString::from_vec(text))).then_some(name)
    };
    entries.filter_map(over).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_understood() {
        let line = "36 35 7:1 /sub /srv/two\\040words rw,noatime master:1 - ext4 /dev/loop1 rw";
        let expected =
            Mount { device: rustix::fs::makedev(7, 1), at: "/srv/two words".into(), source: "/dev/loop1".into() };
        assert_eq!(mount(line), Some(expected));
        assert_eq!(mount("36 35 7 / /srv rw - ext4 x rw"), None);
    }

    #[test]
    fn a_file_is_on_the_innermost_mount() {
        let at = |at: &str, minor| Mount { device: rustix::fs::makedev(7, minor), at: at.into(), source: "x".into() };
        let view = View { pid: None, mounts: vec![at("/", 0), at("/a", 1), at("/a/b", 2), at("/a/b", 3)] };
        let on = |path: &str| view.innermost(Path::new(path)).map(|mount| rustix::fs::minor(mount.device));
        assert_eq!([on("/a/b/c"), on("/a/bc"), on("/x")], [Some(3), Some(1), Some(0)]);
        let elsewhere = View { pid: Some(1), mounts: vec![at("/bind", 1), at("/b", 2)] };
        let devices = view.devices_at(&["/a".into()]).into_iter().collect();
        assert_eq!(elsewhere.places_of(&devices), [PathBuf::from("/bind")]);
    }

    #[test]
    fn everything_above_is_found_and_the_lowest_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let class = dir.path().join("class/block");
        let device = |name: &str, number: &str| {
            fs::create_dir_all(class.join(name).join("holders")).unwrap();
            fs::write(class.join(name).join("dev"), number).unwrap();
        };
        device("loop0", "7:0\n");
        device("loop0p1", "259:0\n");
        device("dm-0", "253:0\n");
        device("loop1", "7:1\n");
        fs::create_dir_all(class.join("loop0/loop")).unwrap();
        fs::write(class.join("loop0/loop/backing_file"), "/run/disk/data\n").unwrap();
        fs::create_dir_all(class.join("loop1/loop")).unwrap();
        fs::write(class.join("loop1/loop/backing_file"), "/run/diskette/data\n").unwrap();
        fs::create_dir_all(class.join("loop0/loop0p1")).unwrap();
        fs::write(class.join("loop0/loop0p1/partition"), "1\n").unwrap();
        fs::create_dir_all(class.join("loop0p1/holders/dm-0")).unwrap();
        assert_eq!(loops_over(dir.path(), |file| file.starts_with("/run/disk")), ["loop0"]);
        assert_eq!(parts_and_holders(dir.path(), "loop0"), ["loop0p1"]);
        assert_eq!(parts_and_holders(dir.path(), "loop0p1"), ["dm-0"]);
        assert_eq!(number(dir.path(), "dm-0"), Some(rustix::fs::makedev(253, 0)));
    }
}
