// SPDX-License-Identifier: MIT OR Apache-2.0
//! Block devices: loop devices over files, with both block sizes. Needs root; says aloud if it
//! can't have them.

use std::path::{Path, PathBuf};

use flashfront_device::real::{Access, DeviceFile, OpenError};
use flashfront_engine::Op;

use crate::rig::{BACKENDS, Rig, file, folder, pattern, run};

/// A loop device, detached when dropped.
struct Loop {
    path: PathBuf,
    backing: PathBuf,
    _folder: tempfile::TempDir,
}

impl Loop {
    fn new(sector_bytes: u32) -> Option<Self> {
        let folder = folder();
        let backing = file(folder.path(), "backing", 64 << 20);
        let sector = sector_bytes.to_string();
        let made = run(
            "losetup",
            &["--find", "--show", "--direct-io=on", "--sector-size", &sector, backing.to_str().unwrap()],
        );
        match made {
            Ok(path) => Some(Self { path: path.into(), backing, _folder: folder }),
            Err(why) => {
                eprintln!("skipped: no loop device to be had: {why}");
                None
            }
        }
    }
}

impl Loop {
    /// Sectors that its file has on the file system.
    fn backing_sectors(&self) -> u64 {
        std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&self.backing).unwrap())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Err(why) = run("losetup", &["--detach", self.path.to_str().unwrap()]) {
            eprintln!("left behind: {}: {why}", self.path.display());
        }
    }
}

fn conforms(sector_bytes: u32) {
    let Some(device) = Loop::new(sector_bytes) else { return };
    for prefer in BACKENDS {
        let rig = Rig::real(&device.path, prefer);
        let geometry = rig.device.geometry();
        assert_eq!((geometry.size_bytes, geometry.logical_block_bytes), (64 << 20, sector_bytes));
        assert!(geometry.rotational.is_some());
        crate::conformance::suite(rig);

        let mut rig = Rig::real(&device.path, prefer);
        rig.write(0, &pattern(0, 1 << 20, 1), 0).unwrap();
        rig.run(Op::Discard, 0, 1 << 20, None).unwrap();
        assert!(rig.read(0, 1 << 20, 0).unwrap().iter().all(|byte| *byte == 0), "a loop device's holes are zeroes");

        rig.write(0, &pattern(0, 1 << 20, 1), 0).unwrap();
        rig.flush().unwrap();
        let before = device.backing_sectors();
        rig.run(Op::Punch, 0, 1 << 20, None).unwrap();
        rig.flush().unwrap();
        assert!(rig.read(0, 1 << 20, 0).unwrap().iter().all(|byte| *byte == 0));
        assert!(device.backing_sectors() + 2000 < before, "{} of {before}", device.backing_sectors());
    }
}

#[test]
fn sectors_of_512_bytes() {
    conforms(512);
}

#[test]
fn sectors_of_4096_bytes() {
    conforms(4096);
}

#[test]
fn devices_in_use_are_refused() {
    let Some(device) = Loop::new(512) else { return };
    let open = |access| DeviceFile::open(&device.path, access);
    let held = open(Access::Exclusive).unwrap();
    assert!(held.is_block_device() && held.changed_ns().unwrap().is_none());
    assert!(matches!(open(Access::Exclusive), Err(OpenError::Busy { .. })));
    drop(held);
}

#[test]
fn read_only_devices_are_refused() {
    let Some(device) = Loop::new(512) else { return };
    let open = |access| DeviceFile::open(&device.path, access);
    run("blockdev", &["--setro", device.path.to_str().unwrap()]).unwrap();
    let refused = open(Access::Exclusive);
    assert!(matches!(refused, Err(OpenError::ReadOnly { .. })), "{refused:?}");
    // Looking is allowed.
    open(Access::ReadOnly).unwrap();
    run("blockdev", &["--setrw", device.path.to_str().unwrap()]).unwrap();
    open(Access::Exclusive).unwrap();
}

/// Calls `test` with the folder of a file system made on the device; says aloud if that can't be
/// had.
fn with_ext4(device: &Loop, test: impl FnOnce(&Path)) {
    let place = folder();
    let (path, place) = (device.path.to_str().unwrap(), place.path());
    let mounted =
        run("mkfs.ext4", &["-q", "-b", "4096", path]).and_then(|_| run("mount", &[path, place.to_str().unwrap()]));
    if let Err(why) = mounted {
        eprintln!("skipped: cannot mount an ext4: {why}");
        return;
    }
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(place)));
    run("umount", &[place.to_str().unwrap()]).unwrap();
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn mounted_devices_are_refused() {
    let Some(device) = Loop::new(512) else { return };
    let open = |access| DeviceFile::open(&device.path, access);
    with_ext4(&device, |_| {
        let refused = open(Access::Exclusive);
        assert!(matches!(refused, Err(OpenError::Busy { .. })), "mounted, and opened: {refused:?}");
        // Looking is allowed.
        open(Access::ReadOnly).unwrap();
    });
    open(Access::Exclusive).unwrap();
}

/// A file on a disk of 4 KiB sectors can be written in whole sectors only: its geometry says so. A
/// file whose last sector is cut off can't be written directly at all.
#[test]
fn files_on_4096_byte_sectors() {
    let Some(device) = Loop::new(4096) else { return };
    with_ext4(&device, |folder| {
        for prefer in BACKENDS {
            let path = file(folder, "disk", 32 << 20);
            assert_eq!(DeviceFile::open(&path, Access::Exclusive).unwrap().geometry().logical_block_bytes, 4096);
            crate::conformance::suite(Rig::real(&path, prefer));
            let path = file(folder, "odd", (4 << 20) + 512);
            let odd = DeviceFile::open(&path, Access::Exclusive).unwrap();
            assert_eq!(odd.geometry().logical_block_bytes, 512);
            assert!(odd.notice().is_some());
            odd.write_at(4 << 20, &[7; 512]).unwrap();
            let mut bytes = [0; 512];
            odd.read_at(4 << 20, &mut bytes).unwrap();
            assert_eq!((bytes, odd.file().unwrap().metadata().unwrap().len()), ([7; 512], (4 << 20) + 512));
        }
    });
}

#[test]
fn two_nodes_of_one_device_are_one_device() {
    let Some(device) = Loop::new(512) else { return };
    let name = device.path.file_name().unwrap();
    let numbers = std::fs::read_to_string(Path::new("/sys/block").join(name).join("dev")).unwrap();
    let (major, minor) = numbers.trim().split_once(':').unwrap();
    let place = folder();
    let node = place.path().join("node");
    if let Err(why) = run("mknod", &[node.to_str().unwrap(), "b", major, minor]) {
        eprintln!("skipped: cannot make a device node: {why}");
        return;
    }
    let open = |path: &Path| DeviceFile::open(path, Access::ReadOnly);
    let first = open(&device.path).unwrap();
    match open(&node) {
        Ok(second) => assert!(first.identity().same_device(second.identity())),
        Err(why) => eprintln!("skipped: device nodes can't be opened here (nodev): {why}"),
    }
}
