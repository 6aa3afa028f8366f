// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront record`: what is recorded is what fio says it has done, of a volume and of a block
//! device.
//!
//! The kernel's ways need root and a kernel that traces. Its file systems are mounted in a mount
//! namespace of the recorder alone. Where the kernel has none, `cargo x vm record` tests it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{Place, Volume, flashfront, is_root, must, output, show, skip, skip_without, tool};

/// A recording that is under way.
struct Recording {
    child: Child,
    stderr: BufReader<ChildStderr>,
    out: PathBuf,
}

impl Recording {
    /// Starts it, and waits until requests are noted.
    #[track_caller]
    fn start(command: &mut Command, out: &Path) -> Self {
        let command = command.arg("--json").arg("--out").arg(out);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be started");
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut started = Self { child, stderr, out: out.to_owned() };
        let mut line = String::new();
        started.stderr.read_line(&mut line).expect("a line");
        assert!(line.starts_with("recording "), "{line}");
        started
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it lives");
    }

    /// Ends it by SIGTERM; what it says it has recorded. (A script's background ignores Ctrl-C.)
    #[track_caller]
    fn end(mut self) -> Value {
        self.signal(Signal::TERM);
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.child.stdout.take().expect("a pipe").read_to_string(&mut stdout).expect("text");
        self.stderr.read_to_string(&mut stderr).expect("text");
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}: {stdout}{stderr}");
        let found: Value = serde_json::from_str(&stdout).expect("one object");
        assert_eq!(found["file"].as_str(), self.out.to_str());
        assert_eq!(found["file_bytes"], fs::metadata(&self.out).expect("it is there").len());
        assert!(found["seconds"].as_f64() > Some(0.0) && found["ended"] == "stopped", "{found}");
        found
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // A test that failed leaves none behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads and writes of several sizes; what fio says it has done.
fn load(fio: &mut Command) -> Value {
    fio.args(["--name=mix", "--rw=randrw", "--rwmixread=60", "--bssplit=512/20:4k/60:64k/20", "--size=8m"]);
    fio.args(["--iodepth=16", "--randseed=7", "--output-format=json"]);
    let text = must(fio);
    let report = text.find('{').map_or("", |start| &text[start..]);
    let report = serde_json::Deserializer::from_str(report).into_iter::<Value>().next();
    report.and_then(Result::ok).unwrap_or_else(|| panic!("fio says no JSON: {text}"))["jobs"][0].clone()
}

#[track_caller]
fn assert_same(recorded: &Value, job: &Value) {
    let fio = |kind: &str, key: &str| job[kind][key].as_u64().expect("a number");
    assert!(fio("read", "total_ios") > 100 && fio("write", "total_ios") > 100, "{job}");
    assert_eq!(recorded["reads"], fio("read", "total_ios"), "{recorded}");
    assert_eq!(recorded["writes"], fio("write", "total_ios"), "{recorded}");
    assert_eq!(recorded["requests"], fio("read", "total_ios") + fio("write", "total_ios"), "{recorded}");
    assert_eq!(recorded["bytes_read"], fio("read", "io_bytes"), "{recorded}");
    assert_eq!(recorded["bytes_written"], fio("write", "io_bytes"), "{recorded}");
    assert_eq!(recorded["lost"], 0, "{recorded}");
}

/// The file is a trace, of as many requests.
#[track_caller]
fn assert_advises(recorded: &Value) {
    let file = recorded["file"].as_str().expect("a path");
    let text = must(flashfront().args(["advise", file, "--cache-size", "64MiB", "--json"]));
    let advice: Value = serde_json::from_str(&text).expect("one object");
    assert_eq!((&advice["reads"], &advice["writes"]), (&recorded["reads"], &recorded["writes"]), "{advice}");
    assert_eq!(advice["bad_lines"], 0);
}

#[test]
fn record_volume_holds_what_fio_did() {
    if skip_without(&["fio"]) {
        return;
    }
    let mut volume = Volume::served(64, 64, "writeback");
    let out = volume.place.file("recording");
    // Its name may be left out, and another recorder is no trouble.
    let whole = Recording::start(&mut volume.ask("record"), &out);
    let other = Recording::start(volume.ask("record").arg("--volume"), &volume.place.file("other"));
    let mut fio = tool("fio");
    fio.arg("--ioengine=nbd").arg(format!("--uri={}", volume.uri())).current_dir(volume.place.dir());
    let job = load(&mut fio);
    let (recorded, other) = (whole.end(), other.end());
    assert_same(&recorded, &job);
    assert_same(&other, &job);
    assert_eq!(recorded["way"], "daemon");
    assert_advises(&recorded);

    let again = output(volume.ask("record").arg("--out").arg(&out));
    assert!(show(&again).contains("is not overwritten"), "{}", show(&again));
    let unknown = output(volume.ask("record").args(["--volume", "nosuch", "--out"]).arg(volume.place.file("x")));
    assert!(show(&unknown).contains("no volume of that name"), "{}", show(&unknown));
    assert!(!volume.place.file("x").exists(), "nothing is left of what was refused");
    volume.stop();
}

#[test]
fn record_ends_at_its_time_and_with_its_daemon() {
    let mut volume = Volume::served(32, 32, "writeback");
    let text = must(volume.ask("record").args(["--for", "100ms", "--json", "--out"]).arg(volume.place.file("a")));
    let found: Value = serde_json::from_str(&text).expect("one object");
    assert_eq!((&found["ended"], &found["requests"]), (&"time".into(), &0.into()));

    let mut recording = Recording::start(&mut volume.ask("record"), &volume.place.file("b"));
    volume.connect().write_at(0, &[1; 4096], false).expect("the volume can be written");
    volume.kill9();
    assert!(recording.child.wait().expect("it ends").success());
    let mut text = String::new();
    recording.child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
    let found: Value = serde_json::from_str(&text).expect("one object");
    assert_eq!(found["ended"], "daemon_ended");
}

/// A loop device on a file of 64 MiB; gone when dropped.
struct Loop(String);

impl Loop {
    fn new(place: &Place) -> Option<Self> {
        let file = place.sparse("disk.img", 64 << 20);
        let made = output(tool("losetup").args(["--find", "--show"]).arg(file));
        made.status.success().then(|| Self(String::from_utf8_lossy(&made.stdout).trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = output(tool("losetup").args(["--detach", &self.0]));
    }
}

/// `flashfront record` of the device, by one file system of the kernel's alone.
fn recorder(device: &Loop, kernel: &str) -> Command {
    let mut command = tool("unshare");
    let point = if kernel == "debugfs" { "/sys/kernel/debug" } else { "/sys/kernel/tracing" };
    let mount = format!(
        "umount -l /sys/kernel/debug /sys/kernel/tracing 2>/dev/null; mount -t {kernel} {kernel} {point} && exec \"$@\""
    );
    command.args(["--mount", "sh", "-c", &mount, "sh"]).arg(flashfront().get_program()).args(["record", &device.0]);
    command
}

#[test]
fn record_device_holds_what_fio_did() {
    if skip_without(&["fio", "losetup", "unshare"]) {
        return;
    }
    let traces =
        fs::read_to_string("/proc/filesystems").is_ok_and(|it| it.contains("tracefs") && it.contains("debugfs"));
    if !is_root() || !traces {
        return skip("not root, or the kernel has no tracing (`cargo x vm record` has)");
    }
    let place = Place::new();
    let Some(device) = Loop::new(&place) else { return skip("no loop device can be had") };
    for (kernel, way) in [("debugfs", "blktrace"), ("tracefs", "tracefs")] {
        // A killed recording leaves what the next one removes.
        let killed = Recording::start(&mut recorder(&device, kernel), &place.file(&format!("{way}-killed")));
        killed.signal(Signal::KILL);
        let mut killed = killed;
        killed.child.wait().expect("it ends");

        let recording = Recording::start(&mut recorder(&device, kernel), &place.file(way));
        let busy = output(recorder(&device, kernel).arg("--out").arg(place.file("busy")));
        assert!(show(&busy).contains("another `flashfront record`"), "{}", show(&busy));
        let mut fio = tool("fio");
        fio.args(["--ioengine=libaio", "--direct=1"]).arg(format!("--filename={}", device.0)).current_dir(place.dir());
        let job = load(&mut fio);
        let recorded = recording.end();
        assert_same(&recorded, &job);
        // A kernel that is locked down shows no buffers of blktrace's; debugfs has the events, too.
        assert!(recorded["way"] == way || recorded["way"] == "tracefs", "{recorded}");
        assert_advises(&recorded);
    }
}
