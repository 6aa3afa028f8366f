// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of what may be overwritten, on files; devices are in the end-to-end tests.

use std::os::unix::fs::FileExt;

use super::*;

fn file(name: &str) -> (tempfile::TempDir, TargetSpec) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    let target = TargetSpec::parse(path.to_str().unwrap()).unwrap();
    (folder, target)
}

fn word(target: &TargetSpec) -> MayDestroy {
    MayDestroy(vec![target.text.clone()])
}

#[test]
fn only_a_word_in_full_lets_bench_write() {
    let (_folder, target) = file("a.img");
    let none = MayDestroy::default();
    assert!(check(&target, false, &none).is_ok(), "reads need no word");
    let error = check(&target, true, &none).unwrap_err().to_string();
    assert!(error.contains(&format!("--destroy-data {}", target.text)), "{error}");
    assert!(check(&target, true, &MayDestroy(vec!["a.img".to_owned()])).is_err(), "not in full");
    assert_eq!(check(&target, true, &word(&target)).unwrap(), Vec::<String>::new());
    let nbd = TargetSpec::parse("nbd://host/export").unwrap();
    assert!(check(&nbd, true, &none).is_err() && check(&nbd, true, &word(&nbd)).is_ok());
}

#[test]
fn a_file_system_is_named_and_a_member_is_never_overwritten() {
    let (_folder, target) = file("ext.img");
    let disk = std::fs::OpenOptions::new().write(true).open(&target.text).unwrap();
    disk.write_all_at(b"\x53\xef", 0x438).unwrap();
    let error = check(&target, true, &MayDestroy::default()).unwrap_err().to_string();
    assert!(error.contains("ext2 file system") && error.contains("--destroy-data"), "{error}");
    assert_eq!(check(&target, true, &word(&target)).unwrap(), ["ext2 file system"]);
    disk.write_all_at(b"LABELONE", 512).unwrap();
    disk.write_all_at(b"LVM2 001", 512 + 24).unwrap();
    let error = check(&target, true, &word(&target)).unwrap_err().to_string();
    assert!(error.contains("LVM2 physical volume") && error.contains("wipefs"), "{error}");
}

#[test]
fn what_somebody_uses_is_refused() {
    let (_folder, target) = file("used.img");
    let _user = open(Path::new(&target.text), true).unwrap();
    let error = check(&target, true, &word(&target)).unwrap_err().to_string();
    assert!(error.contains("in use"), "{error}");
}

#[test]
fn a_word_about_nothing_is_a_slip() {
    let error = MayDestroy(vec!["/dev/sdx".to_owned()]).all_used(["/dev/sdy"].into_iter()).unwrap_err().to_string();
    assert!(error.contains("/dev/sdx names nothing") && error.contains("/dev/sdy"), "{error}");
}
