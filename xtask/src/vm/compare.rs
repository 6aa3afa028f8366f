// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x vm compare`: the kernel's own caches and ours on the same emulated devices, and the
//! simulator's models beside each.
//!
//! A Debian kernel in QEMU (`compare/kernel.sh`, `compare/peers.sh`) has two disks. They are files
//! behind `flashfront serve --emulate-origin`, which gives them the pace of an SSD and of a disk.
//! The guest makes a cache of them and runs fio's job. For Flashfront the cache is outside, and its
//! export is the guest's disk. `flashfront sim run --job` runs the same on the models. The guest's
//! processor is emulated and slow: the amounts that were read and written count, not the speed.

mod counted;
mod simulated;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::daemon::Daemon;
use super::guest::{self, Drive, Guest, Machine};
use super::needs;
use super::place::Workplace;
use crate::bench::{self, Found};
use crate::run::{Failed, packaged, root, stdout_of, target};
use counted::Report;
use simulated::Simulated;

const PROGRAMS: [(&str, &str); 8] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("fio", "fio"),
    ("/usr/sbin/make-bcache", "bcache-tools"),
    ("/usr/sbin/dmsetup", "dmsetup"),
    ("apt-get", "apt"),
    ("dpkg-deb", "dpkg"),
    ("make", "make gcc"),
];

/// Sizes of the volume and of the cache: small, because the job is.
const HDD_BYTES: u64 = 1 << 30;
const SSD_BYTES: u64 = 320 << 20;
const JOB: &str = "bench/vm/zipf.fio";
/// A phase of the job takes one to two minutes at its rate.
const LIMIT: Duration = Duration::from_secs(900);
/// Runs of the models, each with other random numbers.
const RUNS: u64 = 25;

/// The systems that can be compared: the guest's name for each, and the simulator's.
const SYSTEMS: [(&str, Option<&str>); 7] = [
    ("flashfront", Some("flashfront")),
    ("bcache", Some("bcache-6.1")),
    ("dm-cache", Some("dm-cache-smq")),
    ("dm-writeboost", Some("dm-writeboost-readcache")),
    ("dm-writecache", None),
    ("hdd", Some("hdd")),
    ("ssd", Some("ssd")),
];

/// The verb.
pub(super) fn compare(args: &[String]) -> Result<(), Failed> {
    let (mut systems, mut keep) = (SYSTEMS.map(|(name, _)| name).to_vec(), false);
    let mut words = args.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--keep" => keep = true,
            "--systems" => systems = named(words.next().map_or("", String::as_str))?,
            _ => return Err(needs::usage()),
        }
    }
    needs::missing(&PROGRAMS)?;
    let program = packaged()?;
    let job = fs::read_to_string(root().join(JOB)).map_err(|error| Failed::File { path: JOB.into(), error })?;
    let dir = target().join("vm");
    let place = Workplace::new(&dir, &[])?;
    let simulated = simulate(&program, &job, &place, &systems)?;
    let files = [("peers.sh", include_str!("compare/peers.sh")), ("job.fio", job.as_str())];
    guest::make(&place, include_str!("compare/kernel.sh"), &files, &dir.join("peers"))?;
    let (start, mut reports, mut failed) = (Instant::now(), Vec::new(), 0);
    for (nth, system) in systems.iter().enumerate() {
        let left = start.elapsed().mul_f64((systems.len() - nth) as f64 / nth.max(1) as f64).as_secs();
        let left = if nth > 0 { format!("; about {}:{:02} left", left / 60, left % 60) } else { String::new() };
        println!("vm compare: {system}, {} of {}{left}", nth + 1, systems.len());
        match (Bench { place: &place, program: &program, system }).run(&counted::phases(&job)) {
            Ok(report) => reports.push(report),
            // The results of the others must not be lost.
            Err(error) => {
                println!("  {error}");
                failed += 1;
            }
        }
    }
    let summary = table::table(&reports, &simulated)?;
    println!("\n{summary}");
    if failed > 0 {
        place.keep();
        return Err(Failed::Findings(failed));
    }
    if keep {
        bench::keep("kernel-caches", false, "cargo x vm compare --keep", &Found { summary, json: None })?;
    }
    Ok(())
}

fn named(list: &str) -> Result<Vec<&'static str>, Failed> {
    let known = |name: &str| SYSTEMS.iter().map(|(known, _)| *known).find(|known| *known == name);
    let all = SYSTEMS.map(|(name, _)| name).join(", ");
    list.split(',')
        .map(|name| known(name).ok_or_else(|| Failed::Usage(format!("--systems: `{name}`; there are {all}"))))
        .collect()
}

/// Runs the models on the job, and on the same with other random numbers.
fn simulate(program: &Path, job: &str, place: &Workplace, systems: &[&str]) -> Result<Simulated, Failed> {
    let chosen = SYSTEMS.iter().filter(|(name, _)| systems.contains(name));
    let models: Vec<&str> = chosen.filter_map(|(_, model)| *model).collect();
    println!("vm compare: simulating {}, {RUNS} times", models.join(", "));
    let mut simulated = Simulated::default();
    let runs = if models.is_empty() { 0 } else { RUNS };
    for nth in 0..runs {
        let path = place.path("simulated.fio");
        fs::write(&path, counted::reseeded(job, nth)).map_err(|error| Failed::File { path: path.clone(), error })?;
        let mut sim = std::process::Command::new(program);
        sim.args(["sim", "run", "-q", "--csv", "--cache-size", &format!("{}MiB", SSD_BYTES >> 20), "--job"]).arg(path);
        sim.args(["--origin-size", &format!("{}MiB", HDD_BYTES >> 20)]);
        simulated.add(&stdout_of(sim.args(["--systems", &models.join(",")]))?)?;
    }
    Ok(simulated)
}

/// A system on fresh devices.
struct Bench<'a> {
    place: &'a Workplace,
    program: &'a PathBuf,
    system: &'static str,
}

impl Bench<'_> {
    fn run(&self, phases: &[String]) -> Result<Report, Failed> {
        // Alone the SSD is the volume.
        let ssd_bytes = if self.system == "ssd" { HDD_BYTES } else { SSD_BYTES };
        for (name, bytes) in [("ssd.img", ssd_bytes), ("hdd.img", HDD_BYTES)] {
            let path = self.place.path(name);
            let make = || fs::File::create(&path)?.set_len(bytes);
            make().map_err(|error| Failed::File { path: path.clone(), error })?;
        }
        // Their sockets, and their memory of earlier systems, would be those of the last one.
        for old in ["ssd.sock", "hdd.sock", "ssd.ctl", "hdd.ctl", "nbd.sock", "control.sock"] {
            let _ = fs::remove_file(self.place.path(old));
        }
        let _ = fs::remove_dir_all(self.place.path("state"));
        let ours = self.system == "flashfront";
        let daemons = if ours {
            vec![self.cache()?]
        } else {
            vec![self.device("ssd", "samsung-850-pro")?, self.device("hdd", "wd-re-4tb")?]
        };
        for daemon in &daemons {
            if !daemon.ready() {
                return Err(Failed::Usage(format!("a daemon does not start:\n{}", self.place.tail("daemon.log"))));
            }
        }
        let drives: &[Drive<'_>] =
            if ours { &[Drive::Nbd("nbd.sock")] } else { &[Drive::Nbd("ssd.sock"), Drive::Nbd("hdd.sock")] };
        let words = format!(
            "system={} phases={} disks={} kernel={}",
            self.system,
            phases.join(","),
            if ours { "vda" } else { "vda,vdb" },
            target().join("vm/peers").display()
        );
        let machine = Machine { drives, words: &words, processors: 2, memory_mib: 1024, sees_root: true, limit: LIMIT };
        let guest = Guest::boot(self.place, &machine)?;
        self.listen(&guest)
    }

    /// A device alone, at its pace.
    fn device(&self, name: &str, model: &str) -> Result<Daemon, Failed> {
        let mut serve = self.place.command(self.program);
        serve.args(["serve", "--without-cache", "--accept-missing-dirty-data", "--origin", &format!("{name}.img")]);
        serve.args([
            "--emulate-origin",
            model,
            "--nbd",
            &format!("unix:{name}.sock"),
            "--control",
            &format!("{name}.ctl"),
        ]);
        Daemon::start(self.place, serve.args(["--state", "state"]))
    }

    /// Flashfront on both.
    fn cache(&self) -> Result<Daemon, Failed> {
        let devices = ["--cache", "ssd.img", "--origin", "hdd.img"];
        stdout_of(self.place.command(self.program).arg("format").args(devices))?;
        let mut serve = self.place.command(self.program);
        serve.arg("serve").args(devices).args(["--emulate-cache", "samsung-850-pro", "--emulate-origin", "wd-re-4tb"]);
        Daemon::start(
            self.place,
            serve.args(["--nbd", "unix:nbd.sock", "--control", "control.sock", "--state", "state"]),
        )
    }

    fn listen(&self, guest: &Guest) -> Result<Report, Failed> {
        let mut report = Report::new(self.system);
        loop {
            let Ok(Some(line)) = guest.next() else {
                let console = self.place.tail("console.log");
                return Err(Failed::Usage(format!("the guest hangs or has ended ({}):\n{console}", self.system)));
            };
            if line.starts_with("failed") {
                // A system that can't be had (a module that this kernel lacks) doesn't keep the
                // others away.
                println!("  left out: {line}");
                return Ok(report);
            }
            if line == "down" {
                return Ok(report);
            }
            // Flashfront is outside, and is asked there.
            let status =
                (self.system == "flashfront" && report.wants_status(&line)).then(|| self.status()).transpose()?;
            report.hear(&line, status.as_deref())?;
        }
    }

    fn status(&self) -> Result<String, Failed> {
        stdout_of(self.place.command(self.program).args(["status", "--json", "--control", "control.sock"]))
    }
}
