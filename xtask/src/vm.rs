// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x vm`: power cuts under a database, with programs that others wrote on both sides of
//! ours.
//!
//! A Debian kernel with ext4 and SQLite in QEMU (`vm/guest.rs`) works on our NBD export, which lies
//! on disks with a volatile write cache (`vm/disk.rs`). Each life ends by `kill -9` of the guest,
//! the daemon and the disks. The next one begins with replay, fsck and a check of the whole
//! database. Every commit that the guest had said to be done must be there. At the end the bare
//! origin must pass the same, without us.

mod compare;
mod daemon;
mod disk;
mod guest;
mod inside;
mod needs;
mod place;
mod plan;
mod reconnect;
mod record;
mod report;
mod rig;
mod ublk;

use std::fs::File;
use std::path::Path;
use std::time::SystemTime;

use crate::run::{Failed, flashfront, target};
use needs::{missing, usage};
use place::Workplace;
use rig::{Rig, Trouble};

/// The programs that it takes, and their packages in Debian.
const PROGRAMS: [(&str, &str); 6] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("nbdkit", "nbdkit"),
    ("nbdfuse", "libnbd-bin"),
    ("fusermount3", "fuse3"),
    ("apt-get", "apt"),
    ("dpkg-deb", "dpkg"),
];

/// The options.
struct Options {
    kills: u64,
    seed: u64,
    keep: bool,
    canary: bool,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self, Failed> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut options = Self { kills: 20, seed: now.as_secs(), keep: false, canary: false };
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let mut number = || words.next().and_then(|it| it.parse().ok());
            match word.as_str() {
                "--kills" => options.kills = number().ok_or_else(usage)?,
                "--seed" => options.seed = number().ok_or_else(usage)?,
                "--keep" => options.keep = true,
                "--canary" => options.canary = true,
                _ => return Err(usage()),
            }
        }
        Ok(options)
    }
}

/// The verb.
pub(crate) fn vm(args: &[String]) -> Result<(), Failed> {
    match args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some(("compare", rest)) => return compare::compare(rest),
        Some(("reconnect", rest)) => return reconnect::reconnect(rest),
        Some(("ublk", rest)) => return ublk::ublk(rest),
        Some(("record", rest)) => return record::record(rest),
        _ => {}
    }
    let options = Options::parse(args)?;
    missing(&PROGRAMS)?;
    let path = Path::new("/dev/fuse");
    let open = File::options().read(true).write(true).open(path);
    open.map_err(|error| Failed::File { path: path.into(), error })?;
    let program = flashfront()?;
    println!("vm: seed {}; making the guest", options.seed);
    let dir = target().join("vm");
    let place = Workplace::new(&dir, &["cache", "origin"])?;
    guest::make(&place, include_str!("vm/guest.sh"), &[("init.sh", include_str!("vm/init.sh"))], &dir.join("debs"))?;
    let mut rig = Rig::new(place, program, options.seed, options.canary)?;
    let end = rig.all_lives(options.kills);
    let violations = match end {
        Ok(()) => 0,
        Err(Trouble::Violation(what)) => {
            println!("VIOLATION: {what}");
            1
        }
        Err(Trouble::Failed(failed)) => return Err(failed),
    };
    if options.keep || (violations > 0 && !options.canary) {
        rig.place.keep();
    }
    println!("vm: {} kills, {} commits acknowledged, {violations} violations", rig.kills, rig.commits);
    match (options.canary, violations) {
        (false, 0) => Ok(()),
        (true, 1) => {
            println!("vm: the canary is caught");
            Ok(())
        }
        (true, _) => Err(Failed::Usage("flushes of the cache device did nothing, and nobody noticed".to_owned())),
        (false, _) => Err(Failed::Findings(violations)),
    }
}
