// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x vm ublk`: the volume as a block device of the machine that serves it, with the daemon
//! inside the guest.
//!
//! The kernel that runs the tests may have no ublk driver, so Debian's (`ublk/kernel.sh`, 6.12 or
//! later) does in QEMU. The guest's script (`ublk/guest.sh`) says "ok WHAT" for each thing that it
//! has seen; here the list must be complete.

use std::time::Duration;

use super::inside::Inside;
use super::needs;
use crate::run::Failed;

const PROGRAMS: [(&str, &str); 6] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("fio", "fio"),
    ("/sbin/mke2fs", "e2fsprogs"),
    ("apt-get", "apt"),
    ("dpkg-deb", "dpkg"),
];

const GUEST: Inside = Inside {
    script: include_str!("ublk/guest.sh"),
    // Cache and origin of the volume, then those of another one.
    disks: &[
        ("cache.img", 64 << 20),
        ("origin.img", 512 << 20),
        ("other-origin.img", 512 << 20),
        ("other-cache.img", 32 << 20),
    ],
    seen: 11,
    // fio under an emulated processor, over kills and upgrades.
    limit: Duration::from_secs(600),
};

/// The verb.
pub(super) fn ublk(args: &[String]) -> Result<(), Failed> {
    let keep = match args {
        [] => false,
        [word] if word == "--keep" => true,
        _ => return Err(needs::usage()),
    };
    needs::missing(&PROGRAMS)?;
    GUEST.run(keep)?;
    println!("vm ublk: {} things were so", GUEST.seen);
    Ok(())
}
