// SPDX-License-Identifier: MIT OR Apache-2.0
//! The script for power cuts at home (`contrib/power-cut`), with `kill -9` for want of a plug. It
//! must pass when nothing is lost, and must notice when something is.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::{Volume, must, output, show, skip_without, tool};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/power-cut/power-cut.py");

/// The script on this volume.
fn script(volume: &Volume, verb: &str) -> Command {
    let mut command = tool(SCRIPT);
    command.arg(verb).arg(volume.uri()).arg("--state").arg(volume.place.file("run.json"));
    command.args(["--span", "16", "--patience", "60"]);
    command
}

/// Writes until the daemon is killed, which happens after its first acknowledged writes.
fn write_and_kill(volume: &mut Volume) {
    let mut writing = script(volume, "write").stdout(Stdio::piped()).spawn().expect("the script can be started");
    let mut lines = BufReader::new(writing.stdout.take().expect("the pipe was asked for")).lines();
    let first = lines.next().expect("the script says that it writes").expect("a pipe can be read");
    assert!(first.contains("writing to 16 MiB"), "{first}");
    let before = volume.gauge("flushes");
    while volume.gauge("flushes") < before + 10 {
        assert!(writing.try_wait().expect("our own child").is_none(), "it ended early");
    }
    volume.kill9();
    let last = lines.last().expect("the script says how it ended").expect("a pipe can be read");
    assert!(last.contains("the connection is lost after"), "{last}");
    assert!(writing.wait().expect("our own child can be waited for").success());
}

#[test]
fn the_script_passes_when_nothing_is_lost() {
    if skip_without(&["nbdsh"]) {
        return;
    }
    let mut volume = Volume::new(32, 64);
    must(&mut volume.format());
    for _ in 0..3 {
        volume.start();
        write_and_kill(&mut volume);
        volume.start();
        let said = must(&mut script(&volume, "verify"));
        assert!(said.contains(" sectors verified, 0 wrong"), "{said}");
        volume.kill9();
    }
    volume.assert_sound();
}

#[test]
fn the_script_notices_what_is_lost() {
    if skip_without(&["nbdsh"]) {
        return;
    }
    let mut volume = Volume::new(32, 64);
    must(&mut volume.format());
    volume.start();
    write_and_kill(&mut volume);
    let older = |path: &Path| path.with_extension("older");
    for path in [&volume.cache, &volume.origin] {
        std::fs::copy(path, older(path)).expect("a file can be copied");
    }
    volume.start();
    must(&mut script(&volume, "verify"));
    write_and_kill(&mut volume);
    // Devices that lost what they had flushed: the state of some writes ago.
    for path in [&volume.cache, &volume.origin] {
        std::fs::copy(older(path), path).expect("a file can be copied");
    }
    // Which would tell that the cache is an older one.
    std::fs::remove_dir_all(volume.place.file("state")).expect("the folder is ours");
    volume.start();
    let output = output(&mut script(&volume, "verify"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{}", show(&output));
    assert!(said.contains(" is durable, there is ") && !said.contains(" 0 wrong"), "{said}");
}

#[test]
fn the_script_says_what_it_waits_for() {
    if skip_without(&["nbdsh"]) {
        return;
    }
    let volume = Volume::new(32, 64);
    let mut waiting = script(&volume, "write").stderr(Stdio::piped()).spawn().expect("the script can be started");
    let mut line = String::new();
    let stderr = waiting.stderr.take().expect("the pipe was asked for");
    BufReader::new(stderr).read_line(&mut line).expect("a pipe can be read");
    waiting.kill().expect("our own child can be killed");
    waiting.wait().expect("our own child can be waited for");
    assert!(line.contains(&volume.uri()) && line.contains("waiting for it, 60 s at most"), "{line}");
}

/// Off when dropped: the daemon of these commands is nobody's child.
struct Plug(PathBuf);

impl Drop for Plug {
    fn drop(&mut self) {
        output(tool("sh").arg(&self.0));
    }
}

#[test]
fn the_script_cuts_by_command() {
    if skip_without(&["nbdsh"]) {
        return;
    }
    let mut volume = Volume::new(32, 64);
    must(&mut volume.format());
    // The commands of the plug.
    let (on, off) = (volume.place.file("on.sh"), volume.place.file("off.sh"));
    let pid = volume.place.file("pid");
    let serve = volume.serve();
    let words = std::iter::once(serve.get_program()).chain(serve.get_args());
    let words: Vec<String> = words.map(|it| format!("'{}'", it.to_string_lossy())).collect();
    let (words, pid, log) = (words.join(" "), pid.display(), volume.log.display());
    std::fs::write(&on, format!("{words} >/dev/null 2>>'{log}' & echo $! >'{pid}'")).expect("a file can be written");
    std::fs::write(&off, format!("kill -9 $(cat '{pid}') && rm '{pid}'")).expect("a file can be written");
    let sh = |path: &Path| format!("sh '{}'", path.display());
    must(tool("sh").arg(&on));
    let plug = Plug(off.clone());
    let mut looping = script(&volume, "loop");
    looping.args(["--cuts", "4", "--goal", "1500", "--off", &sh(&off), "--on", &sh(&on)]);
    let output = output(&mut looping);
    drop(plug);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}\n{}", show(&output), volume.stderr());
    assert!(said.contains("power-cut: 4 cuts, ") && said.contains(" acknowledged, 0 wrong sectors"), "{said}");
    volume.start();
    volume.stop();
}
