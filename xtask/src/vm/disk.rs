// SPDX-License-Identifier: MIT OR Apache-2.0
//! A disk with a volatile write cache, out of programs that others wrote. `nbdkit --filter=cache`
//! keeps written data in a file of its own until a FLUSH. `nbdfuse` makes it a file that the daemon
//! can open.
//!
//! Killed, it has lost all that was not flushed; killed during a FLUSH, all but the part that was
//! done by then. It loses in units of 4 KiB. A kill of the daemon alone would lose nothing: the
//! kernel would keep it.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::place::{Process, Workplace};
use crate::run::Failed;

/// To answer at all; far more than needed.
const LIMIT: Duration = Duration::from_secs(60);

/// The disk on the plain file `NAME.img`, if it is on: mounted at `NAME/disk`.
pub(super) struct Disk {
    name: &'static str,
    /// In the order in which they have to be started.
    running: Vec<Process>,
}

impl Disk {
    /// A disk that is off, with nothing on it; the plain file is sparse.
    pub(super) fn new(place: &Workplace, name: &'static str, bytes: u64) -> Result<Self, Failed> {
        let path = place.path(&format!("{name}.img"));
        let make = || fs::File::create(&path)?.set_len(bytes);
        make().map_err(|error| Failed::File { path, error })?;
        Ok(Self { name, running: Vec::new() })
    }

    /// The path that the daemon opens, from the folder of the run.
    pub(super) fn path(&self) -> String {
        format!("{}/disk", self.name)
    }

    /// Switches it on, unless it is.
    pub(super) fn on(&mut self, place: &Workplace) -> Result<(), Failed> {
        if !self.running.is_empty() {
            return Ok(());
        }
        let name = self.name;
        let [socket, ready] = ["sock", "ready"].map(|end| format!("{name}.{end}"));
        for old in [&socket, &ready] {
            let _ = fs::remove_file(place.path(old));
        }
        let mut nbdkit = place.command("nbdkit");
        nbdkit.args(["--foreground", "--exit-with-parent", "--unix", &socket, "--pidfile", &ready, "--filter=cache"]);
        nbdkit.arg("file").arg(format!("{name}.img")).args(["cache=writeback", "cache-min-block-size=4k"]);
        // Where it keeps what was not flushed. Errors of a client that was killed are nothing to
        // tell.
        nbdkit.env("TMPDIR", place.path("")).stderr(place.log("disks.log")?);
        self.start(place, &mut nbdkit, place.path(&ready))?;
        let mut nbdfuse = place.command("nbdfuse");
        nbdfuse.arg(self.path()).arg(format!("nbd+unix:///?socket={socket}")).stderr(place.log("disks.log")?);
        self.start(place, &mut nbdfuse, place.path(&self.path()))
    }

    /// Starts a part, and waits for the file that tells that it is there.
    fn start(&mut self, place: &Workplace, command: &mut std::process::Command, sign: PathBuf) -> Result<(), Failed> {
        let mut process = place.spawn(command)?;
        let end = Instant::now() + LIMIT;
        while !fs::metadata(&sign).is_ok_and(|it| it.len() > 0) {
            let ended = !matches!(process.child.try_wait(), Ok(None));
            if ended || Instant::now() > end {
                let what = format!("{command:?} is not ready:\n{}", place.tail("disks.log"));
                return Err(Failed::Usage(what));
            }
            // pacing: these programs have no other way to say that they are ready.
            std::thread::sleep(Duration::from_millis(5));
        }
        self.running.push(process);
        Ok(())
    }

    /// The power is cut.
    pub(super) fn cut(&mut self, place: &Workplace) -> Result<(), Failed> {
        // First the one that has the data: what reaches it from now on is too late.
        self.running.iter_mut().for_each(Process::kill);
        self.running.clear();
        let mut unmount = place.command("fusermount3");
        crate::run::run(unmount.args(["-u", "-z", self.name]))
    }
}
