// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that runs until it ends or the user asks for an end.
//!
//! It has a process group of its own, so that Ctrl-C in a terminal reaches bench alone.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use crate::error::BenchError;

/// How often the caller may look, and ask for an end.
const STEP: Duration = Duration::from_millis(100);
/// The most characters of a failed program's words that are told.
const TOLD: usize = 2000;

/// Runs a command; what it prints goes into files of the folder.
pub(super) fn run(command: &[String], folder: &Path, watch: &mut dyn FnMut() -> bool) -> Result<(), BenchError> {
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    let errors = folder.join("stderr");
    let file = |path: &Path| {
        File::create(path).map_err(|error| BenchError::Failed(format!("{}: can't be made: {error}", path.display())))
    };
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(file(&folder.join("stdout"))?)
        .stderr(file(&errors)?)
        .process_group(0)
        .spawn()
        .map_err(|error| BenchError::Failed(format!("{program} can't be started: {error}")))?;
    let status = wait(child, program, watch)?;
    if status.success() {
        return Ok(());
    }
    let said = std::fs::read_to_string(&errors).unwrap_or_default();
    let said: String = said.trim().chars().take(TOLD).collect();
    Err(BenchError::Failed(format!("{program} failed ({status}): {said}\nits command was: {}", command.join(" "))))
}

/// Waits in a thread, so that this one can look meanwhile.
fn wait(child: Child, program: &str, watch: &mut dyn FnMut() -> bool) -> Result<ExitStatus, BenchError> {
    let pid = rustix::process::Pid::from_child(&child);
    let (ended, has_ended) = mpsc::channel();
    let waiting = std::thread::spawn(move || {
        let mut child = child;
        // The waiting thread may have given up.
        let _ = ended.send(child.wait());
    });
    let mut stopped = false;
    let status = loop {
        match has_ended.recv_timeout(STEP) {
            Ok(status) => break status,
            Err(RecvTimeoutError::Timeout) if stopped || watch() => {}
            Err(RecvTimeoutError::Timeout) => {
                stopped = true;
                // The thread has not waited for it, so that the number is still its.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            Err(RecvTimeoutError::Disconnected) => break Err(std::io::Error::other("the thread that waits is gone")),
        }
    };
    // It has sent, so it is about to end.
    let _ = waiting.join();
    if stopped {
        return Err(BenchError::Interrupted);
    }
    status.map_err(|error| BenchError::Failed(format!("{program} can't be waited for: {error}")))
}
