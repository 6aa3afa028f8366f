// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache that is taken off its volumes while they are served, and a device that becomes their
//! cache again. No client sees an error, and no block is older than what was written last.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use flashfront_serve::control;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{Daemon, MIB, Volume, flashfront, must, output, show, skip_without, tool};
use crate::refusal::assert_refused as assert_serve_refused;
use crate::replace::{FROZEN, Writer, assert_holds, assert_sound, on_device, served, served_by};
use crate::resize::{assert_used, shrink_command, used};
use crate::servers::Server;

/// A block that is in the cache, clean.
const CLEAN: u64 = 1300 * 4096;

/// `serve` without the cache.
fn alone(volume: &Volume) -> Command {
    let mut command = flashfront();
    command.arg("serve").args(["--without-cache", "--accept-missing-dirty-data"]).arg("--origin").arg(&volume.origin);
    command.arg("--nbd").arg(format!("unix:{}", volume.socket.display()));
    command.arg("--control").arg(&volume.control).arg("--state").arg(volume.place.file("state"));
    command
}

#[track_caller]
pub(crate) fn detach(volume: &Volume) {
    let said = must(volume.ask_two(["cache", "detach"]).arg("--json"));
    let json: Value = serde_json::from_str(&said).expect("one line of JSON");
    assert!(json["done"] == true && json["seconds"].is_number(), "{json}");
    let status = volume.status();
    assert_eq!(status["without_cache"], true, "{status}");
}

#[track_caller]
pub(crate) fn attach(volume: &Volume, device: &Path) {
    must(&mut on_device(volume, ["cache", "attach"], device));
    let status = volume.status();
    assert_eq!(status["without_cache"], false, "{status}");
    assert_eq!(status["cache_path"], device.display().to_string(), "{status}");
}

#[track_caller]
fn assert_refused(volume: &Volume, verb: [&str; 2], device: Option<&Path>, says: &str) {
    let mut command = volume.ask_two(verb);
    command.args(device);
    let refused = output(&mut command);
    assert!(!refused.status.success() && show(&refused).contains(says), "{says}: {}", show(&refused));
}

#[track_caller]
fn assert_reads(volume: &Volume, at: u64, byte: u8) {
    let (mut client, mut bytes) = (volume.connect(), [0; 4096]);
    // From the origin, and then from the cache.
    for _ in 0..2 {
        client.read_at(at, &mut bytes).expect("the daemon runs");
        assert!(bytes == [byte; 4096], "an older block came back: {} and not {byte}\n{}", bytes[0], volume.stderr());
    }
}

#[test]
fn clients_stay_connected_and_never_see_older_data() {
    stay_connected(1);
}

#[test]
fn clients_of_several_threads_stay_connected_and_never_see_older_data() {
    stay_connected(2);
}

fn stay_connected(threads: usize) {
    let (volume, daemon) = served_by(threads, &[]);
    let writer = Writer::start(&volume);
    let mut client = volume.connect();
    for round in 1..=5_u8 {
        detach(&volume);
        client.write_at(CLEAN, &[round; 4096], true).expect("the client stays connected");
        let (origin, mut bytes) = (fs::File::open(&volume.origin).expect("the file is ours"), [0; 4096]);
        origin.read_exact_at(&mut bytes, CLEAN).expect("the file is ours");
        assert_eq!(bytes, [round; 4096], "the origin holds what was written without its cache");
        attach(&volume, &volume.cache);
        assert_reads(&volume, CLEAN, round);
    }
    client.read_at(CLEAN, &mut [0; 4096]).expect("the client stays connected");
    let rounds = writer.end();
    assert_holds(&volume, &rounds);
    daemon.kill9();
    let daemon = Daemon::spawn(&mut volume.serve(), &volume.log);
    daemon.ready();
    assert_holds(&volume, &rounds);
    assert_reads(&volume, CLEAN, 5);
    daemon.stop();
    assert_sound(&volume.cache);
}

#[test]
fn fio_verifies_over_detach_and_attach() {
    verify_with_fio(1);
}

#[test]
fn fio_verifies_over_detach_and_attach_with_several_threads() {
    verify_with_fio(2);
}

fn verify_with_fio(threads: usize) {
    if skip_without(&["fio"]) {
        return;
    }
    let mut volume = Volume::new(32, 64);
    volume.threads = threads;
    must(&mut volume.format());
    volume.start();
    let mut command = tool("fio");
    command.args(["--name=v", "--ioengine=nbd", "--rw=randwrite", "--iodepth=16", "--verify=crc32c"]);
    command.args(["--bssplit=512/20:4k/50:64k/20:1m/10", "--size=48m", "--loops=4", "--verify_backlog=64"]);
    command.arg(format!("--uri={}", volume.uri())).current_dir(volume.place.dir());
    let (done, mut rounds) = (AtomicBool::new(false), 0);
    let fio = thread::scope(|scope| {
        let running = scope.spawn(|| {
            let output = output(&mut command);
            done.store(true, Ordering::SeqCst);
            output
        });
        while !done.load(Ordering::SeqCst) || rounds < 2 {
            detach(&volume);
            attach(&volume, &volume.cache);
            rounds += 1;
        }
        running.join().expect("fio has ended")
    });
    assert!(fio.status.success(), "{}\n{}", show(&fio), volume.stderr());
    println!("{rounds} rounds of detach and attach under fio");
    volume.stop();
    volume.assert_sound();
}

#[test]
fn another_device_becomes_the_cache_of_all_volumes() {
    let (volume, daemon) = served(&[]);
    let (other, new) = (volume.place.sparse("other.img", 16 * MIB), volume.place.sparse("new.img", 48 * MIB));
    // Its name need not be said while it is the only one.
    let writer = Writer::start(&volume);
    must(volume.ask_two(["volume", "add"]).arg("--name").arg("other").arg("--origin").arg(&other));
    must(volume.ask_two(["volume", "set"]).arg("other").args(["--mode", "writethrough"]));
    let before = volume.status();
    detach(&volume);
    attach(&volume, &new);
    let after = volume.status();
    for (before, after) in [0, 1].map(|nth| (&before["volumes"][nth], &after["volumes"][nth])) {
        for key in ["name", "id", "size_bytes", "mode", "read_only"] {
            assert_eq!(before[key], after[key], "{key}");
        }
    }
    daemon.kill9();
    let rounds = writer.killed();
    // A unit that still names the other device must not serve without what is dirty here.
    assert_serve_refused(&volume.place, &mut volume.serve_from(&volume.cache), &["no Flashfront cache"]);
    let mut again = flashfront();
    again.arg("serve").arg("--cache").arg(&new).arg("--control").arg(&volume.control);
    again.arg("--state").arg(volume.place.file("state")).arg("--nbd").arg(format!("unix:{}", volume.socket.display()));
    let daemon = Daemon::spawn(&mut again, &volume.log);
    daemon.ready();
    assert_eq!(volume.status()["volumes"].as_array().map(Vec::len), Some(2));
    must(volume.ask_two(["volume", "remove"]).arg("other"));
    assert_holds(&volume, &rounds);
    daemon.stop();
    assert_sound(&new);
}

/// The end of a shrink is that the cache has been detached.
#[test]
fn a_shrink_that_is_under_way_says_that_the_cache_was_detached() {
    let (volume, daemon) = used(&["--inject", "cache:stall,op=read,hold=20ms"]);
    let mut command = shrink_command(&volume, 48);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program is there");
    while volume.status()["left_in_end_blocks"] == Value::Null {}
    detach(&volume);
    let ended = child.wait_with_output().expect("our child");
    assert!(!ended.status.success() && show(&ended).contains("served without a cache"), "{}", show(&ended));
    assert_used(&volume, &mut volume.connect());
    daemon.stop();
}

#[test]
fn an_older_copy_of_the_detached_cache_brings_nothing_back() {
    let (volume, daemon) = served(&[]);
    volume.drain();
    daemon.stop();
    let copy = volume.place.file("copy.img");
    fs::copy(&volume.cache, &copy).expect("the copy can be made");
    let daemon = Daemon::spawn(&mut volume.serve(), &volume.log);
    daemon.ready();
    detach(&volume);
    volume.connect().write_at(CLEAN, &[9; 4096], true).expect("the daemon runs");
    daemon.kill9();
    assert_serve_refused(&volume.place, &mut volume.serve(), &["no Flashfront cache"]);
    fs::copy(&copy, &volume.cache).expect("the copy can be made");
    let daemon = Daemon::spawn(&mut volume.serve(), &volume.log);
    daemon.ready();
    assert_reads(&volume, CLEAN, 9);
    daemon.stop();
}

/// Kills the daemon while `order` runs, when its log has these words or after that many polls, and
/// serves again as an operator would. Returns whether the cache that was named is served.
pub(crate) fn killed_at(
    volume: &Volume,
    daemon: Daemon,
    mut order: Command,
    words: Option<&str>,
    polls: u32,
) -> (bool, Daemon) {
    let writer = Writer::start(volume);
    let mut child = order.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program is there");
    let logged = volume.stderr().len();
    let mut left = polls;
    while child.try_wait().expect("our child").is_none() {
        let seen = words.is_some_and(|words| volume.stderr()[logged..].contains(words));
        if seen || words.is_none() && left == 0 {
            break;
        }
        left = left.saturating_sub(1);
    }
    daemon.kill9();
    let rounds = writer.killed();
    let _: std::process::ExitStatus = child.wait().expect("our child");
    let daemon = Daemon::spawn(&mut volume.serve(), &volume.log);
    let with_cache = daemon.is_ready();
    let daemon = if with_cache {
        daemon
    } else {
        drop(daemon);
        let daemon = Daemon::spawn(&mut alone(volume), &volume.log);
        daemon.ready();
        daemon
    };
    assert_holds(volume, &rounds);
    (with_cache, daemon)
}

const STEPS_OF_DETACH: [&str; 3] = ["to be detached", "SERVED WITHOUT ITS CACHE", "free for other use"];

#[test]
fn a_kill_at_any_step_of_a_detach_loses_nothing() {
    let ways = STEPS_OF_DETACH.map(|words| (Some(words), 0)).into_iter();
    let ways = ways.chain([0, 20, 50, 100, 200, 400, 800].map(|polls| (None, polls)));
    for ((words, polls), threads) in ways.zip([1, 2].into_iter().cycle()) {
        let (volume, daemon) = served_by(threads, &[]);
        let order = volume.ask_two(["cache", "detach"]);
        let (with_cache, daemon) = killed_at(&volume, daemon, order, words, polls);
        println!("{words:?} {polls}: with its cache: {with_cache}");
        if !with_cache {
            // An operator gives it a cache again.
            attach(&volume, &volume.cache);
        }
        daemon.stop();
        assert_sound(&volume.cache);
    }
}

#[test]
fn a_kill_at_any_step_of_an_attach_loses_nothing() {
    let ways = [Some("replayed in"), Some("it is the cache now")].map(|words| (words, 0)).into_iter();
    let ways = ways.chain([0, 20, 50, 100, 200, 400, 800].map(|polls| (None, polls)));
    for ((words, polls), threads) in ways.zip([2, 1].into_iter().cycle()) {
        let (volume, daemon) = served_by(threads, &[]);
        detach(&volume);
        volume.connect().write_at(CLEAN, &[9; 4096], true).expect("the daemon runs");
        let order = on_device(&volume, ["cache", "attach"], &volume.cache);
        let (with_cache, daemon) = killed_at(&volume, daemon, order, words, polls);
        println!("{words:?} {polls}: with its cache: {with_cache}");
        assert_reads(&volume, CLEAN, 9);
        daemon.stop();
    }
}

#[test]
fn what_is_dirty_and_can_not_be_destaged_keeps_the_cache() {
    let (volume, daemon) = served(&FROZEN);
    let mut command = volume.ask_two(["cache", "detach"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program is there");
    while volume.status()["draining"] != true {}
    while volume.status()["volumes"][0]["origin_error"] == Value::Null {}
    // Ctrl-C would be ignored where the tests run in the background.
    kill_process(Pid::from_child(&child), Signal::TERM).expect("our own child can be signalled");
    let said = child.wait_with_output().expect("our child");
    assert!(!said.status.success() && show(&said).contains("stopped: the cache stays"), "{}", show(&said));
    // Without the drain before it, the daemon refuses by itself, and goes on.
    let writer = Writer::start(&volume);
    let mut operator = control::Client::connect(&volume.control).expect("the daemon runs");
    let refused = operator.call(&control::Command::DetachCache {}).expect_err("it is refused").to_string();
    assert!(refused.contains("dirty block") && refused.contains("nothing was changed"), "{refused}");
    let status = volume.status();
    assert_eq!((&status["without_cache"], &status["draining"]), (&false.into(), &false.into()), "{status}");
    let rounds = writer.end();
    assert_holds(&volume, &rounds);
    daemon.kill9();
    let daemon = Daemon::spawn(volume.serve().args(FROZEN), &volume.log);
    daemon.ready();
    assert_holds(&volume, &rounds);
    daemon.kill9();
}

#[test]
fn what_can_not_be_the_cache_is_refused_and_clients_go_on() {
    let (volume, daemon) = served(&[]);
    let writer = Writer::start(&volume);
    let (small, full) = (volume.place.sparse("small.img", MIB / 4), volume.place.sparse("full.img", 32 * MIB));
    let mut format = flashfront();
    must(format.arg("format").arg("--cache").arg(&full).arg("--origin").arg(volume.place.sparse("o.img", MIB)));
    let (detach_verb, attach_verb) = (["cache", "detach"], ["cache", "attach"]);
    assert_refused(&volume, attach_verb, Some(&full), "the volumes have a cache");
    let mirror = volume.place.sparse("mirror.img", 32 * MIB);
    must(&mut on_device(&volume, ["mirror", "add"], &mirror));
    assert_refused(&volume, detach_verb, None, "the cache is on two devices");
    must(&mut on_device(&volume, ["mirror", "remove"], &mirror));
    must(volume.ask_two(["volume", "set"]).arg("data").args(["--share-min", "12MiB"]));
    let tight = volume.place.sparse("tight.img", 20 * MIB);
    detach(&volume);
    assert_refused(&volume, detach_verb, None, "without a cache already");
    assert_refused(&volume, ["mirror", "add"], Some(&mirror), "the daemon refuses");
    for says in [["drain"].as_slice(), &["prefetch", "data", "--range", "0..1MiB"], &["set", "--mode", "writethrough"]]
    {
        let refused = output(volume.ask(says[0]).args(&says[1..]));
        assert!(!refused.status.success() && show(&refused).contains("the cache is detached"), "{}", show(&refused));
    }
    let status = must(&mut volume.ask("status"));
    assert!(status.contains("it was detached") && !status.contains("missing"), "{status}");
    let upgrade = output(&mut volume.ask("upgrade"));
    assert!(!upgrade.status.success() && show(&upgrade).contains("the cache is detached"), "{}", show(&upgrade));
    let before = fs::read(&full).expect("the file is ours");
    for (device, says) in [
        (&volume.origin, "it is an origin of this daemon"),
        (&full, "--force"),
        (&volume.place.file("missing.img"), "missing.img"),
        (&small, "too small"),
        (&tight, "are more than half of it"),
    ] {
        assert_refused(&volume, attach_verb, Some(device), says);
        assert_eq!(volume.status()["without_cache"], true);
    }
    assert!(before == fs::read(&full).expect("the file is ours"), "it was written to");
    must(on_device(&volume, attach_verb, &full).arg("--force"));
    assert_holds(&volume, &writer.end());
    daemon.stop();
    assert_sound(&full);
}

#[test]
fn a_device_that_refuses_to_become_the_cache_leaves_the_volumes_served() {
    if skip_without(&["nbdkit"]) {
        return;
    }
    let (volume, daemon) = served(&[]);
    let (at, broken) = (volume.place.socket("new"), volume.place.file("broken"));
    let fault = format!("error-pwrite-file={}", broken.display());
    let socket = at.clone();
    let mut server = Server::new(at, move || {
        let mut command = tool("nbdkit");
        command.args(["--foreground", "--filter=error", "--unix"]).arg(&socket).args(["memory", "48M"]);
        command.args(["error-pwrite=EIO", "error-pwrite-rate=100%"]).arg(&fault);
        command
    });
    server.start();
    let writer = Writer::start(&volume);
    detach(&volume);
    volume.connect().write_at(CLEAN, &[7; 4096], true).expect("the daemon runs");
    fs::write(&broken, "").expect("the place is ours");
    let verb = ["cache", "attach"];
    assert_refused(&volume, verb, Some(&server.uri()), "The daemon serves on");
    assert_eq!(volume.status()["without_cache"], true);
    assert_reads(&volume, CLEAN, 7);
    fs::remove_file(&broken).expect("the place is ours");
    must(on_device(&volume, verb, &server.uri()).arg("--force"));
    assert_reads(&volume, CLEAN, 7);
    assert_holds(&volume, &writer.end());
    daemon.stop();
}
