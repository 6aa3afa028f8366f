// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache device that comes back empty, or not at all. With `--disposable-cache` it is served all
//! the same, and never at the price of dirty or foreign data.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::harness::{MIB, Random, Volume, assert_same, must, output, skip_without, tool};
use crate::refusal::{Table, assert_refused, refused};

const ORIGIN_MIB: u64 = 48;

/// A volume that was never formatted, over noise, with a disposable cache.
fn disposable() -> Volume {
    let mut volume = Volume::new(32, ORIGIN_MIB);
    fs::write(&volume.origin, Random::new(7).bytes((ORIGIN_MIB * MIB) as usize)).expect("the file is ours");
    volume.options = vec!["--disposable-cache"];
    volume
}

/// Reads the first MiB, twice: at first from the origin.
fn warm(volume: &Volume) {
    let (mut client, mut bytes) = (volume.connect(), vec![0; MIB as usize]);
    for _ in 0..3 {
        client.read_at(0, &mut bytes).expect("the volume can be read");
    }
}

/// Writes, flushes, and makes the same change in `copy`.
fn write(volume: &Volume, copy: &File, offset: u64) {
    let bytes = Random::new(offset).bytes(64 << 10);
    let mut client = volume.connect();
    client.write_at(offset, &bytes, false).expect("the volume can be written");
    client.flush().expect("the volume can be flushed");
    copy.write_all_at(&bytes, offset).expect("the file is ours");
}

fn serve(volume: &Volume, options: &[&str]) -> Command {
    let mut command = volume.serve();
    command.args(options);
    command
}

/// The life of an instance store: empty, warm after a stop and after a crash, empty again, gone,
/// back. After each step the origin has all that was acknowledged.
#[test]
fn a_cache_that_vanishes_costs_no_write() {
    let mut volume = disposable();
    let copy_path = volume.place.file("copy.img");
    fs::copy(&volume.origin, &copy_path).expect("the copy can be made");
    let copy = File::options().write(true).open(&copy_path).expect("the file is ours");
    volume.start();
    assert!(volume.stderr().contains("it held no cache, and was formatted"), "{}", volume.stderr());
    assert_eq!(volume.status()["volumes"][0]["mode"], "writethrough");
    write(&volume, &copy, MIB);
    volume.assert_serves(&copy_path);
    warm(&volume);
    assert!(volume.gauge("blocks_cached") > 0);
    volume.kill9();
    // What was acknowledged is on the origin alone.
    assert_same(&volume.origin, &copy_path);

    volume.start();
    assert!(volume.gauge("blocks_cached") > 0, "a cache that is there stays warm: {}", volume.stderr());
    write(&volume, &copy, 5 * MIB);
    volume.stop();
    let bytes = fs::metadata(&volume.cache).expect("the file is ours").len();
    let wiped = File::create(&volume.cache).expect("the file is ours");
    wiped.set_len(bytes).expect("the file is ours");
    volume.start();
    assert_eq!(volume.gauge("blocks_cached"), 0);
    write(&volume, &copy, 7 * MIB);
    volume.stop();

    let elsewhere = volume.place.file("elsewhere.img");
    fs::rename(&volume.cache, &elsewhere).expect("the file is ours");
    volume.start();
    assert_eq!(volume.status()["without_cache"], true);
    write(&volume, &copy, 9 * MIB);
    volume.stop();
    fs::rename(&elsewhere, &volume.cache).expect("the file is ours");
    // The cache that is back has old blocks, and must not show them.
    volume.start();
    assert_eq!(volume.status()["without_cache"], false);
    volume.assert_serves(&copy_path);
    volume.stop();
    assert_same(&volume.origin, &copy_path);
    volume.assert_sound();
}

#[test]
fn a_disposable_cache_of_another_origin_is_formatted() {
    let mut volume = disposable();
    volume.start();
    warm(&volume);
    volume.stop();
    let origin = File::options().write(true).open(&volume.origin).expect("the file is ours");
    origin.set_len((ORIGIN_MIB - 1) * MIB).expect("the file is ours");
    volume.start();
    let said = volume.stderr();
    assert!(said.contains("it was the cache of an origin of another size, and was formatted"), "{said}");
    volume.stop();
}

#[test]
fn dirty_data_is_never_disposed_of() {
    let mut volume = disposable();
    volume.options.clear();
    must(&mut volume.format());
    volume.start();
    volume.connect().write_at(0, &[1; 4096], true).expect("the volume can be written");
    volume.kill9();
    let origin = File::options().read(true).write(true).open(&volume.origin).expect("the file is ours");
    let mut end = vec![0; MIB as usize];
    origin.read_exact_at(&mut end, (ORIGIN_MIB - 1) * MIB).expect("the file is ours");
    origin.set_len((ORIGIN_MIB - 1) * MIB).expect("the file is ours");
    let named = format!("--disposable-cache={}", volume.cache.display());
    for flag in ["--disposable-cache", &*named] {
        assert_refused(&volume.place, &mut serve(&volume, &[flag]), &["dirty block", "not formatted", "destage"]);
    }
    // Back at its size, with its end, it is served, and the data reaches the origin.
    origin.write_all_at(&end, (ORIGIN_MIB - 1) * MIB).expect("the file is ours");
    volume.options = vec!["--disposable-cache"];
    volume.start();
    volume.drain();
    volume.stop();
    let mut block = [0; 4096];
    File::open(&volume.origin).and_then(|file| file.read_exact_at(&mut block, 0)).expect("the file is ours");
    assert_eq!(block, [1; 4096]);
}

#[test]
fn what_is_not_ours_needs_its_name() {
    if skip_without(&["mkfs.ext4"]) {
        return;
    }
    let mut volume = disposable();
    // Without a magic number anywhere.
    let raw = Random::new(1).bytes(4096);
    let cache = File::options().write(true).open(&volume.cache).expect("the file is ours");
    cache.write_all_at(&raw, 20 * MIB).expect("the file is ours");
    let words = ["data of no known kind, from byte 20971520 on", "--disposable-cache="];
    assert_refused(&volume.place, &mut volume.serve(), &words);
    must(tool("mkfs.ext4").args(["-q", "-F"]).arg(&volume.cache));
    assert_refused(&volume.place, &mut volume.serve(), &["ext4", "--disposable-cache="]);
    let named = format!("--disposable-cache={}", volume.cache.display());
    volume.options = vec![named.leak()];
    volume.start();
    assert!(volume.stderr().contains("destroyed: ext4"), "{}", volume.stderr());
    volume.stop();
}

#[test]
fn a_disposable_cache_is_for_modes_without_dirty_data() {
    let mut volume = disposable();
    let mut table = Table::default();
    for mode in ["writeback", "passthrough"] {
        let words = [mode, "not for a disposable cache", "writethrough"];
        table.case(mode, refused(&volume.place, &mut serve(&volume, &["--mode", mode]), &words));
    }
    let other = &["--disposable-cache=/dev/nowhere"];
    volume.options.clear();
    table.case(
        "other",
        refused(&volume.place, &mut serve(&volume, other), &["/dev/nowhere", "the same way both times"]),
    );
    table.assert();
    volume.options = vec!["--disposable-cache"];
    volume.start();
    let output = output(volume.ask("set").args(["--mode", "writeback"]));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("not for a disposable cache"), "{said}");
    must(volume.ask("set").args(["--mode", "writearound"]));
    volume.stop();
}
