// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x vm`: power cuts under a database, with programs that others wrote on both sides of ours.
//!
//! A Debian kernel with ext4 and SQLite in QEMU (`vm/guest.rs`) on our NBD export, which lies on disks with a
//! volatile write cache (`vm/disk.rs`). Each life ends by `kill -9` of the guest, the daemon and the disks; the
//! next one begins with replay, fsck and a check of the whole database: every commit that the guest
//! had said to be done must be there. At the end the bare origin must pass the same, without us.

mod daemon;
mod disk;
mod guest;
mod place;

use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use crate::run::{Failed, flashfront, target};
use daemon::{Daemon, Flashfront, SOCKET};
use disk::Disk;
use guest::{Drive, Guest, Image, Line};
use place::Place;

/// The cache is smaller than what the guest works on, so that there is reclaim.
const CACHE_BYTES: u64 = 32 << 20;
const ORIGIN_BYTES: u64 = 256 << 20;

/// The programs that it takes, and their packages in Debian.
const PROGRAMS: [(&str, &str); 6] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("nbdkit", "nbdkit"),
    ("nbdfuse", "libnbd-bin"),
    ("fusermount3", "fuse3"),
    ("apt-get", "apt"),
    ("dpkg-deb", "dpkg"),
];

/// What was asked for.
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

fn usage() -> Failed {
    Failed::Usage("usage: cargo x vm [--kills N] [--seed S] [--keep] [--canary]".to_owned())
}

/// Why a run ends before its time.
enum Trouble {
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

fn violation<T>(what: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble::Violation(what.into()))
}

/// The verb.
pub(crate) fn vm(args: &[String]) -> Result<(), Failed> {
    let options = Options::parse(args)?;
    missing()?;
    let program = flashfront()?;
    println!("vm: seed {}; making the guest", options.seed);
    let dir = target().join("vm");
    let image = Image::new(&dir.join("guest"))?;
    let place = Place::new(&dir, &["cache", "origin"])?;
    let mut rig = Rig::new(&options, place, image, program)?;
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
        (false, 0) | (true, 1) => Ok(()),
        (true, _) => Err(Failed::Usage("flushes of the cache device did nothing, and nobody noticed".to_owned())),
        (false, _) => Err(Failed::Findings(violations)),
    }
}

/// Says what can't be had here.
fn missing() -> Result<(), Failed> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(Failed::Usage(format!("the guest is an x86_64, this is {}", std::env::consts::ARCH)));
    }
    let absent = |program: &str| Command::new(program).arg("--version").output().is_err();
    let packages: Vec<&str> = PROGRAMS.iter().filter(|(it, _)| absent(it)).map(|(_, package)| *package).collect();
    match packages[..] {
        [] if !std::path::Path::new("/dev/fuse").exists() => Err(Failed::Usage("there is no /dev/fuse here".to_owned())),
        [] => Ok(()),
        _ => Err(Failed::Usage(format!("missing here: apt-get install {}", packages.join(" ")))),
    }
}

/// What dies when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    /// Everything at once, and what the disks had not flushed is lost.
    Power,
    /// The guest alone; the daemon destages on for a while, then the power is cut.
    GuestFirst,
    /// The daemon alone, whose disks live on; the guest sees errors, and dies then.
    DaemonFirst,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Power => "power cut",
            Self::GuestFirst => "guest killed, power cut later",
            Self::DaemonFirst => "daemon killed, disks live on",
        })
    }
}

/// What is drawn for one life.
#[derive(Clone, Copy, Debug)]
struct Plan {
    journal: &'static str,
    /// The power is cut once before this, so long after the start of the daemon: in its replay, mostly.
    replay_cut: Option<Duration>,
    /// It dies after so many commits; nothing: while it mounts and checks.
    goal: Option<u64>,
    /// And so long after that.
    wait: Duration,
    death: Death,
}

impl Plan {
    fn draw(random: &mut Random, life: u64, canary: bool) -> Self {
        let first = life == 1;
        let death = match random.below(5) {
            _ if canary => Death::Power,
            0 => Death::GuestFirst,
            1 => Death::DaemonFirst,
            _ => Death::Power,
        };
        let recovering = random.below(5) == 0 && !first && !canary;
        let goal = 10 + random.below(300);
        let wait = Duration::from_micros(random.below(if recovering { 1_500_000 } else { 30_000 }));
        let replay_cut = Duration::from_micros(random.below(60_000));
        Self {
            journal: ["wal", "delete"][(life % 2) as usize],
            replay_cut: (random.below(4) == 0 && !first).then_some(replay_cut),
            goal: (!recovering).then_some(goal),
            wait,
            death,
        }
    }
}

/// Everything there is.
struct Rig {
    image: Image,
    flashfront: Flashfront,
    cache: Disk,
    origin: Disk,
    random: Random,
    canary: bool,
    /// The last commit that the guest has said to be durable.
    acknowledged: u64,
    /// All commits that were ever acknowledged.
    commits: u64,
    kills: u64,
    place: Place,
}

impl Rig {
    fn new(options: &Options, place: Place, image: Image, program: std::path::PathBuf) -> Result<Self, Failed> {
        let cache = Disk::new(&place, "cache", CACHE_BYTES)?;
        let origin = Disk::new(&place, "origin", ORIGIN_BYTES)?;
        let devices = ["--cache".to_owned(), cache.path(), "--origin".to_owned(), origin.path()];
        let flashfront = Flashfront { program, devices, lie: options.canary };
        let (random, canary) = (Random(options.seed), options.canary);
        Ok(Self { image, flashfront, cache, origin, random, canary, acknowledged: 0, commits: 0, kills: 0, place })
    }

    fn all_lives(&mut self, kills: u64) -> Result<(), Trouble> {
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

    /// One life, up to its death; what there was to see.
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
        let mut guest = Guest::boot(&self.place, &self.image, &Drive::Nbd(SOCKET), &job)?;
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
            self.note(&line);
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
            Ok(Some(line)) => line,
            Ok(None) => return violation(format!("the guest has ended:\n{}", self.place.tail("console.log"))),
            Err(guest::Hangs) => return violation(format!("the guest hangs:\n{}", self.place.tail("console.log"))),
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
        self.look(&Drive::Nbd(SOCKET))?;
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
        self.look(&Drive::File("origin.img"))?;
        println!("at the end: drained, stopped, checked, detached; the origin alone is sound");
        Ok(())
    }

    /// Boots, checks everything, and ends well.
    fn look(&mut self, drive: &Drive<'_>) -> Result<(), Trouble> {
        let guest = Guest::boot(&self.place, &self.image, drive, "job=look")?;
        while self.line(&guest)? != Line::Down {}
        Ok(())
    }
}

/// SplitMix64: the same seed draws the same plans everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % limit
    }
}
