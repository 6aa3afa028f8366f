// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program under test, and what else it is asked to do, on the disks of a run.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use super::place::{Process, Workplace};
use crate::run::{Failed, stdout_of};

/// The NBD socket, in the folder of the run.
pub(super) const SOCKET: &str = "nbd.sock";
/// The time to be ready, or to stop; far more than needed.
const LIMIT: Duration = Duration::from_secs(120);

/// How a daemon is started.
pub(super) struct Flashfront {
    pub(super) program: PathBuf,
    /// The paths of cache device and origin, from the folder of the run.
    pub(super) devices: [String; 4],
    /// Flushes of the cache device do nothing: what this test must notice.
    pub(super) lie: bool,
}

impl Flashfront {
    fn verb(&self, place: &Workplace, verb: &str) -> Command {
        let mut command = place.command(&self.program);
        command.arg(verb).env("NO_COLOR", "1").env_remove("RUST_LOG");
        command
    }

    /// A verb that needs the devices, run to its end.
    pub(super) fn on_devices(&self, place: &Workplace, verb: &str) -> Result<String, Failed> {
        stdout_of(self.verb(place, verb).args(&self.devices))
    }

    /// `flashfront check` on the cache device.
    pub(super) fn check(&self, place: &Workplace) -> Result<String, Failed> {
        stdout_of(self.verb(place, "check").arg(&self.devices[1]))
    }

    /// Drains the running daemon.
    pub(super) fn drain(&self, place: &Workplace) -> Result<String, Failed> {
        stdout_of(self.verb(place, "drain").args(["--control", "control.sock", "--quiet"]))
    }

    /// Starts the daemon, not yet ready.
    pub(super) fn start(&self, place: &Workplace) -> Result<Daemon, Failed> {
        self.start_with(place, &[])
    }

    /// Starts the daemon with more words.
    pub(super) fn start_with(&self, place: &Workplace, more: &[&str]) -> Result<Daemon, Failed> {
        let mut serve = self.verb(place, "serve");
        serve.args(&self.devices).args(["--nbd", &format!("unix:{SOCKET}"), "--control", "control.sock"]);
        // Small, so that seconds are enough for throttling, destage and bypass.
        serve.args(["--state", "state", "--dirty-limit", "8 MiB", "--sequential-bypass", "1 MiB"]);
        serve.args(more);
        if self.lie {
            serve.args(["--inject", "cache:lost,op=flush"]);
        }
        Daemon::start(place, &mut serve)
    }
}

/// A running daemon.
pub(super) struct Daemon {
    process: Process,
    lines: mpsc::Receiver<String>,
}

impl Daemon {
    /// Starts `flashfront serve`, not yet ready.
    pub(super) fn start(place: &Workplace, serve: &mut Command) -> Result<Self, Failed> {
        serve.stdout(Stdio::piped()).stderr(place.log("daemon.log")?);
        let mut process = place.spawn(serve)?;
        let stdout = process.child.stdout.take().expect("the pipe was asked for");
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            // Nobody listens if it is killed while it starts.
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        Ok(Self { process, lines })
    }

    /// Waits until clients may connect; whether they may.
    pub(super) fn ready(&self) -> bool {
        self.lines.recv_timeout(LIMIT).is_ok_and(|line| line.starts_with("ready "))
    }

    /// `kill -9`.
    pub(super) fn kill(&mut self) {
        self.process.kill();
    }

    /// SIGTERM, and its end; whether it ended well.
    pub(super) fn stop(mut self, place: &Workplace) -> Result<bool, Failed> {
        crate::run::run(place.command("kill").arg(self.process.child.id().to_string()))?;
        // Its stdout closes with it.
        let ended = self.lines.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Disconnected);
        Ok(ended && self.process.child.wait().is_ok_and(|status| status.success()))
    }
}
