// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache on two devices: either may die, be left out, and be replaced, and clients notice
//! nothing.
//!
//! The origin refuses writes wherever dirty data has to stay dirty. What happens at each single I/O
//! is tested in crates/proof (tests/proof/mirror/, sweep and torture).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::{Daemon, MIB, Volume, flashfront, must, output, show};
use crate::refusal::assert_refused;
use crate::told;

/// Dirty data stays dirty.
const FROZEN: [&str; 2] = ["--inject", "origin:eio,op=write"];
const BLOCKS: u64 = 500;

fn mirrored() -> (Volume, PathBuf) {
    let volume = Volume::new(32, 64);
    let mirror = volume.place.sparse("mirror.img", 40 * MIB);
    must(volume.format().arg("--mirror").arg(&mirror));
    (volume, mirror)
}

fn serve(volume: &Volume, mirror: &Path) -> Command {
    let mut command = volume.serve();
    command.arg("--mirror").arg(mirror);
    command
}

fn add(volume: &Volume, device: &Path) -> Command {
    let mut command = flashfront();
    command.arg("mirror").arg("add").arg(device).arg("--control").arg(&volume.control);
    command
}

fn content(nth: u64) -> [u8; 4096] {
    let mut block = [nth as u8 | 1; 4096];
    block[..8].copy_from_slice(&nth.to_le_bytes());
    block
}

fn write(volume: &Volume, blocks: std::ops::Range<u64>) {
    let mut client = volume.connect();
    for nth in blocks {
        client.write_at(nth * 3 * 4096, &content(nth), true).expect("no client sees the failure of one cache device");
    }
}

#[track_caller]
fn assert_serves(volume: &Volume, blocks: u64) {
    let mut client = volume.connect();
    let mut bytes = [0; 4096];
    for nth in 0..blocks {
        client.read_at(nth * 3 * 4096, &mut bytes).unwrap_or_else(|error| panic!("{error}\n{}", volume.stderr()));
        assert_eq!(bytes, content(nth), "block {nth}\n{}", volume.stderr());
    }
}

#[track_caller]
fn assert_on_origin(volume: &Volume, blocks: u64) {
    let origin = File::open(&volume.origin).expect("the file is ours");
    let mut bytes = [0; 4096];
    for nth in 0..blocks {
        origin.read_exact_at(&mut bytes, nth * 3 * 4096).expect("the file is ours");
        assert_eq!(bytes, content(nth), "block {nth} of the origin");
    }
}

/// `check` finds nothing wrong with this device.
#[track_caller]
fn assert_sound(cache: &Path) {
    let report = output(flashfront().arg("check").arg(cache).arg("--json"));
    let json: Value = serde_json::from_slice(&report.stdout).unwrap_or_else(|_| panic!("{}", show(&report)));
    assert_eq!(json["ok"], true, "{}: {json}", cache.display());
}

fn either_may_die(which: &str) {
    let (volume, mirror) = mirrored();
    let (dead, left) = if which == "cache" { (&volume.cache, &mirror) } else { (&mirror, &volume.cache) };
    let faults = format!("{which}:eio,op=write,after=60");
    let daemon = Daemon::spawn(serve(&volume, &mirror).args(FROZEN).args(["--inject", &faults]), &volume.log);
    daemon.ready();
    assert_eq!(volume.status()["mirror"], "whole");
    write(&volume, 0..BLOCKS);
    let status = volume.status();
    assert_eq!(status["mirror"], "alone", "{status}");
    assert_eq!(status["cache_failed"], false, "{status}");
    assert_eq!(status["blocks_dirty"], BLOCKS, "{status}");
    assert_eq!(status["cache_devices"][0]["path"], left.display().to_string(), "{status}");
    assert!(must(&mut volume.ask("status")).contains("ALONE"));
    let said = volume.stderr();
    told::assert_log_is_told(&said);
    let left_out = format!("{}: it failed and is left out", dead.display());
    assert!(said.contains(&left_out), "{said}");
    daemon.kill9();
    for device in [&volume.cache, &mirror] {
        assert_sound(device);
    }

    // The one that was left out is not served, neither by itself nor with the other.
    assert_refused(&volume.place, &mut volume.serve_from(dead), &["half of a mirrored cache", "--without-mirror"]);
    let daemon = Daemon::spawn(serve(&volume, &mirror).args(FROZEN), &volume.log);
    daemon.ready();
    assert!(volume.stderr().contains(&format!("{}: it was left out", dead.display())), "{}", volume.stderr());
    assert_eq!(volume.status()["mirror"], "alone");
    assert_serves(&volume, BLOCKS);

    // It comes back as a new one.
    let refused = output(&mut add(&volume, dead));
    assert!(!refused.status.success() && show(&refused).contains("--force"), "{}", show(&refused));
    must(add(&volume, dead).arg("--force"));
    assert_eq!(volume.status()["mirror"], "whole");
    daemon.kill9();
    for device in [&volume.cache, &mirror] {
        assert_sound(device);
    }
    let daemon = Daemon::spawn(&mut serve(&volume, &mirror), &volume.log);
    daemon.ready();
    assert_eq!(volume.status()["mirror"], "whole");
    assert_serves(&volume, BLOCKS);
    volume.drain();
    daemon.stop();
    assert_on_origin(&volume, BLOCKS);
}

/// The device that is left of two is the cache, and gets another size.
fn what_is_left_grows_and_shrinks(which: &str) {
    let (volume, mirror) = mirrored();
    let left = if which == "cache" { &mirror } else { &volume.cache };
    let faults = format!("{which}:eio,op=write,after=60");
    let daemon = Daemon::spawn(serve(&volume, &mirror).args(FROZEN).args(["--inject", &faults]), &volume.log);
    daemon.ready();
    let resize = |mib: u64, verb: &str, size: &[&str]| {
        let device = File::options().write(true).open(left).expect("the file is ours");
        device.set_len(mib * MIB).expect("the file is ours");
        output(volume.ask_two(["cache", verb]).args(size))
    };
    let refused = resize(48, "grow", &[]);
    assert!(!refused.status.success() && show(&refused).contains("mirror remove"), "{}", show(&refused));
    write(&volume, 0..BLOCKS);
    assert_eq!(volume.status()["mirror"], "alone");
    let mut grown = resize(48, "grow", &[]);
    let mut daemon = Some(daemon);
    if which == "cache" {
        // The clean data is on the other one.
        assert!(!grown.status.success() && show(&grown).contains("does not grow"), "{}", show(&grown));
        daemon.take().expect("it runs").kill9();
        daemon = Some(Daemon::spawn(serve(&volume, &mirror).args(FROZEN), &volume.log));
        daemon.as_ref().expect("it runs").ready();
        grown = resize(48, "grow", &[]);
    }
    assert!(grown.status.success(), "{}\n{}", show(&grown), volume.stderr());
    assert_serves(&volume, BLOCKS);
    let shrunk = resize(48, "shrink", &["24MiB"]);
    assert!(shrunk.status.success(), "{}\n{}", show(&shrunk), volume.stderr());
    assert_serves(&volume, BLOCKS);
    daemon.expect("it runs").kill9();
    assert_sound(left);
    let daemon = Daemon::spawn(&mut serve(&volume, &mirror), &volume.log);
    daemon.ready();
    assert_eq!(volume.status()["cache_devices"][0]["path"], left.display().to_string());
    assert_serves(&volume, BLOCKS);
    volume.drain();
    daemon.stop();
    assert_on_origin(&volume, BLOCKS);
}

#[test]
fn a_lead_that_is_left_alone_grows_and_shrinks() {
    what_is_left_grows_and_shrinks("mirror");
}

#[test]
fn a_mirror_that_is_left_alone_grows_and_shrinks_after_a_restart() {
    what_is_left_grows_and_shrinks("cache");
}

#[test]
fn the_lead_may_die() {
    either_may_die("cache");
}

#[test]
fn the_mirror_may_die() {
    either_may_die("mirror");
}

#[test]
fn a_mirror_is_added_online_and_outlives_the_first_device() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let mirror = volume.place.sparse("mirror.img", 32 * MIB);
    let daemon = Daemon::spawn(volume.serve().args(FROZEN), &volume.log);
    daemon.ready();
    write(&volume, 0..BLOCKS);
    let small = volume.place.sparse("small.img", 16 * MIB);
    for (device, says) in [(&small, "at least as large"), (&volume.origin, "in use by this cache")] {
        let refused = output(&mut add(&volume, device));
        assert!(!refused.status.success() && show(&refused).contains(says), "{}", show(&refused));
    }
    assert_eq!(volume.status()["mirror"], "none");
    assert!(must(&mut add(&volume, &mirror)).contains("holds all dirty data too"));
    let refused = output(&mut add(&volume, &small));
    assert!(show(&refused).contains("has a mirror already"), "{}", show(&refused));
    write(&volume, BLOCKS..2 * BLOCKS);
    daemon.kill9();
    assert_sound(&mirror);
    let dump = must(flashfront().arg("dump").arg(&mirror));
    assert!(dump.contains("whole; this is member 1, the lead is 0"), "{dump}");

    std::fs::remove_file(&volume.cache).expect("the file is ours");
    let words = ["cache.img", "mirror.img", "--without-mirror"];
    assert_refused(&volume.place, &mut serve(&volume, &mirror), &words);
    assert_refused(&volume.place, &mut volume.serve_from(&mirror), &["half of a mirrored cache", "--without-mirror"]);
    let daemon = Daemon::spawn(volume.serve_from(&mirror).arg("--without-mirror"), &volume.log);
    daemon.ready();
    assert_eq!(volume.status()["mirror"], "alone");
    assert_serves(&volume, 2 * BLOCKS);
    volume.drain();
    daemon.stop();
    assert_on_origin(&volume, 2 * BLOCKS);
    // Once said, it is known, also if the file still names both.
    let daemon = Daemon::spawn(&mut serve(&volume, &mirror), &volume.log);
    daemon.ready();
    daemon.stop();
    let detached = must(flashfront().arg("detach").arg("--cache").arg(&mirror).arg("--origin").arg(&volume.origin));
    assert!(detached.contains("other half"), "{detached}");
}

#[test]
fn what_is_no_pair_is_refused() {
    let (volume, mirror) = mirrored();
    let mut again = volume.format();
    again.arg("--mirror").arg(&volume.cache);
    assert_refused(&volume.place, &mut again, &["are the same device"]);
    let blank = volume.place.sparse("blank.img", 32 * MIB);
    let mut occupied = flashfront();
    occupied.arg("format").arg("--cache").arg(&blank).arg("--mirror").arg(&mirror).arg("--origin").arg(&volume.origin);
    assert_refused(&volume.place, &mut occupied, &["mirror.img", "--force"]);
    must(flashfront().arg("format").arg("--cache").arg(&blank).arg("--origin").arg(&volume.origin));
    assert_refused(&volume.place, &mut serve(&volume, &blank), &["do not belong to one cache"]);
    assert_refused(&volume.place, &mut volume.serve(), &["half of a mirrored cache", "--without-mirror"]);
    let mut detach = flashfront();
    detach.arg("detach").arg("--cache").arg(&volume.cache).arg("--origin").arg(&volume.origin);
    assert_refused(&volume.place, &mut detach, &["--mirror"]);
    must(detach.arg("--mirror").arg(&mirror));
    assert_refused(&volume.place, &mut serve(&volume, &mirror), &["no Flashfront cache"]);
}
