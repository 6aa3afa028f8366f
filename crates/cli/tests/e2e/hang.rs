// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device that hangs: a file on FUSE whose daemon, another one of ours, is stopped for a while.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::fuse::skip_without_fuse;
use crate::harness::{Daemon, MIB, Volume, must, output, tool};
use crate::refusal::assert_refused;
use crate::told;

/// For what takes the device's time and a little more.
const LIMIT: Duration = Duration::from_secs(60);
const IN_TIME: [&str; 2] = ["--device-timeout", "3s"];

/// A file that hangs when it is told to.
struct Hanging {
    daemon: Daemon,
    folder: PathBuf,
    file: PathBuf,
    // Dropped behind the daemon that uses it.
    _volume: Volume,
}

impl Hanging {
    fn new(mib: u64) -> Self {
        let volume = Volume::new(32, mib);
        must(&mut volume.format());
        let folder = volume.place.socket("disk");
        std::fs::create_dir(&folder).expect("a folder can be made");
        let daemon = Daemon::spawn(volume.serve_nowhere().arg("--fuse").arg(&folder), &volume.log);
        daemon.ready();
        Self { daemon, file: folder.join("data"), folder, _volume: volume }
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        // The daemon is killed next, and its mount would keep the folder of the test.
        output(tool("umount").arg("--lazy").arg("--quiet").arg(&self.folder));
    }
}

#[test]
fn an_origin_that_hangs_harms_only_what_needs_it_and_comes_back() {
    if skip_without_fuse() {
        return;
    }
    let hanging = Hanging::new(64);
    let mut volume = Volume::new(32, 64);
    volume.origin.clone_from(&hanging.file);
    volume.options = IN_TIME.to_vec();
    must(&mut volume.format());
    volume.start();
    let mut client = volume.connect();
    client.write_at(0, &[1; 4096], true).expect("all is well");
    // With it ends the flush of the start: if that failed, the stop would say that something may be
    // lost.
    volume.drain();

    hanging.daemon.signal(Signal::STOP);
    let mut bytes = [0; 4096];
    for nth in 0..3 {
        let began = Instant::now();
        client.read_at(nth * MIB + 8 * MIB, &mut bytes).expect_err("the origin does not answer");
        assert!(began.elapsed() < LIMIT);
    }
    // What is cached, writes, and whoever asks need no origin.
    client.read_at(0, &mut bytes).expect("it is cached");
    assert_eq!(bytes, [1; 4096]);
    client.write_at(0, &[2; 4096], true).expect("the cache takes it");
    let hang = &volume.status()["volumes"][0]["origin_hang"];
    assert!(hang["ios"].as_u64() >= Some(1) && hang["silent_s"].is_u64(), "{hang}");
    assert!(must(&mut volume.ask("status")).contains("HANGS"));

    hanging.daemon.signal(Signal::CONT);
    let began = Instant::now();
    while !volume.status()["volumes"][0]["origin_hang"].is_null() {
        assert!(began.elapsed() < LIMIT, "it answers, but counts as hanging");
    }
    client.read_at(8 * MIB, &mut bytes).expect("the origin answers again");
    drop(client);
    volume.drain();
    let said = volume.stderr();
    told::assert_log_is_told(&said);
    for line in ["the origin hangs", "the origin answers again"] {
        assert_eq!(said.matches(line).count(), 1, "{line}: {said}");
    }
    volume.stop();
}

#[test]
fn a_start_names_the_device_that_does_not_answer() {
    if skip_without_fuse() {
        return;
    }
    let hanging = Hanging::new(64);
    let mut volume = Volume::new(32, 64);
    volume.origin.clone_from(&hanging.file);
    must(&mut volume.format());
    hanging.daemon.signal(Signal::STOP);
    let path = hanging.file.display().to_string();
    assert_refused(&volume.place, volume.serve().args(IN_TIME), &[&path, "does not answer", "--device-timeout"]);
    hanging.daemon.signal(Signal::CONT);
    volume.start();
    volume.stop();
}

/// The cache device is the file: what is clean is read from the origin, and this cache is not
/// served again.
#[test]
fn a_cache_device_that_hangs_is_a_failed_one() {
    if skip_without_fuse() {
        return;
    }
    let hanging = Hanging::new(32);
    let mut volume = Volume::new(32, 64);
    volume.cache.clone_from(&hanging.file);
    must(volume.format().args(["--mode", "writethrough"]));
    let mut daemon = Daemon::spawn(volume.serve().args(IN_TIME), &volume.log);
    daemon.ready();
    let mut client = volume.connect();
    let mut bytes = [0; 4096];
    for nth in 0..64 {
        client.write_at(nth * 4096, &[nth as u8 + 1; 4096], nth == 63).expect("all is well");
    }
    for nth in 0..64 {
        client.read_at(nth * 4096, &mut bytes).expect("all is well");
    }
    hanging.daemon.signal(Signal::STOP);
    for nth in 0..64 {
        client.read_at(nth * 4096, &mut bytes).expect("the origin has it");
        assert_eq!(bytes, [nth as u8 + 1; 4096]);
    }
    client.write_at(0, &[99; 4096], true).expect("the origin takes it");
    client.read_at(0, &mut bytes).expect("the origin has it");
    assert_eq!(bytes, [99; 4096]);
    assert_eq!(volume.status()["cache_failed"], true);
    drop(client);
    daemon.signal(Signal::TERM);
    // A thread of the daemon may sleep in the kernel until the file answers.
    let began = Instant::now();
    while !volume.stderr().contains("the cache device had failed") {
        assert!(began.elapsed() < LIMIT, "{}", volume.stderr());
    }
    hanging.daemon.signal(Signal::CONT);
    assert_eq!(daemon.ended().code(), Some(1));
    assert_refused(&volume.place, &mut volume.serve(), &["failed in the last run"]);
}
