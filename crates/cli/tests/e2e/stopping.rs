// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stops beside troubles: an origin that is full, a device that hangs, data above that nobody has
//! written yet.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::process::Signal;

use crate::block_device::{BlockDevice, Mount, skip_without_block_devices};
use crate::fuse::{Shown, skip_without_fuse};
use crate::harness::{Daemon, MIB, Volume, flashfront, must, skip_without, tool};

/// What a signal sent twice by a wrapper must not do is in the exit code: at once it is not 0.
#[test]
fn two_signals_in_a_row_are_one_clean_stop() {
    let mut volume = Volume::served(32, 64, "writeback");
    let mut client = volume.connect();
    for block in 0..4000_u64 {
        client.write_at(block * 2 * 4096, &[8; 4096], false).expect("the volume can be written");
    }
    client.flush().expect("the volume can be flushed");
    drop(client);
    volume.signal(Signal::INT);
    volume.signal(Signal::TERM);
    volume.ended();
    assert_clean_stop(&volume.cache);
}

#[test]
fn the_log_says_that_a_stop_was_asked_for_before_it_says_what_the_stop_does() {
    let mut volume = Volume::new(16, 16);
    must(&mut volume.format());
    for _ in 0..10 {
        volume.start();
        volume.signal(Signal::TERM);
        volume.ended();
        let said = volume.stderr();
        let place = |words: &str| said.rfind(words).unwrap_or_else(|| panic!("{words}: {said}"));
        assert!(place("asked to stop") < place("stopping: finishing what is in flight"), "{said}");
    }
}

#[track_caller]
fn assert_clean_stop(cache: &Path) {
    let text = must(flashfront().arg("check").arg(cache).arg("--json"));
    let report: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(report["clean_stop"], true, "{report}");
}

#[test]
fn a_later_signal_ends_at_once_and_loses_nothing_flushed() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let faults = ["--inject", "origin:stall,op=read,hold=1h"];
    let mut daemon = Daemon::spawn(volume.serve().args(faults), &volume.log);
    daemon.ready();
    let mut client = volume.connect();
    for block in 0..1000_u64 {
        client.write_at(block * 2 * 4096, &[8; 4096], false).expect("the volume can be written");
    }
    client.flush().expect("the volume can be flushed");
    // A miss, which the origin doesn't answer.
    let miss = std::thread::spawn(move || client.read_at(48 * MIB, &mut [0; 4096]).is_err());
    while volume.gauge("requests_in_flight") == 0 {
        std::thread::yield_now();
    }
    let status = daemon.ended_by_many(Signal::TERM);
    assert_eq!(status.code(), Some(1), "{}", daemon.stderr());
    let said = daemon.stderr();
    assert!(said.contains("Another signal") && said.contains("stopping at once"), "{said}");
    assert!(miss.join().expect("it ends"), "an answer from nowhere");

    let mut again = volume.again();
    again.start();
    let (mut client, mut bytes) = (again.connect(), [0; 4096]);
    for block in 0..1000_u64 {
        client.read_at(block * 2 * 4096, &mut bytes).expect("the volume can be read");
        assert_eq!(bytes, [8; 4096], "block {}", block * 2);
    }
    drop(client);
    again.stop();
    again.assert_sound();
}

/// The cache device is a loop device over a file whose server is stopped: I/O that nobody ends.
#[test]
fn a_later_signal_ends_at_once_beside_a_device_that_hangs_in_the_kernel() {
    if skip_without_fuse() || skip_without_block_devices() {
        return;
    }
    let below = Shown::new("writeback");
    let device = BlockDevice::of_file(&below.file(), 512);
    let mut volume = Volume::new(1, 64);
    volume.cache = device.path.clone();
    must(&mut volume.format());
    let mut daemon = Daemon::spawn(&mut volume.serve(), &volume.log);
    daemon.ready();
    let mut client = volume.connect();
    client.write_at(0, &[1; 4096], true).expect("the volume can be written");
    below.signal(Signal::STOP);
    let write = std::thread::spawn(move || client.write_at(0, &[2; 4096], true).is_err());
    while volume.gauge("requests_in_flight") == 0 {
        std::thread::yield_now();
    }
    let status = daemon.ended_by_many(Signal::TERM);
    below.signal(Signal::CONT);
    assert_eq!(status.code(), Some(1), "{}", daemon.stderr());
    assert!(write.join().expect("it ends"), "durable on a device that hangs");
}

/// A write waits at the dirty limit for an origin that takes nothing.
#[test]
fn an_origin_that_refuses_holds_no_stop() {
    // A device that is silent is for `silent_devices_are_known_by_their_time`: it takes 20 s.
    for (fault, said) in [("nospace", "volume data: no space left"), ("eio", "volume data: I/O error")] {
        let volume = Volume::new(32, 64);
        must(&mut volume.format());
        let mut serve = volume.serve();
        serve.args(["--dirty-limit", "2MiB", "--inject", &format!("origin:{fault},op=write")]);
        let mut daemon = Daemon::spawn(&mut serve, &volume.log);
        daemon.ready();
        let mut client = volume.connect();
        let writer = std::thread::spawn(move || {
            let write = |block: &u64| client.write_at(block * 3 * 4096, &[*block as u8 | 1; 4096], false).is_ok();
            (0..2000).take_while(write).count() as u64
        });
        // What is dirty grows up to the limit, and then it waits.
        while volume.gauge("blocks_dirty") + 1 < 512 || volume.gauge("requests_in_flight") == 0 {
            std::thread::yield_now();
        }
        daemon.signal(Signal::TERM);
        let status = daemon.ended();
        let acknowledged = writer.join().expect("it ends");
        assert_eq!(status.code(), Some(1), "{}", daemon.stderr());
        assert!(
            daemon.stderr().contains(said) && !daemon.stderr().contains("origin is complete"),
            "{}",
            daemon.stderr()
        );
        assert_clean_stop(&volume.cache);

        // What was acknowledged, though nobody has flushed it, was written before a clean stop.
        let mut again = volume.again();
        again.start();
        let (mut client, mut bytes) = (again.connect(), [0; 4096]);
        for block in 0..acknowledged {
            client.read_at(block * 3 * 4096, &mut bytes).expect("the volume can be read");
            assert_eq!(bytes, [block as u8 | 1; 4096], "block {} of {acknowledged}", block * 3);
        }
        drop(client);
        again.drain();
        again.stop();
        again.assert_sound();
    }
}

/// A mount of another program's, in a mount namespace of its own.
struct Elsewhere(Child);

impl Elsewhere {
    /// Mounts the device there, and writes a file that nobody syncs.
    fn write(device: &Path, dir: &Path, content: &str) -> Self {
        std::fs::create_dir_all(dir).expect("a mount point can be made");
        let mut shell = tool("unshare");
        shell.args(["--mount", "--propagation", "private", "sh", "-ec"]);
        shell.arg("mount \"$1\" \"$2\"; printf %s \"$3\" >\"$2/new\"; echo written; read end").arg("sh");
        let mut child = shell
            .args([device, dir])
            .arg(content)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare can be started");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("the pipe was asked for");
        BufReader::new(stdout).read_line(&mut line).expect("a pipe can be read");
        assert_eq!(line, "written\n");
        Self(child)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        drop(self.0.stdin.take().map(|mut stdin| stdin.write_all(b"\n")));
        self.0.wait().ok();
    }
}

/// The file system above holds data that it has not written: it is asked to, and served meanwhile.
#[test]
fn a_stop_asks_the_file_system_above_to_write() {
    if skip_without_fuse() || skip_without_block_devices() || skip_without(&["mkfs.ext4", "unshare"]) {
        return;
    }
    let mut shown = Shown::new("writeback");
    let device = BlockDevice::of_file(&shown.file(), 4096);
    must(tool("mkfs.ext4").arg("-F").arg(&device.path));
    drop(device);
    for elsewhere in [false, true] {
        let device = BlockDevice::of_file(&shown.file(), 4096);
        let content = format!("written at {elsewhere}, and never synced");
        let (mount, other) = if elsewhere {
            (None, Some(Elsewhere::write(&device.path, &shown.volume.place.socket("there"), &content)))
        } else {
            let mount = Mount::new(&device, &shown.volume);
            std::fs::write(mount.dir.join("new"), &content).expect("the file system is writable");
            (Some(mount), None)
        };
        shown.stop();
        let said = shown.volume.stderr();
        assert!(
            said.contains("waiting until what is above has written") && said.contains("what was asked has written"),
            "{said}"
        );
        assert!(!said.contains("the origin is complete"), "{said}");
        // Whatever these say: the device below is gone.
        drop((mount, other));
        drop(device);

        shown.start();
        let device = BlockDevice::of_file(&shown.file(), 4096);
        let mount = Mount::new(&device, &shown.volume);
        assert_eq!(std::fs::read_to_string(mount.dir.join("new")).expect("it was written"), content);
        mount.unmount();
        drop(device);
    }
    shown.stop();
    shown.volume.assert_sound();
}
