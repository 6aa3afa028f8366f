// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a terminal does to programs: it hangs up, and nobody reads what they say any more.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Daemon, Place, Volume, flashfront, must, output, show, tool};

/// To a daemon SIGHUP says that its configuration was changed.
#[test]
fn the_end_of_the_terminal_ends_no_daemon() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    // Whoever runs this test under nohup has it ignored, and the daemon would keep it so.
    let mut serve = tool("env");
    serve.arg("--default-signal=HUP").arg(volume.serve().get_program()).args(volume.serve().get_args());
    let daemon = Daemon::spawn(&mut serve, &volume.log);
    daemon.ready();
    daemon.signal(Signal::HUP);
    daemon.says("only certificates are read anew");
    volume.connect().write_at(0, &[1; 4096], true).expect("the volume can be written");
    daemon.stop();
}

#[test]
fn nohup_outlives_the_terminal() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let serve = volume.serve();
    let mut nohup = tool("nohup");
    nohup.arg(serve.get_program()).args(serve.get_args());
    let daemon = Daemon::spawn(&mut nohup, &volume.log);
    daemon.ready();
    daemon.signal(Signal::HUP);
    // Answered by the loop that would have heard of it.
    for _ in 0..3 {
        assert_eq!(volume.status()["opening"], false);
    }
    volume.connect().write_at(0, &[1; 4096], true).expect("the volume can be written");
    daemon.stop();
}

#[test]
fn a_daemon_outlives_the_reader_of_its_log() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let full = File::options().write(true).open("/dev/full").expect("Linux has it");
    let (reader, closed) = std::io::pipe().expect("a pipe can be made");
    drop(reader);
    for stderr in [Stdio::from(full), Stdio::from(closed)] {
        let (mut child, _stdout) = ready(volume.serve().stderr(stderr));
        // Each is worth a line in the log.
        for mode in ["writethrough", "writeback"] {
            must(volume.ask("set").args(["--mode", mode]));
        }
        volume.connect().write_at(0, &[1; 4096], true).expect("the volume can be written");
        kill_process(Pid::from_child(&child), Signal::TERM).expect("our own child can be signalled");
        let status = child.wait().expect("our own child can be waited for");
        assert!(status.success(), "{status}");
    }
    volume.assert_sound();
}

/// Starts a daemon and waits for its first line.
fn ready(serve: &mut Command) -> (Child, BufReader<ChildStdout>) {
    let mut child = serve.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("flashfront can be started");
    let mut stdout = BufReader::new(child.stdout.take().expect("the pipe was asked for"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a pipe can be read");
    assert!(line.starts_with("ready "), "{line:?}");
    (child, stdout)
}

#[test]
fn try_leaves_nothing_behind_when_the_terminal_ends() {
    let place = Place::new();
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        let mut demo = flashfront();
        demo.args(["try", "--seconds", "60"]).env("TMPDIR", place.dir());
        let mut child = demo.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let child = child.as_mut().expect("flashfront can be started");
        // Its introduction comes when signals are heard already; in the middle of making the files
        // is as good a moment as any.
        let mut line = String::new();
        let stdout = child.stdout.take().expect("the pipe was asked for");
        BufReader::new(stdout).read_line(&mut line).expect("a pipe can be read");
        kill_process(Pid::from_child(child), signal).expect("our own child can be signalled");
        let status = child.wait().expect("our own child can be waited for");
        assert_eq!(status.code(), Some(128 + signal.as_raw()), "{signal:?}: {status}");
        let left = std::fs::read_dir(place.dir()).expect("the folder is ours").count();
        assert_eq!(left, 0, "after {signal:?}");
    }
}

#[test]
fn a_full_stdout_is_an_error_that_says_so() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    for json in [&[][..], &["--json"]] {
        let mut check = flashfront();
        check.arg("check").arg(&volume.cache).args(json);
        // By a shell, since the harness reads stdout itself.
        let mut shell = tool("sh");
        shell.args(["-c", "exec \"$@\" >/dev/full", "sh"]).arg(check.get_program()).args(check.get_args());
        let output = output(&mut shell);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains("stdout: No space"), "{}", show(&output));
    }
}
