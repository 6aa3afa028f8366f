// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x vm reconnect`: the daemon is killed again and again under a guest that goes on.
//!
//! The same guest and database as `cargo x vm`, on vhost-user-blk, in memory that QEMU shares.
//! After each `kill -9` a new daemon is started, and QEMU comes back to it with the requests in
//! flight. The guest must not notice but for the time it took: no error, and commit after commit.
//! At the end the whole database is checked, through the cache and then on the bare origin.

use std::fs::File;
use std::time::Duration;

use super::daemon::{Daemon, Flashfront};
use super::guest::{self, Drive, Guest, Machine};
use super::needs::{missing, usage};
use super::place::Workplace;
use super::report::Line;
use crate::run::{Failed, flashfront, target};

const SOCKET: &str = "guest.sock";
const CACHE_BYTES: u64 = 32 << 20;
const ORIGIN_BYTES: u64 = 256 << 20;
/// Commits that a daemon lives for, about: the next one is killed after a different number.
const COMMITS: u64 = 40;

const PROGRAMS: [(&str, &str); 3] =
    [("qemu-system-x86_64", "qemu-system-x86"), ("apt-get", "apt"), ("dpkg-deb", "dpkg")];

/// What is promised and was not so.
struct Violation(String);

/// The verb.
pub(super) fn reconnect(args: &[String]) -> Result<(), Failed> {
    let (mut kills, mut keep) = (20, false);
    let mut words = args.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--kills" => kills = words.next().and_then(|it| it.parse().ok()).ok_or_else(usage)?,
            "--keep" => keep = true,
            _ => return Err(usage()),
        }
    }
    missing(&PROGRAMS)?;
    let program = flashfront()?;
    println!("vm reconnect: making the guest");
    let dir = target().join("vm");
    let place = Workplace::new(&dir, &[])?;
    let init = [("init.sh", include_str!("init.sh"))];
    guest::make(&place, include_str!("guest.sh"), &init, &dir.join("debs"))?;
    for (name, bytes) in [("cache.img", CACHE_BYTES), ("origin.img", ORIGIN_BYTES)] {
        let path = place.path(name);
        let made = File::create(&path).and_then(|file| file.set_len(bytes));
        made.map_err(|error| Failed::File { path, error })?;
    }
    let devices = ["--cache", "cache.img", "--origin", "origin.img"].map(str::to_owned);
    let flashfront = Flashfront { program, devices, lie: false };
    flashfront.on_devices(&place, "format")?;
    match (Run { place: &place, flashfront, acknowledged: 0 }).all(kills)? {
        Ok(commits) => {
            println!("vm reconnect: {kills} kills, {commits} commits acknowledged, 0 violations");
            if keep {
                place.keep();
            }
            Ok(())
        }
        Err(Violation(what)) => {
            println!("VIOLATION: {what}");
            place.keep();
            Err(Failed::Findings(1))
        }
    }
}

struct Run<'a> {
    place: &'a Workplace,
    flashfront: Flashfront,
    acknowledged: u64,
}

type Judged<T> = Result<Result<T, Violation>, Failed>;

/// Returns early with a violation, as `?` does with a failure.
macro_rules! sound {
    ($judged:expr) => {
        match $judged? {
            Ok(value) => value,
            Err(violation) => return Ok(Err(violation)),
        }
    };
}

impl Run<'_> {
    fn all(mut self, kills: u64) -> Judged<u64> {
        let mut daemon = sound!(self.daemon());
        let guest = self.boot(Drive::VhostUserBlk(SOCKET), "job=make journal=wal")?;
        sound!(self.until(&guest, |line| *line == Line::Writing));
        for kill in 1..=kills {
            let goal = self.acknowledged + COMMITS / 2 + kill * 7 % COMMITS;
            sound!(self.until(&guest, |line| matches!(line, Line::Acknowledged(at) if *at >= goal)));
            // The last one is a clean stop, to which QEMU comes back as well.
            if kill < kills {
                daemon.kill();
                drop(daemon);
            } else if !daemon.stop(self.place)? {
                return Ok(Err(Violation(format!("the daemon does not stop:\n{}", self.place.tail("daemon.log")))));
            }
            daemon = sound!(self.daemon());
            println!("kill {kill} of {kills}: {} commits acknowledged", self.acknowledged);
        }
        let goal = self.acknowledged + COMMITS;
        sound!(self.until(&guest, |line| matches!(line, Line::Acknowledged(at) if *at >= goal)));
        drop(guest);
        let commits = self.acknowledged;
        sound!(self.look(Drive::VhostUserBlk(SOCKET)));
        self.flashfront.drain(self.place)?;
        if !daemon.stop(self.place)? {
            return Ok(Err(Violation(format!("the daemon does not stop:\n{}", self.place.tail("daemon.log")))));
        }
        self.flashfront.check(self.place)?;
        sound!(self.look(Drive::File("origin.img")));
        Ok(Ok(commits))
    }

    fn daemon(&self) -> Judged<Daemon> {
        // What is acknowledged is durable, so that a kill takes nothing that the guest counts on
        // (docs/guide/vhost-user-blk.md).
        let place = format!("unix:{SOCKET}");
        let words = ["--durability", "always", "--vhost-user-blk", &place];
        let daemon = self.flashfront.start_with(self.place, &words)?;
        if daemon.ready() {
            return Ok(Ok(daemon));
        }
        Ok(Err(Violation(format!("the daemon does not start:\n{}", self.place.tail("daemon.log")))))
    }

    fn boot(&self, drive: Drive<'_>, words: &str) -> Result<Guest, Failed> {
        let limit = Duration::from_secs(240);
        let machine = Machine { drives: &[drive], words, processors: 2, memory_mib: 256, sees_root: false, limit };
        Guest::boot(self.place, &machine)
    }

    /// Reads the guest's lines up to one that is waited for.
    fn until(&mut self, guest: &Guest, wanted: impl Fn(&Line) -> bool) -> Judged<()> {
        loop {
            let line = match guest.next() {
                Ok(Some(line)) => Line::parse(&line),
                Ok(None) => {
                    return Ok(Err(Violation(format!("the guest has ended:\n{}", self.place.tail("console.log")))));
                }
                Err(_) => return Ok(Err(Violation(format!("the guest hangs:\n{}", self.place.tail("console.log"))))),
            };
            if let Line::Acknowledged(commit) = line {
                self.acknowledged = commit;
            }
            match &line {
                line if wanted(line) => return Ok(Ok(())),
                Line::State { commits, rows, wrong }
                    if *commits < self.acknowledged || rows != commits || *wrong > 0 =>
                {
                    return Ok(Err(Violation(format!(
                        "{} commits acknowledged, {commits} found, with {rows} rows, {wrong} of them wrong",
                        self.acknowledged
                    ))));
                }
                Line::Stopped | Line::Failed(_) | Line::Down => {
                    return Ok(Err(Violation(format!("{line:?}\n{}", self.place.tail("console.log")))));
                }
                Line::Said(text) => println!("  guest: {text}"),
                _ => {}
            }
        }
    }

    /// Boots, checks everything, and ends well.
    fn look(&mut self, drive: Drive<'_>) -> Judged<()> {
        let guest = self.boot(drive, "job=look")?;
        self.until(&guest, |line| *line == Line::Down)
    }
}
