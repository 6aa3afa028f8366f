// SPDX-License-Identifier: MIT OR Apache-2.0
//! `format` discards (TRIM) a block device, unless it is told not to; files stay as they are.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::{MIB, Random, Volume, flashfront, is_root, must, output, show, skip, skip_without, tool};

/// A loop device on a plain file, which becomes sparse where the device is discarded.
struct Loop(PathBuf);

impl Drop for Loop {
    fn drop(&mut self) {
        output(tool("losetup").arg("--detach").arg(&self.0));
    }
}

/// A file of 32 MiB of noise, none of it recognisable.
fn full(path: &Path) {
    let file = File::create(path).expect("a file can be made here");
    // What looks like nothing at both ends, and noise between.
    file.write_all_at(&vec![0; 32 * MIB as usize], 0).expect("a file can be made here");
    file.write_all_at(&Random::new(9).bytes(24 * MIB as usize), 4 * MIB).expect("a file can be made here");
    file.sync_all().expect("a file can be made here");
}

fn allocated(path: &Path) -> u64 {
    File::open(path).and_then(|file| file.sync_all().and(file.metadata())).expect("the file is ours").blocks() * 512
}

fn format(cache: &Path, volume: &Volume, flags: &[&str]) -> Value {
    let mut command = flashfront();
    command
        .arg("format")
        .arg("--cache")
        .arg(cache)
        .arg("--origin")
        .arg(&volume.origin)
        .arg("--json")
        .arg("--force")
        .args(flags);
    let text = must(&mut command);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn format_discards_a_block_device_and_no_file() {
    let volume = Volume::new(32, 64);
    full(&volume.cache);
    let report = format(&volume.cache, &volume, &[]);
    assert_eq!(report["discarded_bytes"], 0, "{report}");
    assert_eq!(allocated(&volume.cache), 32 * MIB, "a file made whole stays whole");

    if !is_root() || !Path::new("/dev/loop-control").exists() {
        skip("only root may attach loop devices, where there are any");
        return;
    }
    if skip_without(&["losetup"]) {
        return;
    }
    full(&volume.cache);
    let device = must(tool("losetup").args(["--find", "--show", "--direct-io=on"]).arg(&volume.cache));
    let device = Loop(device.trim().into());
    let report = format(&device.0, &volume, &["--no-discard"]);
    assert_eq!(report["discarded_bytes"], 0, "{report}");
    assert_eq!(allocated(&volume.cache), 32 * MIB);

    let report = format(&device.0, &volume, &[]);
    assert!(report["discarded_bytes"].as_u64() >= Some(31 * MIB), "{report}");
    let left = allocated(&volume.cache);
    assert!(left <= 2 * MIB, "{left} bytes are still allocated");
    let text = must(flashfront().args(["check", "--json"]).arg(&device.0));
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(report["ok"], true, "{report}");

    // People are told.
    let mut again = flashfront();
    again.args(["format", "--force", "--cache"]).arg(&device.0).arg("--origin").arg(&volume.origin);
    assert!(must(&mut again).contains("TRIM"));

    // What is refused is not discarded; above all not the origin, by another name.
    let mut itself = flashfront();
    itself.arg("format").arg("--cache").arg(&device.0).arg("--origin").arg(&volume.cache);
    refused(itself.arg("--force"), "same device");
    let mut attached = flashfront();
    attached.arg("format").arg("--cache").arg(&volume.cache).arg("--origin").arg(&volume.origin);
    refused(attached.arg("--force"), "losetup --detach");
    refused(&mut volume.serve(), "losetup --detach");
    drop(device);
    full(&volume.cache);
    let file = File::options().write(true).open(&volume.cache).expect("the file is ours");
    file.write_all_at(b"LUKS\xba\xbe\0\x02", 0).expect("the file is ours");
    drop(file);
    let device = must(tool("losetup").args(["--find", "--show", "--direct-io=on"]).arg(&volume.cache));
    let device = Loop(device.trim().into());
    let mut occupied = flashfront();
    occupied.arg("format").arg("--cache").arg(&device.0).arg("--origin").arg(&volume.origin);
    refused(&mut occupied, "luks");
    assert_eq!(allocated(&volume.cache), 32 * MIB);
}

#[track_caller]
fn refused(command: &mut Command, word: &str) {
    let output = output(command);
    let stderr = String::from_utf8_lossy(&output.stderr).to_lowercase();
    assert!(!output.status.success() && stderr.contains(word), "{command:?}: {}", show(&output));
}
