// SPDX-License-Identifier: MIT OR Apache-2.0
//! The four loads, each made by real clients of the served volume, which is a file (FUSE).
//!
//! File systems lie on a loop device with direct I/O, and are mounted anew before they are read.
//! With a full page cache no request would reach the volume.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::run::{Failed, root, run, stdout_of};

pub(super) struct Load {
    pub(super) name: &'static str,
    pub(super) origin_bytes: u64,
    /// Runs it on the volume, with a folder for files.
    pub(super) run: fn(&Path, &Path) -> Result<(), Failed>,
}

pub(super) const LOADS: [Load; 4] = [
    Load { name: "zipf", origin_bytes: 2 << 30, run: zipf },
    Load { name: "git clone and build", origin_bytes: 2 << 30, run: git },
    Load { name: "sqlite", origin_bytes: 2 << 30, run: sqlite },
    Load { name: "trace of a database server", origin_bytes: 26 << 30, run: trace },
];

/// The factor by which the trace is replayed faster: in 77 s instead of 51 minutes.
const FASTER: f64 = 40.0;

/// fio, with direct I/O on the volume.
fn fio(volume: &Path, args: &[&str]) -> Result<(), Failed> {
    let mut fio = Command::new("fio");
    fio.args(["--name=load", "--ioengine=libaio", "--direct=1", "--minimal"]);
    run(fio.arg(format!("--filename={}", volume.display())).args(args).stdout(Stdio::null()))
}

/// Reads and writes of 4 KiB, of which some places are asked for far more often than others.
fn zipf(volume: &Path, _: &Path) -> Result<(), Failed> {
    fio(
        volume,
        &[
            "--rw=randrw",
            "--bs=4k",
            "--size=1g",
            "--random_distribution=zipf:1.1",
            "--norandommap",
            "--randseed=1",
            "--rate_iops=160,40",
            "--rate_process=poisson",
            "--iodepth=16",
            "--time_based",
            "--runtime=60",
        ],
    )
}

/// Clones this repository, compiles a hundred files, and reads all of it through an empty page
/// cache.
fn git(volume: &Path, dir: &Path) -> Result<(), Failed> {
    let mut disk = Disk::new(volume, dir)?;
    disk.mount()?;
    let at = disk.folder.clone();
    let clone = at.join("clone");
    run(Command::new("git").args(["clone", "--quiet", "--no-hardlinks"]).arg(root()).arg(&clone))?;
    let sources = at.join("sources");
    fs::create_dir(&sources).map_err(|error| Failed::File { path: sources.clone(), error })?;
    for nth in 0..100 {
        let mut text = String::from("#include <stdio.h>\n");
        for function in 0..200 {
            let _ = writeln!(text, "int f{nth}_{function}(int n) {{ printf(\"%d\", n); return n * {function}; }}");
        }
        let path = sources.join(format!("{nth}.c"));
        fs::write(&path, text).map_err(|error| Failed::File { path, error })?;
    }
    disk.unmount()?;
    disk.mount()?;
    let script = "set -e; for it in *.c; do cc -O0 -c $it; done; sync -f .; cc -shared -o all.so *.o";
    run(Command::new("sh").args(["-c", script]).current_dir(&sources))?;
    let git = |args: &[&str]| stdout_of(Command::new("git").arg("-C").arg(&clone).args(args));
    git(&["grep", "--count", "flush"])?;
    disk.unmount()?;
    disk.mount()?;
    git(&["grep", "--count", "flush"])?;
    git(&["fsck", "--no-progress"])?;
    git(&["checkout", "--quiet", "HEAD~20"])?;
    disk.unmount()
}

/// A table of 100,000 rows, then single changes and looks by key, each change a transaction.
fn sqlite(volume: &Path, dir: &Path) -> Result<(), Failed> {
    let mut disk = Disk::new(volume, dir)?;
    disk.mount()?;
    let database = disk.folder.join("rows.db");
    let sql = |text: &str| {
        let path = dir.join("statements.sql");
        fs::write(&path, text).map_err(|error| Failed::File { path: path.clone(), error })?;
        run(Command::new("sqlite3").arg(&database).arg(format!(".read {}", path.display())).stdout(Stdio::null()))
    };
    sql(
        "pragma journal_mode=wal; pragma synchronous=full; create table rows(id integer primary key, word text, n int);
        with recursive numbers(i) as (select 1 union all select i + 1 from numbers where i < 100000)
        insert into rows select i, hex(randomblob(1500)), 0 from numbers;",
    )?;
    disk.unmount()?;
    disk.mount()?;
    let mut random = 1_u64;
    let mut text = String::from("pragma synchronous=full; pragma cache_size=200;\n");
    for nth in 0..6000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // A fifth of the rows are asked for four times of five.
        let (row, place) = (random >> 33, nth % 5);
        let id = 1 + if place < 4 { row % 20_000 } else { row % 100_000 };
        let _ = match nth % 3 {
            0 => writeln!(text, "update rows set n = n + 1 where id = {id};"),
            _ => writeln!(text, "select sum(length(word)) from rows where id between {id} and {id} + 2;"),
        };
    }
    sql(&text)?;
    disk.unmount()
}

/// Replays an hour of a database server, faster, from its trace in this repository.
fn trace(volume: &Path, dir: &Path) -> Result<(), Failed> {
    let packed = root().join("crates/sim/tests/data/windows-mssql.load.gz");
    let text = stdout_of(Command::new("gzip").arg("-dc").arg(packed))?;
    let name = volume.display();
    let mut log = format!("fio version 3 iolog\n0 {name} add\n0 {name} open\n");
    for line in text.lines() {
        let words: Vec<&str> = line.split(';').map(str::trim).collect();
        let [at, sector, sectors, op, ..] = words[..] else { continue };
        let (Ok(at), Ok(sector), Ok(sectors)) = (at.parse::<f64>(), sector.parse::<u64>(), sectors.parse::<u64>())
        else {
            continue;
        };
        let us = (at * 1e6 / FASTER) as u64;
        let op = if op == "W" { "write" } else { "read" };
        let _ = writeln!(log, "{us} {name} {op} {} {}", sector * 512, sectors * 512);
    }
    let path = dir.join("log");
    fs::write(&path, log).map_err(|error| Failed::File { path: path.clone(), error })?;
    fio(volume, &[&format!("--read_iolog={}", path.display()), "--iodepth=64"])
}

/// A file system on the volume; let go, nothing of it is left.
struct Disk {
    device: PathBuf,
    folder: PathBuf,
    mounted: bool,
}

impl Disk {
    fn new(volume: &Path, dir: &Path) -> Result<Self, Failed> {
        let folder = dir.join("mounted");
        fs::create_dir(&folder).map_err(|error| Failed::File { path: folder.clone(), error })?;
        let how = ["--find", "--show", "--direct-io=on", "--sector-size", "4096"];
        let device = stdout_of(Command::new("losetup").args(how).arg(volume))?;
        let disk = Self { device: device.trim().into(), folder, mounted: false };
        // All of it now: nothing is to be written later that no client has asked for.
        let all = ["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
        run(Command::new("mkfs.ext4").args(all).arg(&disk.device))?;
        Ok(disk)
    }

    fn mount(&mut self) -> Result<(), Failed> {
        run(Command::new("mount").arg(&self.device).arg(&self.folder))?;
        self.mounted = true;
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), Failed> {
        run(Command::new("umount").arg(&self.folder))?;
        self.mounted = false;
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted {
            // A failure is told by the next command that needs the folder.
            let _ = self.unmount();
        }
        let _ = run(Command::new("losetup").arg("--detach").arg(&self.device));
    }
}
