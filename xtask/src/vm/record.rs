// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x vm record`: `flashfront record` of disks of a guest, by both of the kernel's ways.
//!
//! The kernel that runs the tests may trace nothing, so Debian's does in QEMU. The guest's script
//! (`record/guest.sh`) compares what was recorded with what fio says it has done, and for a git
//! clone with the kernel's own counters. With `--keep` its lines go to `bench/runs`.

use std::time::Duration;

use super::inside::Inside;
use super::needs;
use crate::bench::{self, Found};
use crate::run::Failed;

const PROGRAMS: [(&str, &str); 7] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("fio", "fio"),
    ("git", "git"),
    ("/sbin/mke2fs", "e2fsprogs"),
    ("apt-get", "apt"),
    ("dpkg-deb", "dpkg"),
];

const GUEST: Inside = Inside {
    script: include_str!("record/guest.sh"),
    disks: &[("disk.img", 512 << 20), ("parts.img", 256 << 20)],
    seen: 11,
    // fio and git under an emulated processor.
    limit: Duration::from_secs(600),
};

/// The verb.
pub(super) fn record(args: &[String]) -> Result<(), Failed> {
    let keep = match args {
        [] => false,
        [word] if word == "--keep" => true,
        _ => return Err(needs::usage()),
    };
    needs::missing(&PROGRAMS)?;
    let said = GUEST.run(false)?;
    println!("vm record: {} things were so", GUEST.seen);
    if keep {
        let seen = said.iter().filter(|line| line.starts_with("ok "));
        let summary: String = seen.map(|line| format!("- {line}\n")).collect();
        bench::keep("record", false, "cargo x vm record --keep", &Found { summary, json: None })?;
    }
    Ok(())
}
