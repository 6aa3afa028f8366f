// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::Write;

use super::*;

const SHORT: Duration = Duration::from_millis(40);

/// A file on a disk: RAM disks take no O_DIRECT on older kernels.
fn file(bytes: u64) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = folder.path().join("device");
    let mut file = File::create(&path).unwrap();
    file.write_all(&[7; 4096]).unwrap();
    file.set_len(bytes).unwrap();
    (folder, path)
}

#[test]
fn a_device_is_read_and_nothing_else() {
    let (_folder, path) = file(DEVICE_BYTES_MIN);
    let before = std::fs::read(&path).unwrap();
    let about = std::fs::metadata(&path).unwrap();
    // As a user without the right to write has it.
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o444)).unwrap();
    let progress = Progress::default();
    let measured = match measure(&path, SHORT, &progress, &AtomicBool::new(false)) {
        Ok(measured) => measured,
        Err(PaceError::Open(_, error)) => return eprintln!("skipped: no O_DIRECT here: {error}"),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(measured.device_bytes, DEVICE_BYTES_MIN);
    assert!(measured.times.0.iter().all(|time| *time > 0.0), "{measured:?}");
    assert_eq!(progress.done_ms.into_inner(), progress.whole_ms.into_inner());
    let after = std::fs::metadata(&path).unwrap();
    assert_eq!((about.mtime_nsec(), about.ctime() > after.ctime()), (after.mtime_nsec(), false));
    assert!(std::fs::read(&path).unwrap() == before, "not a byte is another");
}

#[test]
fn the_descriptor_can_t_write() {
    let (_folder, path) = file(DEVICE_BYTES_MIN);
    let Ok((opened, _)) = open(&path) else { return eprintln!("skipped: no O_DIRECT here") };
    let flags = rustix::fs::fcntl_getfl(&opened).unwrap();
    assert_eq!(flags & OFlags::ACCMODE, OFlags::RDONLY);
    assert!(opened.write_at(&[0; 512], 0).is_err());
}

#[test]
fn what_can_t_be_measured_is_said() {
    let (_folder, path) = file(4096);
    let of = |path: &Path, stop: bool| {
        measure(path, SHORT, &Progress::default(), &AtomicBool::new(stop)).map(|_| ()).unwrap_err().to_string()
    };
    assert!(of(&path, false).contains("4096 bytes"), "{}", of(&path, false));
    assert!(of(Path::new("/dev/null"), false).contains("neither a block device"));
    assert!(of(Path::new("/nowhere/at-all"), false).contains("can't be opened"));
    let (_folder, path) = file(DEVICE_BYTES_MIN);
    let stopped = of(&path, true);
    assert!(stopped.contains("not measured to the end") || stopped.contains("O_DIRECT"), "{stopped}");
}

#[test]
fn requests_of_others_are_told_from_ours() {
    let of = |ours, others| {
        let times = Times([1.0; COUNT]);
        Measured { device_bytes: 0, times, hints: Hints::default(), ours, others }.was_busy()
    };
    assert!(of(1000, Some(51)) && !of(1000, Some(50)) && !of(1000, None));
}
