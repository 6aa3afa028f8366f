// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x vm ublk`: the volume as a block device of the machine that serves it, with the daemon
//! inside the guest.
//!
//! The kernel that runs the tests may have no ublk driver, so Debian's (`ublk/kernel.sh`, 6.12 or
//! later) does in QEMU. The guest's script (`ublk/guest.sh`) says "ok WHAT" for each thing that it
//! has seen; here the list must be complete.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::guest::{self, Drive, Guest, Machine};
use super::place::Place;
use crate::run::{Failed, flashfront, target};

const PROGRAMS: [(&str, &str); 6] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("fio", "fio"),
    ("/sbin/mke2fs", "e2fsprogs"),
    ("apt-get", "apt"),
    ("dpkg-deb", "dpkg"),
];

/// Cache and origin of the volume, then those of another one.
const DISKS: [(&str, u64); 4] = [
    ("cache.img", 64 << 20),
    ("origin.img", 512 << 20),
    ("other-origin.img", 512 << 20),
    ("other-cache.img", 32 << 20),
];
/// The things that are to be seen.
const SEEN: usize = 10;
/// fio under an emulated processor, over two kills.
const LIMIT: Duration = Duration::from_secs(600);

/// The verb.
pub(super) fn ublk(args: &[String]) -> Result<(), Failed> {
    let keep = match args {
        [] => false,
        [word] if word == "--keep" => true,
        _ => return Err(super::usage()),
    };
    super::missing(&PROGRAMS)?;
    let program = flashfront()?;
    let dir = target().join("vm");
    let place = Place::new(&dir, &[])?;
    let kernel = dir.join("ublk");
    guest::make(&place, include_str!("ublk/kernel.sh"), &[("guest.sh", include_str!("ublk/guest.sh"))], &kernel)?;
    for (name, bytes) in DISKS {
        let path = place.path(name);
        let made = fs::File::create(&path).and_then(|file| file.set_len(bytes));
        made.map_err(|error| Failed::File { path, error })?;
    }
    let seen = look(&place, &kernel, &program);
    if keep || seen.is_err() {
        place.keep();
    }
    println!("vm ublk: {} things were so", seen?);
    Ok(())
}

/// Boots, and reads what the guest has seen.
fn look(place: &Place, kernel: &Path, program: &Path) -> Result<usize, Failed> {
    let drives = DISKS.map(|(name, _)| Drive::File(name));
    let words = format!("kernel={} program={}", kernel.display(), program.display());
    let machine =
        Machine { drives: &drives, words: &words, processors: 2, memory_mib: 1024, sees_root: true, limit: LIMIT };
    let guest = Guest::boot(place, &machine)?;
    let mut seen = 0;
    let mut said = String::new();
    loop {
        match guest.next() {
            Ok(Some(line)) if line == "down" && seen == SEEN => return Ok(seen),
            Ok(Some(line)) => {
                println!("  {line}");
                seen += usize::from(line.starts_with("ok "));
                said = if line.starts_with("failed") { line } else { said };
            }
            Ok(None) if !said.is_empty() => return Err(Failed::Usage(said)),
            Ok(None) | Err(guest::Hangs) => {
                let console = place.tail("console.log");
                return Err(Failed::Usage(format!("the guest hangs or has ended after {seen} of {SEEN}:\n{console}")));
            }
        }
    }
}
