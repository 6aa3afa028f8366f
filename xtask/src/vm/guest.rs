// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest: a Debian kernel under QEMU's software emulation, and what it reports, line by line.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use super::place::{Process, Workplace};
use crate::run::Failed;

/// Where the guest's disk is.
pub(super) enum Drive<'a> {
    /// A unix socket that speaks NBD.
    Nbd(&'a str),
    /// A unix socket that speaks vhost-user-blk; QEMU comes back to it when it was gone.
    VhostUserBlk(&'a str),
    /// A plain file.
    File(&'a str),
}

/// Makes the files to be booted out of Debian's packages. `script` does it, in the folder of the
/// run, where these files are. Its downloads stay in `packages` for the next time.
pub(super) fn make(place: &Workplace, script: &str, files: &[(&str, &str)], packages: &Path) -> Result<(), Failed> {
    for (name, text) in files {
        let path = place.path(name);
        fs::write(&path, text).map_err(|error| Failed::File { path, error })?;
    }
    match place.command("sh").args(["-c", script, "guest"]).arg(packages).status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Failed::Usage("the guest can't be made of Debian's packages; see above".to_owned())),
    }
}

/// A running guest.
pub(super) struct Guest {
    qemu: Process,
    lines: Receiver<String>,
    limit: Duration,
}

/// What is booted: `vmlinuz` and `initrd` in the folder of the run.
pub(super) struct Machine<'a> {
    /// vda, vdb ...
    pub(super) drives: &'a [Drive<'a>],
    /// More of the kernel's command line: words for the guest's first program.
    pub(super) words: &'a str,
    pub(super) processors: u32,
    pub(super) memory_mib: u32,
    /// The guest sees this machine's root, read-only, over 9p as `host`.
    pub(super) sees_root: bool,
    /// Without a line for so long it hangs.
    pub(super) limit: Duration,
}

impl Guest {
    pub(super) fn boot(place: &Workplace, machine: &Machine<'_>) -> Result<Self, Failed> {
        let mut qemu = place.command("qemu-system-x86_64");
        qemu.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
        // Never KVM, also where there is one: the same everywhere.
        qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max"]);
        qemu.arg("-smp").arg(machine.processors.to_string()).arg("-m").arg(machine.memory_mib.to_string());
        qemu.args(["-kernel", "vmlinuz", "-initrd", "initrd"]);
        qemu.arg("-append").arg(format!("console=ttyS0 quiet panic=-1 {}", machine.words));
        qemu.args(["-serial", "file:console.log", "-serial", "stdio"]);
        // A guest's memory that others may map.
        let shared = machine.drives.iter().any(|drive| matches!(drive, Drive::VhostUserBlk(_)));
        if shared {
            qemu.arg("-object").arg(format!("memory-backend-memfd,id=memory,size={}M,share=on", machine.memory_mib));
            qemu.args(["-machine", "memory-backend=memory"]);
        }
        for (nth, drive) in machine.drives.iter().enumerate() {
            let drive = match drive {
                Drive::Nbd(socket) => format!("driver=nbd,server.type=unix,server.path={socket}"),
                Drive::File(path) => format!("driver=file,filename={path}"),
                Drive::VhostUserBlk(socket) => {
                    qemu.arg("-chardev").arg(format!("socket,id=disk{nth},path={socket},reconnect=1"));
                    qemu.arg("-device").arg(format!("vhost-user-blk-pci,chardev=disk{nth},num-queues=2"));
                    continue;
                }
            };
            // No cache of QEMU's, and FLUSH goes through.
            let options = "cache.direct=on,cache.no-flush=off,discard=unmap";
            qemu.arg("-blockdev").arg(format!("{drive},node-name=disk{nth},{options}"));
            qemu.arg("-device").arg(format!("virtio-blk-pci,drive=disk{nth},write-cache=on"));
        }
        if machine.sees_root {
            qemu.args(["-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap"]);
            qemu.args(["-device", "virtio-9p-pci,fsdev=host,mount_tag=host"]);
        }
        qemu.stdout(Stdio::piped()).stderr(place.log("qemu.log")?);
        let mut qemu = place.spawn(&mut qemu)?;
        let stdout = qemu.child.stdout.take().expect("the pipe was asked for");
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                if send.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                    break;
                }
            }
        });
        Ok(Self { qemu, lines, limit: machine.limit })
    }

    /// The next line; nothing when QEMU has ended.
    pub(super) fn next(&self) -> Result<Option<String>, Hangs> {
        match self.lines.recv_timeout(self.limit) {
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
