// SPDX-License-Identifier: MIT OR Apache-2.0
//! Disks, daemon and guest together: lives and deaths, and what must be so after each.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::daemon::{Daemon, Flashfront, SOCKET};
use super::disk::Disk;
use super::guest::{Drive, Guest, Hangs, Machine};
use super::place::Workplace;
use super::plan::{Death, Plan, Random};
use super::report::Line;
use crate::run::Failed;

/// The cache is smaller than what the guest works on, so that there is reclaim.
const CACHE_BYTES: u64 = 32 << 20;
const ORIGIN_BYTES: u64 = 256 << 20;

/// Why a run ends before its time.
pub(super) enum Trouble {
    /// A promise is broken.
    Violation(String),
    /// The test itself doesn't work.
    Failed(Failed),
}

impl From<Failed> for Trouble {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}

/// The guest with its one disk; `words` are of init.sh's.
fn boot(place: &Workplace, drive: Drive<'_>, words: &str) -> Result<Guest, Failed> {
    // The slowest thing that it does takes some seconds.
    let limit = Duration::from_secs(240);
    let machine = Machine { drives: &[drive], words, processors: 1, memory_mib: 256, sees_root: false, limit };
    Guest::boot(place, &machine)
}

fn violation<T>(what: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble::Violation(what.into()))
}

/// Everything there is.
pub(super) struct Rig {
    flashfront: Flashfront,
    cache: Disk,
    origin: Disk,
    random: Random,
    canary: bool,
    /// The last commit that the guest has said to be durable.
    acknowledged: u64,
    /// All commits that were ever acknowledged.
    pub(super) commits: u64,
    pub(super) kills: u64,
    pub(super) place: Workplace,
}

impl Rig {
    /// Disks that are off, with nothing on them.
    pub(super) fn new(place: Workplace, program: PathBuf, seed: u64, canary: bool) -> Result<Self, Failed> {
        let cache = Disk::new(&place, "cache", CACHE_BYTES)?;
        let origin = Disk::new(&place, "origin", ORIGIN_BYTES)?;
        let devices = ["--cache".to_owned(), cache.path(), "--origin".to_owned(), origin.path()];
        let flashfront = Flashfront { program, devices, lie: canary };
        let random = Random(seed);
        Ok(Self { flashfront, cache, origin, random, canary, acknowledged: 0, commits: 0, kills: 0, place })
    }

    /// All lives, and what must be so after them.
    pub(super) fn all_lives(&mut self, kills: u64) -> Result<(), Trouble> {
        let start = Instant::now();
        self.power_on()?;
        self.flashfront.on_devices(&self.place, "format")?;
        for life in 1..=kills {
            let plan = Plan::draw(&mut self.random, life, self.canary);
            let seen = self.live(life, plan)?;
            self.kills += 1;
            let left = start.elapsed().mul_f64((kills - life) as f64 / life as f64).as_secs();
            println!("kill {life:2} of {kills}: {seen}; about {}:{:02} left", left / 60, left % 60);
        }
        self.end()
    }

    fn power_on(&mut self) -> Result<(), Failed> {
        self.cache.on(&self.place)?;
        self.origin.on(&self.place)
    }

    fn power_off(&mut self) -> Result<(), Failed> {
        self.cache.cut(&self.place)?;
        self.origin.cut(&self.place)
    }

    fn daemon(&mut self) -> Result<Daemon, Trouble> {
        self.power_on()?;
        let daemon = self.flashfront.start(&self.place)?;
        if daemon.ready() {
            return Ok(daemon);
        }
        violation(format!("the daemon does not start:\n{}", self.place.tail("daemon.log")))
    }

    /// Lives a life, up to its death; says what there was to see.
    fn live(&mut self, life: u64, plan: Plan) -> Result<String, Trouble> {
        let mut seen = String::new();
        if let Some(wait) = plan.replay_cut {
            self.power_on()?;
            let mut daemon = self.flashfront.start(&self.place)?;
            std::thread::sleep(wait); // pacing: a random moment of its start
            daemon.kill();
            self.power_off()?;
            seen += "power cut in replay, ";
        }
        let mut daemon = self.daemon()?;
        let job = format!("job={} journal={}", if life == 1 { "make" } else { "use" }, plan.journal);
        let mut guest = boot(&self.place, Drive::Nbd(SOCKET), &job)?;
        let before = self.commits;
        let goal = plan.goal.map(|goal| before + goal);
        loop {
            match self.line(&guest)? {
                Line::Booted if goal.is_none() => break,
                Line::State { commits, .. } => seen += &format!("{commits} rows sound, "),
                Line::Acknowledged(_) if goal.is_some_and(|goal| self.commits >= goal) => break,
                Line::Stopped | Line::Down => return violation("the writer got an error while all was well"),
                _ => {}
            }
        }
        std::thread::sleep(plan.wait); // pacing: a random moment of the work
        self.die(plan.death, &mut guest, &mut daemon)?;
        // What it had said before it died counts.
        while let Ok(Some(line)) = guest.next() {
            self.note(&Line::parse(&line));
        }
        let during = if goal.is_none() { "mount and check".to_owned() } else { format!("commit, {}", plan.journal) };
        Ok(format!("{seen}{} more acknowledged; {} during {during}", self.commits - before, plan.death))
    }

    fn die(&mut self, death: Death, guest: &mut Guest, daemon: &mut Daemon) -> Result<(), Failed> {
        match death {
            Death::Power => {
                // In either order, as near as can be.
                if self.random.below(2) == 0 {
                    guest.kill();
                    daemon.kill();
                } else {
                    daemon.kill();
                    guest.kill();
                }
                self.power_off()
            }
            Death::GuestFirst => {
                guest.kill();
                let wait = Duration::from_micros(self.random.below(2_000_000));
                std::thread::sleep(wait); // pacing: the daemon seals after a second, and destages
                daemon.kill();
                self.power_off()
            }
            Death::DaemonFirst => {
                daemon.kill();
                let wait = Duration::from_micros(self.random.below(1_000_000));
                std::thread::sleep(wait); // pacing: the guest meets errors
                guest.kill();
                Ok(())
            }
        }
    }

    /// The next line of the guest, judged.
    fn line(&mut self, guest: &Guest) -> Result<Line, Trouble> {
        let line = match guest.next() {
            Ok(Some(line)) => Line::parse(&line),
            Ok(None) => return violation(format!("the guest has ended:\n{}", self.place.tail("console.log"))),
            Err(Hangs) => return violation(format!("the guest hangs:\n{}", self.place.tail("console.log"))),
        };
        self.note(&line);
        match line {
            Line::State { commits, rows, wrong } if commits < self.acknowledged || rows != commits || wrong > 0 => {
                let acknowledged = self.acknowledged;
                violation(format!(
                    "{acknowledged} commits acknowledged, {commits} found, with {rows} rows, {wrong} of them wrong"
                ))
            }
            Line::Failed(what) => violation(format!("{what}\n{}", self.place.tail("console.log"))),
            Line::Said(text) => {
                println!("  guest: {text}");
                Ok(Line::Said(text))
            }
            line => Ok(line),
        }
    }

    /// Counts what is acknowledged; lines of a dying guest come here alone.
    fn note(&mut self, line: &Line) {
        if let Line::Acknowledged(commit) = line {
            self.acknowledged = *commit;
            self.commits += 1;
        }
    }

    /// A last look through the cache, a drain, a clean stop; then the origin alone.
    fn end(&mut self) -> Result<(), Trouble> {
        let daemon = self.daemon()?;
        self.look(Drive::Nbd(SOCKET))?;
        self.flashfront.drain(&self.place)?;
        if !daemon.stop(&self.place)? {
            return violation(format!("the daemon does not stop well:\n{}", self.place.tail("daemon.log")));
        }
        // What a clean stop leaves must be on the disks, not in their caches.
        self.power_off()?;
        self.power_on()?;
        for (verb, done) in [
            ("check", self.flashfront.check(&self.place)),
            ("detach", self.flashfront.on_devices(&self.place, "detach")),
        ] {
            if let Err(failed) = done {
                return violation(format!("flashfront {verb}: {failed}"));
            }
        }
        self.power_off()?;
        self.look(Drive::File("origin.img"))?;
        println!("at the end: drained, stopped, checked, detached; the origin alone is sound");
        Ok(())
    }

    /// Boots, checks everything, and ends well.
    fn look(&mut self, drive: Drive<'_>) -> Result<(), Trouble> {
        let guest = boot(&self.place, drive, "job=look")?;
        while self.line(&guest)? != Line::Down {}
        Ok(())
    }
}
