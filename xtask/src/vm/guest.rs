// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest: a Debian kernel under QEMU's software emulation, whose one disk is the volume, and what it reports.
//!
//! It is made of Debian's packages by `guest.sh`, and its one program is `init.sh`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use super::place::{Place, Process};
use crate::run::Failed;

/// Without a line for so long it hangs. The slowest thing that it does takes some seconds.
const LIMIT: Duration = Duration::from_secs(240);

/// Makes what is booted, `vmlinuz` and `initrd` in the folder of the run; Debian's packages stay in `debs` for
/// the next time.
pub(super) fn make(place: &Place, debs: &Path) -> Result<(), Failed> {
    let path = place.path("init.sh");
    fs::write(&path, include_str!("init.sh")).map_err(|error| Failed::File { path, error })?;
    let mut script = place.command("sh");
    script.args(["-c", include_str!("guest.sh"), "guest"]).arg(debs);
    match script.status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Failed::Usage("the guest can't be made of Debian's packages; see above".to_owned())),
    }
}

/// Where the guest's disk is.
pub(super) enum Drive<'a> {
    /// A unix socket that speaks NBD.
    Nbd(&'a str),
    /// A plain file.
    File(&'a str),
}

/// A line of its report.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The kernel is up; the disk is not touched yet.
    Booted,
    /// The journal of ext4 is replayed.
    Mounted,
    /// All checks passed; the database is that of so many commits, but for wrong rows.
    State { commits: u64, rows: u64, wrong: u64 },
    /// The writer begins.
    Writing,
    /// This commit is durable.
    Acknowledged(u64),
    /// The writer got an error.
    Stopped,
    /// A check failed.
    Failed(String),
    /// Clean unmount.
    Down,
    /// Something else, from one of the programs.
    Said(String),
}

impl Line {
    fn parse(text: &str) -> Self {
        let mut words = text.split(' ');
        let word = words.next().unwrap_or_default();
        // SQLite's total() is a float.
        let numbers: Vec<u64> = words.map_while(|it| it.trim_end_matches(".0").parse().ok()).collect();
        match (word, numbers[..].as_ref()) {
            ("booted", _) => Self::Booted,
            ("mounted", _) => Self::Mounted,
            ("state", &[commits, rows, wrong]) => Self::State { commits, rows, wrong },
            ("writing", _) => Self::Writing,
            ("ack", &[commit]) => Self::Acknowledged(commit),
            ("stopped", _) => Self::Stopped,
            ("failed", _) => Self::Failed(text.to_owned()),
            ("down", _) => Self::Down,
            _ => Self::Said(text.to_owned()),
        }
    }
}

/// A running guest.
pub(super) struct Guest {
    qemu: Process,
    lines: Receiver<Line>,
}

impl Guest {
    /// Boots; `job` are words of init.sh's.
    pub(super) fn boot(place: &Place, drive: &Drive<'_>, job: &str) -> Result<Self, Failed> {
        let mut qemu = place.command("qemu-system-x86_64");
        qemu.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
        // Never KVM, also where there is one: the same everywhere.
        qemu.args(["-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "256"]);
        qemu.args(["-kernel", "vmlinuz", "-initrd", "initrd"]);
        qemu.arg("-append").arg(format!("console=ttyS0 quiet panic=-1 {job}"));
        qemu.args(["-serial", "file:console.log", "-serial", "stdio"]);
        let drive = match drive {
            Drive::Nbd(socket) => format!("driver=nbd,server.type=unix,server.path={socket}"),
            Drive::File(path) => format!("driver=file,filename={path}"),
        };
        // No cache of QEMU's, and FLUSH goes through.
        qemu.arg("-blockdev").arg(format!("{drive},node-name=disk,cache.direct=on,cache.no-flush=off,discard=unmap"));
        qemu.args(["-device", "virtio-blk-pci,drive=disk,write-cache=on"]);
        qemu.stdout(Stdio::piped()).stderr(place.log("qemu.log")?);
        let mut qemu = place.spawn(&mut qemu)?;
        let stdout = qemu.child.stdout.take().expect("the pipe was asked for");
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                if send.send(Line::parse(String::from_utf8_lossy(&line).trim_end())).is_err() {
                    break;
                }
            }
        });
        Ok(Self { qemu, lines })
    }

    /// The next line; nothing when QEMU has ended.
    pub(super) fn next(&self) -> Result<Option<Line>, Hangs> {
        match self.lines.recv_timeout(LIMIT) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(Hangs),
        }
    }

    /// `kill -9`; lines that it had said before can still be read.
    pub(super) fn kill(&mut self) {
        self.qemu.kill();
    }
}

/// No line for minutes.
#[derive(Debug)]
pub(super) struct Hangs;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_understood() {
        assert_eq!(Line::parse("state 760 759 2.0"), Line::State { commits: 760, rows: 759, wrong: 2 });
        assert_eq!(Line::parse("ack 17"), Line::Acknowledged(17));
        assert_eq!(Line::parse("ack 1x"), Line::Said("ack 1x".to_owned()));
        assert_eq!(Line::parse("failed fsck"), Line::Failed("failed fsck".to_owned()));
    }
}
