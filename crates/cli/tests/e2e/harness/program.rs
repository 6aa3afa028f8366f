// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs programs with a time limit, and says aloud what can't be run.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// No program here needs longer; one that does hangs.
const LIMIT: Duration = Duration::from_secs(240);

/// The program under test: the one just built, or an installed one that `FLASHFRONT_BIN` names.
pub(crate) fn flashfront() -> Command {
    let program = std::env::var_os("FLASHFRONT_BIN");
    let mut command = Command::new(program.unwrap_or_else(|| env!("CARGO_BIN_EXE_flashfront").into()));
    // A test must not depend on where a user keeps things.
    command.env_remove("XDG_RUNTIME_DIR").env_remove("RUST_LOG").env("NO_COLOR", "1");
    command
}

/// Another program, found also where only root's PATH would find it, and speaking English.
pub(crate) fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env("PATH", path()).env("LC_ALL", "C");
    // A git that some user's settings change is not the git we test with.
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command
}

fn path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/local/sbin:/usr/sbin:/sbin");
    path
}

/// Runs to the end; what it said, and how it ended.
pub(crate) fn output(command: &mut Command) -> Output {
    let line = format!("{command:?}");
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.unwrap_or_else(|error| panic!("{line}: {error}"));
    let (send, receive) = mpsc::channel();
    let read = |index: usize, pipe: Option<Box<dyn Read + Send>>| {
        let send = send.clone();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.expect("the pipe was asked for").read_to_end(&mut bytes).expect("a pipe can be read");
            // Nobody listens after the time limit.
            send.send((index, bytes)).ok();
        });
    };
    read(0, child.stdout.take().map(|it| Box::new(it) as Box<dyn Read + Send>));
    read(1, child.stderr.take().map(|it| Box::new(it) as Box<dyn Read + Send>));
    let end = Instant::now() + LIMIT;
    let mut said = [Vec::new(), Vec::new()];
    for _ in 0..2 {
        let Ok((index, bytes)) = receive.recv_timeout(end.saturating_duration_since(Instant::now())) else {
            child.kill().expect("our own child can be killed");
            child.wait().expect("our own child can be waited for");
            panic!("{line}: not done after {LIMIT:?}; said {}", String::from_utf8_lossy(&said.concat()));
        };
        said[index] = bytes;
    }
    let status = child.wait().expect("our own child can be waited for");
    let [stdout, stderr] = said;
    Output { status, stdout, stderr }
}

/// Runs to the end, which must be a good one; its stdout.
#[track_caller]
pub(crate) fn must(command: &mut Command) -> String {
    let line = format!("{command:?}");
    let output = output(command);
    assert!(output.status.success(), "{line}: {}", show(&output));
    String::from_utf8(output.stdout).expect("programs speak UTF-8")
}

/// An output, for a message.
pub(crate) fn show(output: &Output) -> String {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{}\nstdout: {stdout}\nstderr: {stderr}", output.status)
}

/// Says aloud that the running test, or a part of it, is skipped. `./test` counts these lines.
pub(crate) fn skip(why: &str) {
    let thread = std::thread::current();
    let line = format!("\nskipped: {}: {why}\n", thread.name().unwrap_or("a test"));
    // Past the test runner, which keeps to itself what passing tests print.
    std::io::stderr().write_all(line.as_bytes()).expect("stderr is open");
}

/// Whether the running test must be skipped for want of a program; says so.
pub(crate) fn skip_without(programs: &[&str]) -> bool {
    let path = path();
    let has = |name: &str| std::env::split_paths(&path).any(|dir| Path::new(&dir).join(name).is_file());
    let missing: Vec<&str> = programs.iter().copied().filter(|name| !has(name)).collect();
    if missing.is_empty() {
        return false;
    }
    skip(&format!("{} not installed", missing.join(", ")));
    true
}

/// Whether we may attach block devices and mount.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
