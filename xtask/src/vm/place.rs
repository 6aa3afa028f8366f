// SPDX-License-Identifier: MIT OR Apache-2.0
//! The folder of a run, and the processes in it. Nothing outlives the run, however it ends.
//!
//! A shell script, the janitor, holds the other end of a pipe. When this process ends, by Ctrl-C or
//! `kill -9` too, it kills what still runs, unmounts, and removes the folder. The ordinary end goes
//! the same way.

use std::cell::RefCell;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::rc::Rc;

use crate::run::{self, Failed};

/// The folder; removed when dropped, unless it is to be kept.
pub(super) struct Workplace {
    dir: PathBuf,
    janitor: Child,
    orders: Rc<Orders>,
}

/// What the janitor is told; it may be gone only if somebody killed it, and then there is nothing
/// to do.
struct Orders(RefCell<Option<ChildStdin>>);

impl Orders {
    fn say(&self, line: &str) {
        if let Some(pipe) = self.0.borrow_mut().as_mut() {
            let _ = writeln!(pipe, "{line}");
        }
    }
}

impl Workplace {
    /// A new folder in `parent`; `mounts` are names of folders in it that get mounted on.
    pub(super) fn new(parent: &Path, mounts: &[&str]) -> Result<Self, Failed> {
        let dir = parent.join(format!("run-{}", std::process::id()));
        for made in mounts.iter().map(|mount| dir.join(mount)).chain([dir.clone()]) {
            fs::create_dir_all(made).map_err(|error| Failed::File { path: dir.clone(), error })?;
        }
        let mut janitor = Command::new("sh");
        janitor.args(["-c", include_str!("janitor.sh"), "janitor"]).arg(&dir);
        janitor.args(mounts.iter().map(|mount| dir.join(mount)));
        // A group of its own: Ctrl-C is not meant for it.
        janitor.stdin(Stdio::piped()).process_group(0);
        let mut janitor = run::spawn(&mut janitor)?;
        let orders = Rc::new(Orders(RefCell::new(janitor.stdin.take())));
        Ok(Self { dir, janitor, orders })
    }

    /// The path of a thing in the folder.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Leaves the folder where it is.
    pub(super) fn keep(&self) {
        self.orders.say("keep");
        println!("kept: {}", self.dir.display());
    }

    /// A program that works in the folder, by relative names: the path of a unix socket has at most
    /// 107 bytes.
    pub(super) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.dir).stdin(Stdio::null());
        command
    }

    /// Starts a process that lives until it is killed.
    pub(super) fn spawn(&self, command: &mut Command) -> Result<Process, Failed> {
        let child = run::spawn(command.process_group(0))?;
        self.orders.say(&format!("start {}", child.id()));
        Ok(Process { child, orders: self.orders.clone() })
    }

    /// A file in the folder that processes append to.
    pub(super) fn log(&self, name: &str) -> Result<fs::File, Failed> {
        let path = self.path(name);
        fs::File::options().create(true).append(true).open(&path).map_err(|error| Failed::File { path, error })
    }

    /// The last lines of such a file.
    pub(super) fn tail(&self, name: &str) -> String {
        let text = fs::read(self.path(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        // The pipe closes, and the janitor does its work.
        self.orders.0.take();
        let _ = self.janitor.wait();
    }
}

/// A process of the run.
pub(super) struct Process {
    pub(super) child: Child,
    orders: Rc<Orders>,
}

impl Process {
    /// SIGKILL, not yet waited for: so that several die together.
    pub(super) fn kill(&mut self) {
        // Dead already is as good.
        let _ = self.child.kill();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        // Before it is waited for: until then nobody else can have its number.
        self.orders.say(&format!("end {}", self.child.id()));
        let _ = self.child.wait();
    }
}
