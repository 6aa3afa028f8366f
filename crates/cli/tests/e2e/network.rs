// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network volumes: origins on NBD servers of other makers, which are killed and come back.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{MIB, Random, Volume, flashfront, must, output, show, skip_without, tool};

/// nbdkit with a file and a volatile cache in front of it: killed, it forgets what was not flushed.
struct Server {
    image: PathBuf,
    socket: PathBuf,
    pid_file: PathBuf,
}

impl Server {
    fn new(volume: &Volume) -> Self {
        let image = volume.place.sparse("below.img", 64 * MIB);
        let (socket, pid_file) = (volume.place.socket("below"), volume.place.file("below.pid"));
        let server = Self { image, socket, pid_file };
        server.start(&[]);
        server
    }

    fn start(&self, options: &[&str]) {
        let mut command = tool("nbdkit");
        command.arg("--unix").arg(&self.socket).arg("--pidfile").arg(&self.pid_file).arg("--filter=cache");
        must(command.args(options).arg("file").arg(&self.image).arg("cache=writeback"));
    }

    fn kill9(&self) {
        let text = fs::read_to_string(&self.pid_file).expect("nbdkit has written it");
        let pid = Pid::from_raw(text.trim().parse().expect("a number")).expect("a process");
        kill_process(pid, Signal::KILL).expect("nbdkit runs");
        let process = format!("/proc/{}/fd", pid.as_raw_nonzero());
        while fs::read_dir(&process).is_ok_and(|entries| entries.count() > 0) {
            std::thread::yield_now();
        }
        fs::remove_file(&self.socket).expect("nbdkit has left it behind");
    }

    fn uri(&self) -> PathBuf {
        format!("nbd+unix:///?socket={}", self.socket.display()).into()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.socket.exists() {
            self.kill9();
        }
    }
}

/// A volume in front of a server.
fn served(mode: &str, options: &[&'static str]) -> (Volume, Server) {
    let mut volume = Volume::new(32, 1);
    let server = Server::new(&volume);
    volume.origin = server.uri();
    volume.options = options.to_vec();
    must(volume.format().args(["--mode", mode]));
    volume.start();
    (volume, server)
}

fn wait_for(volume: &Volume, is: impl Fn(&serde_json::Value) -> bool) {
    while !is(&volume.status()["volumes"][0]) {
        std::thread::yield_now();
    }
}

#[test]
fn what_a_killed_server_forgot_is_written_again() {
    if skip_without(&["nbdkit"]) {
        return;
    }
    let (mut volume, server) = served("writeback", &[]);
    let data = Random::new(7).bytes(8 * MIB as usize);
    let mut client = volume.connect();
    for (at, part) in (0..).step_by(2 * 65536).zip(data.chunks(65536)) {
        client.write_at(at, part, false).expect("the volume can be written");
    }
    client.flush().expect("the cache device is well");
    for nth in 1..=3 {
        server.kill9();
        wait_for(&volume, |it| it["origin_state"] == "away");
        // Hits and writes go on.
        let mut seen = vec![0; 65536];
        client.read_at(0, &mut seen).expect("the cache has it");
        assert!(seen == data[..65536]);
        client.write_at(63 * MIB, &[nth; 4096], true).expect("the cache takes it");
        server.start(&[]);
        wait_for(&volume, |it| it["origin_state"] == "up" && it["reconnects"] == nth);
    }
    let mut drain = volume.ask("drain").stdout(Stdio::null()).spawn().expect("a program");
    server.kill9();
    wait_for(&volume, |it| it["origin_state"] == "away");
    server.start(&[]);
    assert!(drain.wait().expect("it ends").success(), "{}", volume.stderr());
    volume.drain();
    // What a drain says is on the origin survives the origin's death.
    server.kill9();
    let image = fs::File::open(&server.image).expect("it is there");
    let mut held = vec![0; 65536];
    for (at, part) in (0..).step_by(2 * 65536).zip(data.chunks(65536)) {
        image.read_exact_at(&mut held, at).expect("it can be read");
        assert!(held == part, "the 64 KiB at {at} are lost");
    }
    image.read_exact_at(&mut held[..4096], 63 * MIB).expect("it can be read");
    assert!(held[..4096] == [3; 4096]);
    server.start(&[]);
    wait_for(&volume, |it| it["origin_state"] == "up");
    volume.stop();
    volume.assert_sound();
}

#[test]
fn a_flush_tells_once_what_a_killed_server_forgot() {
    if skip_without(&["nbdkit"]) {
        return;
    }
    let (mut volume, server) = served("writethrough", &["--device-timeout", "1s"]);
    let mut client = volume.connect();
    client.write_at(0, &[1; 4096], false).expect("the origin takes it");
    client.flush().expect("the origin is well");
    client.write_at(0, &[2; 4096], false).expect("the origin takes it");
    server.kill9();
    wait_for(&volume, |it| it["origin_state"] == "away");
    let mut seen = [0; 4096];
    client.read_at(32 * MIB, &mut seen).expect_err("nobody has it");
    let text = must(&mut volume.ask("status"));
    assert!(text.contains("AWAY"), "{text}");
    server.start(&[]);
    wait_for(&volume, |it| it["origin_state"] == "up" && it["origin_hang"].is_null());
    client.flush().expect_err("the second write is gone");
    client.read_at(0, &mut seen).expect("the origin has it");
    assert_eq!(seen, [1; 4096], "what the origin forgot is not served as if it were there");
    client.write_at(0, &[3; 4096], false).expect("the origin takes it");
    client.flush().expect("it was told once");
    assert_eq!(fs::read(&server.image).expect("it is there")[..4096], [3; 4096]);
    volume.stop();
}

/// Where destage is ordered, `status` tells for how long an origin that is away has lacked what a
/// FLUSH covered. What it lacks is sent when it is back.
#[test]
fn an_origin_that_is_away_gets_the_eras_later() {
    if skip_without(&["nbdkit"]) {
        return;
    }
    let (mut volume, server) = served("writeback", &["--destage", "ordered"]);
    let mut client = volume.connect();
    client.write_at(0, &[1; 4096], true).expect("the cache takes it");
    wait_for(&volume, |it| it["blocks_dirty"] == 0);
    server.kill9();
    wait_for(&volume, |it| it["origin_state"] == "away");
    for nth in 2..=5 {
        client.write_at(0, &[nth; 4096], false).expect("the cache takes it");
        client.flush().expect("the cache device is well");
    }
    wait_for(&volume, |it| it["oldest_unsent_flush_s"].as_f64().is_some_and(|age| age >= 1.0));
    let away = &volume.status()["volumes"][0];
    assert_eq!((away["origin_state"].as_str(), away["destage"].as_str()), (Some("away"), Some("ordered")));
    assert_eq!(fs::read(&server.image).expect("it is there")[..4096], [1; 4096], "what it had flushed");
    server.start(&[]);
    wait_for(&volume, |it| it["origin_state"] == "up" && it["blocks_dirty"] == 0);
    // What was flushed is on the image, whatever becomes of the server.
    server.kill9();
    assert_eq!(fs::read(&server.image).expect("it is there")[..4096], [5; 4096]);
    server.start(&[]);
    wait_for(&volume, |it| it["origin_state"] == "up");
    volume.stop();
}

#[test]
fn a_server_that_comes_back_with_other_content_is_not_used() {
    if skip_without(&["nbdkit"]) {
        return;
    }
    let (mut volume, server) = served("writethrough", &["--device-timeout", "1s"]);
    let mut client = volume.connect();
    client.write_at(0, &[1; 4096], false).expect("the origin takes it");
    client.flush().expect("the origin is well");
    server.kill9();
    let image = fs::File::options().write(true).open(&server.image).expect("it is there");
    // Somebody mounts it: a superblock changes.
    image.write_all_at(&[9; 512], 1024).expect("it can be written");
    server.start(&[]);
    wait_for(&volume, |it| it["away_why"].as_str().is_some_and(|why| why.contains("other content")));
    let mut seen = [0; 4096];
    client.read_at(32 * MIB, &mut seen).expect_err("it is not used");
    server.kill9();
    image.write_all_at(&[1; 512], 1024).expect("it can be written");
    server.start(&[]);
    wait_for(&volume, |it| it["origin_state"] == "up" && it["origin_hang"].is_null());
    client.read_at(32 * MIB, &mut seen).expect("it is what it was");
    assert!(volume.stderr().contains("is there again, and is not used"), "{}", volume.stderr());
    volume.stop();
}

/// A cache device behind a server that breaks goes on with the cache of this opening. The same
/// cache from before this start is refused. `check` and `repair` reach it there.
#[test]
fn a_cache_device_must_come_back_with_this_opening() {
    if skip_without(&["nbdkit"]) {
        return;
    }
    let mut volume = Volume::new(32, 64);
    let server = Server::new(&volume);
    volume.cache = server.uri();
    must(volume.format().args(["--mode", "writethrough"]));
    volume.start();
    volume.stop();
    volume.assert_sound();
    // Damage there is found and mended through the server, too. It has no block in its RAM then.
    server.kill9();
    let image = fs::File::options().read(true).write(true).open(&server.image).expect("it is there");
    let mut byte = [0];
    image.read_exact_at(&mut byte, 77).expect("it can be read");
    image.write_all_at(&[byte[0] ^ 0x10], 77).expect("it can be written");
    server.start(&[]);
    let found = output(flashfront().arg("check").arg(&volume.cache));
    assert!(!found.status.success() && show(&found).contains("superblock"), "{}", show(&found));
    let mut repair = flashfront();
    repair.arg("repair").arg("--yes").arg(&volume.cache);
    must(repair.arg("--state").arg(volume.place.file("state")));
    volume.assert_sound();
    let older = volume.place.file("older.img");
    fs::copy(&server.image, &older).expect("the place is ours");
    volume.start();
    let data = Random::new(1).bytes(MIB as usize);
    let mut client = volume.connect();
    client.write_at(0, &data, true).expect("the volume can be written");
    let log_says = |volume: &Volume, words: &str| {
        while !volume.stderr().contains(words) {
            std::thread::yield_now();
        }
    };
    server.kill9();
    let newer = volume.place.file("newer.img");
    fs::copy(&server.image, &newer).expect("the place is ours");
    fs::copy(&older, &server.image).expect("the place is ours");
    server.start(&[]);
    log_says(&volume, "the cache device is there again, and is not used: the export came back with other content");
    server.kill9();
    assert!(fs::read(&server.image).expect("it is there") == fs::read(&older).expect("it is there"), "it was written");
    fs::copy(&newer, &server.image).expect("the place is ours");
    server.start(&[]);
    log_says(&volume, "and is used as before");
    let mut seen = vec![0; data.len()];
    client.read_at(0, &mut seen).expect("the volume can be read");
    // Whatever the server has forgotten, nobody sees it: blocks have checksums.
    assert!(seen == data);
    volume.kill9();
}

#[test]
fn every_verb_takes_a_uri_and_says_what_is_wrong_with_one() {
    if skip_without(&["nbdkit"]) {
        return;
    }
    let (mut volume, server) = served("writeback", &[]);
    volume.connect().write_at(0, &[5; 4096], true).expect("the cache takes it");
    volume.kill9();
    let destage = |origin: &PathBuf| {
        let mut command = flashfront();
        command.arg("destage").arg("--cache").arg(&volume.cache).arg("--origin").arg(origin);
        command.arg("--state").arg(volume.place.file("state"));
        command
    };
    must(&mut destage(&server.uri()));
    server.kill9();
    assert_eq!(fs::read(&server.image).expect("it is there")[..4096], [5; 4096]);
    let told = show(&output(&mut destage(&server.uri())));
    assert!(told.contains("is the server running"), "{told}");
    for (uri, said) in
        [("nbd://", "there is no host"), ("iscsi://h/x", "qemu-nbd or nbdkit"), ("nbd+unix:///x", "socket is missing")]
    {
        let told = show(&output(&mut destage(&uri.into())));
        assert!(told.contains(said) && told.contains(uri), "{told}");
    }
    server.start(&["--readonly"]);
    let told = show(&output(&mut destage(&server.uri())));
    assert!(told.contains("read-only"), "{told}");
    server.kill9();
    server.start(&[]);
    let mut detach = flashfront();
    detach.arg("detach").arg("--cache").arg(&volume.cache).arg("--origin").arg(server.uri());
    must(detach.arg("--state").arg(volume.place.file("state")));
}
