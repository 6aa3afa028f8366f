// SPDX-License-Identifier: MIT OR Apache-2.0
//! A storage has two ways to it: a user by one of them keeps others from it by the other, in both
//! orders. Loop devices take root; a test says aloud if it can't have them.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use flashfront_device::real::{Access, DeviceFile, OpenError};

use crate::rig::{file, folder, run};

const SIZE: u64 = 8 << 20;

fn open(path: &Path) -> Result<DeviceFile, OpenError> {
    DeviceFile::open(path, Access::Exclusive)
}

/// The message of a refusal, which changed nothing.
#[track_caller]
fn refused(path: &Path, access: Access) -> String {
    match DeviceFile::open(path, access) {
        Err(why @ (OpenError::Busy { .. } | OpenError::Attached { .. })) => why.to_string(),
        other => panic!("{}: {other:?}", path.display()),
    }
}

/// A loop device, detached when dropped.
struct Loop(PathBuf);

impl Loop {
    fn on(path: &Path, more: &[&str]) -> Option<Self> {
        let args = [&["--find", "--show"], more, &[path.to_str().unwrap()]].concat();
        match run("losetup", &args) {
            Ok(path) => Some(Self(path.into())),
            Err(why) => {
                eprintln!("skipped: no loop device to be had: {why}");
                None
            }
        }
    }

    fn part(&self, nth: u32) -> PathBuf {
        format!("{}p{nth}", self.0.display()).into()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Err(why) = run("losetup", &["--detach", self.0.to_str().unwrap()]) {
            eprintln!("left behind: {}: {why}", self.0.display());
        }
    }
}

#[test]
fn a_file_that_is_served_is_refused_by_a_loop_device() {
    let folder = folder();
    let path = file(folder.path(), "disk", SIZE);
    let held = open(&path).unwrap();
    let Some(whole) = Loop::on(&path, &[]) else { return };
    let Some(part) = Loop::on(&path, &["--offset", "1048576", "--sizelimit", "1048576"]) else { return };
    let Some(above) = Loop::on(&whole.0, &[]) else { return };
    for device in [&whole, &part, &above] {
        for access in [Access::Exclusive, Access::ReadOnly] {
            let told = refused(&device.0, access);
            // Which of two reasons is found first depends on what other tests do with loop devices.
            let why = ["disk", "is attached to"].iter().any(|why| told.contains(why));
            assert!(told.contains(device.0.to_str().unwrap()) && why, "{told}");
        }
    }
    drop((held, above, part));
    // The file is not refused for ever.
    open(&whole.0).unwrap();
}

#[test]
fn a_file_that_a_loop_device_uses_is_refused() {
    let folder = folder();
    let path = file(folder.path(), "disk", SIZE);
    let hard = folder.path().join("hard");
    std::fs::hard_link(&path, &hard).unwrap();
    let Some(device) = Loop::on(&path, &[]) else { return };
    for path in [&path, &hard] {
        let told = refused(path, Access::Exclusive);
        assert!(told.contains(&format!("losetup --detach {}", device.0.display())), "{told}");
        // Looking at what is only attached is allowed.
        DeviceFile::open(path, Access::ReadOnly).unwrap();
    }
    let held = open(&device.0).unwrap();
    let told = refused(&hard, Access::ReadOnly);
    assert!(told.contains(device.0.to_str().unwrap()), "{told}");
    let Some(second) = Loop::on(&hard, &[]) else { return };
    let told = refused(&second.0, Access::Exclusive);
    assert!(told.contains(device.0.to_str().unwrap()) && told.contains(second.0.to_str().unwrap()), "{told}");
    refused(&second.0, Access::ReadOnly);
    drop(held);
}

/// Another part of a file is another device.
#[test]
fn loop_devices_on_different_parts_of_a_file_are_two() {
    let folder = folder();
    let path = file(folder.path(), "disk", SIZE);
    let part = |offset: &str| Loop::on(&path, &["--offset", offset, "--sizelimit", "2097152"]);
    let (Some(first), Some(next), Some(between)) = (part("0"), part("2097152"), part("1048576")) else { return };
    refused(&between.0, Access::Exclusive);
    refused(&first.0, Access::Exclusive);
    drop(between);
    let held = [open(&first.0).unwrap(), open(&next.0).unwrap()];
    let [one, other] = [held[0].storage(), held[1].storage()];
    assert_eq!(one.shared_with(other), None);
    assert_eq!(one.neighbour_of(other), Some(&*path));
}

#[test]
fn a_disk_and_its_partition_are_not_had_at_once() {
    let folder = folder();
    let path = file(folder.path(), "disk", SIZE);
    let disk = std::fs::File::options().write(true).open(&path).unwrap();
    // Two partitions of 2 MiB, from 1 MiB on.
    for (at, start) in [(446, 2048u32), (462, 6144)] {
        let entry = [&[0, 0, 0, 0, 0x83, 0, 0, 0][..], &start.to_le_bytes(), &4096u32.to_le_bytes()].concat();
        disk.write_all_at(&entry, at).unwrap();
    }
    disk.write_all_at(&[0x55, 0xaa], 510).unwrap();
    let Some(device) = Loop::on(&path, &["--partscan"]) else { return };
    if !device.part(2).exists() {
        eprintln!("skipped: no partitions of loop devices here");
        return;
    }
    let held = open(&device.part(1)).unwrap();
    refused(&device.0, Access::Exclusive);
    let other = open(&device.part(2)).unwrap();
    assert_eq!(held.storage().shared_with(other.storage()), None);
    let Some(second) = Loop::on(&path, &["--partscan"]) else { return };
    for way in [&path, &second.0, &second.part(1)] {
        refused(way, Access::Exclusive);
        refused(way, Access::ReadOnly);
    }
    drop((held, other, second));
    let held = open(&device.0).unwrap();
    refused(&device.part(1), Access::Exclusive);
    drop(held);
    // A loop device may use a block device as its file.
    let Some(above) = Loop::on(&device.part(1), &[]) else { return };
    refused(&device.part(1), Access::Exclusive);
    refused(&device.0, Access::Exclusive);
    let held = open(&above.0).unwrap();
    refused(&device.part(1), Access::ReadOnly);
    drop((held, above));
    open(&device.part(1)).unwrap();
}

/// A file below a mount by one loop device is refused to another loop device, and as a file.
#[test]
fn a_file_that_is_mounted_is_refused() {
    let folder = folder();
    let path = file(folder.path(), "disk", 32 << 20);
    let (Some(device), Some(second)) = (Loop::on(&path, &[]), Loop::on(&path, &[])) else { return };
    let place = folder.path().join("mount");
    std::fs::create_dir(&place).unwrap();
    let (node, point) = (device.0.to_str().unwrap(), place.to_str().unwrap());
    if let Err(why) = run("mkfs.ext4", &["-q", node]).and_then(|_| run("mount", &[node, point])) {
        eprintln!("skipped: cannot mount an ext4: {why}");
        return;
    }
    let told = [&device.0, &second.0, &path].map(|way| refused(way, Access::Exclusive));
    refused(&second.0, Access::ReadOnly);
    run("umount", &[point]).unwrap();
    assert!(told[0].contains(&format!("the mount at {point}")), "{told:?}");
    drop(second);
    open(&device.0).unwrap();
}

/// The path that the loop driver tells leads nowhere, as in another mount namespace: what counts is
/// the inode.
#[test]
fn a_file_without_a_path_is_guarded() {
    let folder = folder();
    let path = file(folder.path(), "disk", SIZE);
    let held = open(&path).unwrap();
    let Some(device) = Loop::on(&path, &[]) else { return };
    let moved = folder.path().join("moved");
    std::fs::hard_link(&path, &moved).unwrap();
    std::fs::remove_file(&path).unwrap();
    // Another file in its place is not taken for it.
    file(folder.path(), "disk", SIZE);
    for access in [Access::Exclusive, Access::ReadOnly] {
        let told = refused(&device.0, access);
        assert!(told.contains(&format!("in use by process {} (", std::process::id())), "{told}");
    }
    refused(&moved, Access::Exclusive);
    open(&path).unwrap();
    drop(held);
    let held = open(&device.0).unwrap();
    refused(&moved, Access::Exclusive);
    refused(&moved, Access::ReadOnly);
    drop(held);
}
