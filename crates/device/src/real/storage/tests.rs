// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of what lies behind a device, on a made-up sysfs. `tests/device/blockdev.rs` has real loop
//! devices.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;

/// A sysfs with some devices in it.
struct Fake {
    folder: tempfile::TempDir,
}

impl Fake {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("dev/block")).unwrap();
        fs::create_dir_all(folder.path().join("block")).unwrap();
        Self { folder }
    }

    fn sys(&self) -> Sys {
        Sys { root: self.folder.path().into(), dev: "/none".into() }
    }

    /// Makes a device; `path` is below `block`.
    fn device(&self, path: &str, minor: u32, files: &[(&str, &str)]) -> u64 {
        let place = self.folder.path().join("block").join(path);
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("dev"), format!("99:{minor}\n")).unwrap();
        for (name, text) in files {
            fs::create_dir_all(place.join(name).parent().unwrap()).unwrap();
            fs::write(place.join(name), text).unwrap();
        }
        symlink(&place, self.folder.path().join(format!("dev/block/99:{minor}"))).unwrap();
        rustix::fs::makedev(99, minor)
    }

    fn slave(&self, of: &str, path: &str) {
        let folder = self.folder.path().join("block").join(of).join("slaves");
        fs::create_dir_all(&folder).unwrap();
        let name = Path::new(path).file_name().unwrap();
        symlink(self.folder.path().join("block").join(path), folder.join(name)).unwrap();
    }

    fn storage(&self, rdev: u64) -> Storage {
        Storage::of(Store::Block { rdev }, Path::new("top"), &self.sys())
    }
}

#[test]
fn a_partition_lies_on_its_part_of_the_disk() {
    let fake = Fake::new();
    let disk = fake.device("sda", 0, &[]);
    let one = fake.device("sda/sda1", 1, &[("partition", "1"), ("start", "2048"), ("size", "4096")]);
    let two = fake.device("sda/sda2", 2, &[("partition", "2"), ("start", "6144"), ("size", "4096")]);
    let [disk, one, two] = [disk, one, two].map(|rdev| fake.storage(rdev));
    let shared = one.shared_with(&disk).unwrap();
    assert_eq!(shared.to_string(), "top is on /none/sda");
    assert!(disk.shared_with(&two).is_some() && one.shared_with(&one).is_some());
    assert_eq!(one.shared_with(&two), None);
    assert_eq!(one.neighbour_of(&two), Some(Path::new("/none/sda")));
}

#[test]
fn loop_devices_on_one_file_share_what_both_have_of_it() {
    let fake = Fake::new();
    let file = fake.folder.path().join("disk.img");
    fs::write(&file, "x").unwrap();
    let backing = file.display().to_string();
    let on = |minor: u32, offset: &str, limit: &str| {
        let files = [("loop/backing_file", &backing[..]), ("loop/offset", offset), ("loop/sizelimit", limit)];
        fake.storage(fake.device(&format!("loop{minor}"), minor, &files))
    };
    let (whole, first, second) = (on(0, "0", "0"), on(1, "0", "4096"), on(2, "4096", "0"));
    let itself = Storage::behind(&file).unwrap();
    for (one, other, same) in [
        (&whole, &first, true),
        (&whole, &second, true),
        (&first, &second, false),
        (&itself, &first, true),
        (&itself, &second, true),
    ] {
        assert_eq!((one.shared_with(other).is_some(), other.shared_with(one).is_some()), (same, same));
    }
    let inside = fake.device("loop2/loop2p1", 12, &[("partition", "1"), ("start", "8"), ("size", "8")]);
    let shared = itself.shared_with(&fake.storage(inside)).unwrap().to_string();
    assert_eq!(shared, format!("top is on /none/loop2, which is on {backing}"));
    let level = fake.storage(inside).levels.pop().unwrap();
    assert_eq!((level.from, level.to), (8192, 12288));
}

#[test]
fn an_array_lies_on_some_bytes_of_its_devices() {
    let fake = Fake::new();
    let file = fake.folder.path().join("disk.img");
    fs::write(&file, "x").unwrap();
    let backing = file.display().to_string();
    fake.device("loop0", 0, &[("loop/backing_file", &backing[..])]);
    let disk = fake.device("sdb", 1, &[]);
    let (one, other) = (fake.device("dm-0", 2, &[]), fake.device("dm-1", 3, &[]));
    for (of, path) in [("dm-0", "loop0"), ("dm-0", "sdb"), ("dm-1", "sdb")] {
        fake.slave(of, path);
    }
    let (one, other) = (fake.storage(one), fake.storage(other));
    // Two volumes of a group are on the same disk, in different places.
    assert_eq!(one.shared_with(&other), None);
    assert!(one.shared_with(&fake.storage(disk)).is_some() && fake.storage(disk).shared_with(&other).is_some());
    let below = one.shared_with(&Storage::behind(&file).unwrap()).unwrap();
    assert_eq!(below.ways[0].last(), Some(&file));
}

#[test]
fn links_lead_to_the_same_file() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("one"), "").unwrap();
    fs::write(at("other"), "").unwrap();
    symlink(at("one"), at("symbolic")).unwrap();
    fs::hard_link(at("one"), at("hard")).unwrap();
    let behind = |name: &str| Storage::behind(&at(name));
    for name in ["symbolic", "hard"] {
        assert!(behind("one").unwrap().shared_with(&behind(name).unwrap()).is_some());
    }
    assert_eq!(behind("one").unwrap().shared_with(&behind("other").unwrap()), None);
    assert_eq!(behind("nothing"), None);
}

#[test]
fn the_first_two_that_share_bytes_are_found_among_many() {
    let fake = Fake::new();
    let disk = fake.device("sda", 0, &[]);
    let mut all: Vec<Option<Storage>> = Vec::new();
    for nth in 1..100 {
        let start = (nth * 8).to_string();
        let files = [("partition", "1"), ("start", start.as_str()), ("size", "8")];
        all.push(Some(fake.storage(fake.device(&format!("sda/sda{nth}"), nth, &files))));
    }
    all.push(None);
    assert_eq!(Storage::first_shared(&all), None);
    all.push(Some(fake.storage(disk)));
    let (one, other, shared) = Storage::first_shared(&all).unwrap();
    assert_eq!((one, other, shared.to_string().as_str()), (0, 100, "top is on /none/sda"));
}
