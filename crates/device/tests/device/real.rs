// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of what only real devices do: refuse what isn't one, lock, fail like a file system, be
//! recognised.

use std::os::unix::fs::FileExt;
use std::path::Path;

use flashfront_device::real::{Access, DeviceFile, OpenError, fingerprint};
use flashfront_engine::{DeviceError, Op};

use crate::rig::{BACKENDS, Rig, file, folder, pattern, run};

fn open(path: &Path) -> Result<DeviceFile, OpenError> {
    DeviceFile::open(path, Access::Exclusive)
}

#[test]
fn what_is_no_device_is_refused_with_a_reason() {
    let folder = folder();
    let message = |path: &Path| open(path).unwrap_err().to_string();
    let missing = folder.path().join("missing");
    assert!(message(&missing).contains("No such file"), "{}", message(&missing));
    assert!(message(&file(folder.path(), "empty", 0)).contains("is empty"));
    let odd = message(&file(folder.path(), "odd", 1 << 20 | 100));
    assert!(odd.contains("1048676") && odd.contains("multiple of 512"), "{odd}");
    assert!(message(folder.path()).contains("neither a regular file nor a block device"));
    assert!(message(Path::new("/dev/null")).contains("neither a regular file nor a block device"));
}

#[test]
fn a_device_in_use_is_refused() {
    let folder = folder();
    let path = file(folder.path(), "disk", 1 << 20);
    let link = folder.path().join("link");
    std::fs::hard_link(&path, &link).unwrap();
    let held = open(&path).unwrap();
    for (path, access) in [(&link, Access::Exclusive), (&path, Access::ReadOnly)] {
        let error = DeviceFile::open(path, access).unwrap_err();
        assert!(matches!(error, OpenError::Busy { .. }), "{error}");
        let holder = format!("in use by process {} (", std::process::id());
        assert!(error.to_string().contains(&holder), "{error}");
    }
    drop(held);
    let readers =
        [DeviceFile::open(&path, Access::ReadOnly).unwrap(), DeviceFile::open(&path, Access::ReadOnly).unwrap()];
    assert!(matches!(open(&path), Err(OpenError::Busy { .. })));
    drop(readers);
    open(&path).unwrap();
}

#[test]
fn one_device_by_several_names_is_one_device() {
    let folder = folder();
    let path = file(folder.path(), "disk", 1 << 20);
    let (hard, soft) = (folder.path().join("hard"), folder.path().join("soft"));
    std::fs::hard_link(&path, &hard).unwrap();
    std::os::unix::fs::symlink(&path, &soft).unwrap();
    let open = |path: &Path| DeviceFile::open(path, Access::ReadOnly).unwrap();
    let device = open(&path);
    for name in [&path, &hard, &soft] {
        assert!(open(name).identity().same_device(device.identity()));
    }
    let other = open(&file(folder.path(), "other", 1 << 20));
    assert!(!other.identity().same_device(device.identity()));
}

#[test]
fn the_offline_helpers_take_any_range() {
    let folder = folder();
    let path = file(folder.path(), "disk", 4 << 20);
    let device = open(&path).unwrap();
    let data = pattern(0, 3 << 20, 1);
    device.write_at(512 << 10, &data).unwrap();
    device.sync().unwrap();
    for (offset, len) in [(0, 1), (524_287, 2), (524_289, 3 << 20), (511, 2 << 20), ((4 << 20) - 7, 7)] {
        let mut direct = vec![0; len];
        let mut plain = vec![1; len];
        device.read_at(offset, &mut direct).unwrap();
        std::fs::File::open(&path).unwrap().read_exact_at(&mut plain, offset).unwrap();
        assert!(direct == plain, "{len} bytes at {offset}");
    }
    assert!(device.read_at((4 << 20) - 7, &mut [0; 8]).is_err(), "beyond the end");
    for (offset, len) in [(100, 512), (0, 100), (4 << 20, 4096), ((4 << 20) - 512, 1024), (u64::MAX - 511, 512)] {
        let error = device.write_at(offset, &vec![0; len]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{len} bytes at {offset}");
    }
    assert_eq!(device.file().unwrap().metadata().unwrap().len(), 4 << 20);
}

#[test]
fn discarded_space_reads_zero_and_is_given_back() {
    use std::os::unix::fs::MetadataExt;
    for prefer in BACKENDS {
        let folder = folder();
        let path = file(folder.path(), "disk", 4 << 20);
        let mut rig = Rig::real(&path, prefer);
        rig.write(0, &pattern(0, 1 << 20, 1), 0).unwrap();
        rig.flush().unwrap();
        let before = std::fs::metadata(&path).unwrap().blocks();
        rig.run(Op::Discard, 0, 1 << 20, None).unwrap();
        rig.flush().unwrap();
        assert!(rig.read(0, 1 << 20, 0).unwrap().iter().all(|byte| *byte == 0));
        let meta = std::fs::metadata(&path).unwrap();
        assert!(meta.blocks() + 2000 < before, "{} of {before} sectors left", meta.blocks());
        assert_eq!(meta.len(), 4 << 20);
    }
}

/// Zeroes of a thin file take no space if the client allows that, whether there was data or a hole;
/// else they take it.
#[test]
fn zeroes_take_space_only_if_they_must() {
    use std::os::unix::fs::MetadataExt;
    for prefer in BACKENDS {
        let folder = folder();
        let path = file(folder.path(), "disk", 8 << 20);
        let mut rig = Rig::real(&path, prefer);
        let sectors = || std::fs::metadata(&path).unwrap().blocks();
        rig.write(0, &pattern(0, 1 << 20, 1), 0).unwrap();
        rig.flush().unwrap();
        rig.run(Op::Punch, 0, 4 << 20, None).unwrap();
        rig.flush().unwrap();
        assert!(sectors() < 100, "{} sectors of a file of zeroes", sectors());
        assert!(rig.read(0, 1 << 20, 0).unwrap().iter().all(|byte| *byte == 0));
        rig.write(6 << 20, &pattern(0, 4096, 1), 0).unwrap();
        rig.run(Op::Zero, 4 << 20, 4 << 20, None).unwrap();
        rig.flush().unwrap();
        assert!(sectors() >= (4 << 20) / 512, "{} sectors where space was wanted", sectors());
        assert!(rig.read(4 << 20, 4 << 20, 0).unwrap().iter().all(|byte| *byte == 0));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 8 << 20);
    }
}

/// A file that is cut while it is open: an error, not a loop, not zeroes.
#[test]
fn a_file_that_became_shorter_is_an_error() {
    for prefer in BACKENDS {
        let folder = folder();
        let path = file(folder.path(), "disk", 1 << 20);
        let mut rig = Rig::real(&path, prefer);
        rig.write(0, &pattern(0, 1 << 20, 1), 0).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(512 << 10).unwrap();
        assert_eq!(rig.read(768 << 10, 4096, 0), Err(DeviceError::Io));
        assert_eq!(rig.read((512 << 10) - 4096, 8192, 0), Err(DeviceError::Io));
        assert!(rig.read((512 << 10) - 4096, 4096, 0).is_ok());
    }
}

/// Mounts a RAM file system and calls `test` with its folder; says aloud when that is not possible.
fn mounted(kind: &str, options: &str, test: impl FnOnce(&Path)) {
    let folder = folder();
    let path = folder.path().to_str().unwrap();
    if let Err(why) = run("mount", &["-t", kind, "-o", options, "flashfront-test", path]) {
        eprintln!("skipped: cannot mount a {kind}: {why}");
        return;
    }
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(folder.path())));
    run("umount", &["-l", path]).unwrap();
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn a_full_file_system_is_no_space() {
    mounted("tmpfs", "size=1m", |folder| {
        for prefer in BACKENDS {
            let path = file(folder, "disk", 8 << 20);
            let mut rig = Rig::real(&path, prefer);
            let results: Vec<_> = (0..4).map(|i| rig.write(i << 20, &pattern(0, 1 << 20, 1), 0)).collect();
            assert_eq!(results.last(), Some(&Err(DeviceError::NoSpace)), "{results:?}");
            // Room again after a discard.
            rig.run(Op::Discard, 0, 4 << 20, None).unwrap();
            rig.write(0, &pattern(0, 4096, 2), 0).unwrap();
            assert!(rig.read(0, 4096, 0).unwrap() == pattern(0, 4096, 2));
            std::fs::remove_file(path).unwrap();
        }
    });
}

#[test]
fn without_direct_io_there_is_a_notice_and_all_the_rest() {
    mounted("ramfs", "mode=700", |folder| {
        for prefer in BACKENDS {
            let path = file(folder, "disk", 32 << 20);
            {
                let device = open(&path).unwrap();
                assert!(device.notice().is_some_and(|notice| notice.contains("no direct I/O")));
                assert_eq!(device.geometry().logical_block_bytes, 512);
            }
            crate::conformance::suite(Rig::real(&path, prefer));
        }
    });
    let folder = folder();
    assert_eq!(open(&file(folder.path(), "disk", 1 << 20)).unwrap().notice(), None);
}

#[test]
fn a_fingerprint_notices_changes() {
    let folder = folder();
    for size in [512, 4096, 1 << 20, (1 << 20) + 512, 3 << 20, 64 << 20] {
        let path = file(folder.path(), "disk", size);
        let take = || fingerprint(&open(&path).unwrap()).unwrap();
        let first = take();
        assert_eq!(take(), first);
        assert!(first.changed_ns.is_some());
        let mut seen = vec![first.content];
        for offset in [0, size - 1, size.min(1 << 20) / 2] {
            std::fs::OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&[1], offset).unwrap();
            seen.push(take().content);
        }
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(size + 512).unwrap();
        seen.push(take().content);
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count, "a change of {size} bytes went unnoticed");
    }
    // Behind a table: an ext4 superblock in a first partition or a logical volume, and in LUKS2.
    let path = file(folder.path(), "table", 64 << 20);
    let take = || fingerprint(&open(&path).unwrap()).unwrap();
    for offset in [(1 << 20) + 1080, (16 << 20) + 1080, (16 << 20) + 65600, 5 << 20] {
        let before = take();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&[1], offset).unwrap();
        let after = take();
        assert!(after.content != before.content && !after.is_content(before.content), "byte {offset}");
    }
    assert!(take().is_content(take().content) && take().is_content(take().content_before));
    // The samples inside: filling the middle of a large file is seen.
    let path = file(folder.path(), "large", 256 << 20);
    let before = fingerprint(&open(&path).unwrap()).unwrap();
    let handle = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    for i in 32..64 {
        handle.write_all_at(&[1; 1 << 20], i << 20).unwrap();
    }
    drop(handle);
    assert_ne!(fingerprint(&open(&path).unwrap()).unwrap().content, before.content);
}
