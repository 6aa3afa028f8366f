// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a terminal does to programs: it hangs up, and nobody reads what they say any more.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

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
        // Whoever runs this test under nohup, or in the background of a script, has them ignored.
        let mut demo = tool("env");
        demo.arg("--default-signal=HUP,INT").arg(flashfront().get_program());
        demo.args(["try", "--seconds", "60"]).env("TMPDIR", place.dir());
        let mut child = demo.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let child = child.as_mut().expect("flashfront can be started");
        // Its introduction comes when signals are heard already; in the middle of making the files
        // is as good a moment as any.
        let mut line = String::new();
        // The pipe stays open: a demo whose reader is gone ends by itself, and with another code.
        let mut stdout = BufReader::new(child.stdout.take().expect("the pipe was asked for"));
        stdout.read_line(&mut line).expect("a pipe can be read");
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

/// A terminal of so many rows and columns: the end that a user sees, and the end that a program has
/// as its stdout.
fn terminal(rows: u16, columns: u16) -> (File, File) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    let seen = openpt(flags).expect("a terminal can be made");
    grantpt(&seen).and_then(|()| unlockpt(&seen)).expect("it can be opened");
    let name = ptsname(&seen, Vec::new()).expect("it has a name").into_string().expect("of letters");
    let stdout = File::options().read(true).write(true).open(name).expect("it can be opened");
    resize(&stdout, rows, columns);
    (File::from(seen), stdout)
}

fn resize(terminal: &File, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("a terminal has a size");
}

/// What the terminal is sent until `is_enough`, or until nobody has it open any more.
fn sent(seen: &mut File, all: &mut String, is_enough: impl Fn(&str) -> bool) {
    let mut bytes = Vec::from(std::mem::take(all));
    let mut some = [0; 4096];
    loop {
        *all = String::from_utf8_lossy(&bytes).into_owned();
        match (is_enough(all), seen.read(&mut some)) {
            (true, _) | (_, Ok(0) | Err(_)) => return,
            (false, Ok(len)) => bytes.extend_from_slice(&some[..len]),
        }
    }
}

/// Lines of the last whole picture, without what moves the cursor and colours.
fn picture(all: &str) -> Vec<String> {
    let whole = all.rsplit_once("\x1b[?2026l").map_or("", |it| it.0);
    let last = whole.rsplit_once("\x1b[H").map_or("", |it| it.1);
    let plain = |line: &str| {
        let mut parts = line.split("\x1b[");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |line, part| line + part.split_once(|c: char| c.is_ascii_alphabetic()).map_or("", |it| it.1))
    };
    last.lines().map(|line| plain(line.trim_end_matches('\r'))).collect()
}

#[test]
fn a_watched_picture_follows_its_window_and_gives_the_screen_back() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let daemon = Daemon::spawn(&mut volume.serve(), &volume.log);
    daemon.ready();
    let (mut seen, stdout) = terminal(24, 80);
    let mut watch = volume.ask("status");
    watch.arg("--watch").env("TERM", "xterm").env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    let window = stdout.try_clone().expect("it can be shared");
    let mut child = watch.stdout(stdout).spawn().expect("flashfront can be started");
    drop(watch);
    let mut all = String::new();
    let has_history = |all: &str| picture(all).iter().any(|line| line.starts_with("reads ") && line.contains('▁'));
    sent(&mut seen, &mut all, has_history);
    assert!(all.starts_with("\x1b[?1049h\x1b[?25l"), "the other screen, without a cursor: {all:?}");
    let lines = picture(&all);
    assert!(lines.len() <= 24 && lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
    for label in ["volume ", "per second", "cached ", "dirty "] {
        assert!(lines.iter().any(|line| line.starts_with(label)), "{label} is missing in {lines:#?}");
    }
    resize(&window, 10, 40);
    sent(&mut seen, &mut all, |all| picture(all).last().is_some_and(|line| line.contains("in a taller window")));
    let lines = picture(&all);
    assert!(lines.len() == 10 && lines.iter().all(|line| line.chars().count() <= 40), "{lines:#?}");
    // Whoever runs this test in the background of a script has Ctrl-C ignored: SIGTERM never is.
    kill_process(Pid::from_child(&child), Signal::TERM).expect("our own child can be signalled");
    drop(window);
    sent(&mut seen, &mut all, |_| false);
    assert!(all.ends_with("\x1b[?25h\x1b[?1049l"), "the screen and its cursor are back: {all:?}");
    assert!(child.wait().expect("our own child can be waited for").success());
    daemon.stop();
}

#[test]
fn colours_are_for_terminals_whose_users_want_them() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let daemon = Daemon::spawn(&mut volume.serve(), &volume.log);
    daemon.ready();
    let on_terminal = |variables: &[(&str, &str)]| {
        let (mut seen, stdout) = terminal(24, 80);
        let mut status = volume.ask("status");
        // What a CI sets means colours on every terminal.
        for variable in ["NO_COLOR", "CLICOLOR_FORCE", "CI"] {
            status.env_remove(variable);
        }
        status.env("TERM", "xterm").stdin(Stdio::null());
        let mut child =
            status.envs(variables.iter().copied()).stdout(stdout).spawn().expect("flashfront can be started");
        drop(status);
        let mut all = String::new();
        sent(&mut seen, &mut all, |_| false);
        assert!(child.wait().expect("our own child can be waited for").success());
        all
    };
    assert!(on_terminal(&[]).contains("\x1b[36mvolume "), "a label is coloured");
    for plain in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let all = on_terminal(&[plain]);
        assert!(all.contains("volume ") && !all.contains('\x1b'), "{plain:?}: {all:?}");
    }
    assert!(!must(&mut volume.ask("status")).contains('\x1b'), "a pipe is no terminal");
    daemon.stop();
}
