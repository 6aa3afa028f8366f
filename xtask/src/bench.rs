// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x bench`: the speed targets, measured as ratios on this machine's real file system.
//!
//! In process: the cache beside its own cache file, one driver for both. Over NBD: the daemon beside
//! `nbdkit file` on a file of the same size, the same fio job, in turns (A B A B), so that a
//! machine that changes its speed changes both. Medians; losing rows stay. Results go to
//! bench/runs/DATE-HOST/ with `--keep`, else to the screen only.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::run::{Failed, cargo, root, run, stdout_of};

const ROUNDS: usize = 5;
const NBD_ROUNDS: usize = 3;
const SECONDS: u32 = 5;
/// Bytes that the clients read and write: they fit in the cache, so that reads hit.
const DATA: &str = "512m";
const FILE_BYTES: u64 = 1 << 30;
const CACHE_BYTES: u64 = 2 << 30;

/// What fio is asked for: name, options, and where its figure is in the terse output (version 3).
const JOBS: [(&str, &[&str], usize); 4] = [
    ("4 KiB random write, 32 in flight", &["--rw=randwrite", "--bs=4k", "--iodepth=32"], 48),
    ("4 KiB random read hits, 32 in flight", &["--rw=randread", "--bs=4k", "--iodepth=32"], 7),
    ("4 KiB random read hits, 1 in flight", &["--rw=randread", "--bs=4k", "--iodepth=1"], 7),
    ("1 MiB sequential read, 8 in flight", &["--rw=read", "--bs=1m", "--iodepth=8"], 7),
];

/// A server that is killed when it is let go.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the benchmarks. `--keep` writes them into the tree; `--dir DIR`: where the files are made.
pub(crate) fn bench(args: &[String]) -> Result<(), Failed> {
    let dir = args.iter().position(|arg| arg == "--dir").and_then(|at| args.get(at + 1));
    let dir = dir.map_or_else(|| root().join("bench/out"), PathBuf::from);
    fs::create_dir_all(&dir).map_err(|error| Failed::File { path: dir.clone(), error })?;
    run(&mut cargo(["build", "--release", "-p", "flashfront-cli"]))?;
    run(&mut cargo(["build", "--release", "-p", "flashfront-serve", "--example", "in_process"]))?;
    let in_process = root().join("target/release/examples/in_process");
    let json = stdout_of(Command::new(in_process).arg(&dir).arg(ROUNDS.to_string()))?;
    let mut summary = String::from("| what | ours / theirs | rounds |\n|---|--:|---|\n");
    for (key, what) in [
        (
            "write_ratio_median",
            "4 KiB random write, writeback, 32 in flight, in process / raw 512 KiB sequential write",
        ),
        ("read_ratio_median", "4 KiB random read hits, 32 in flight, in process / raw 4 KiB random read"),
    ] {
        let _ = writeln!(summary, "| {what} | {:.2} | {ROUNDS} |", number(&json, key));
    }
    nbd(&dir, &mut summary)?;
    println!("{summary}\n{json}");
    if args.iter().any(|arg| arg == "--keep") {
        keep(&json, &summary)?;
    }
    Ok(())
}

/// The number behind a key of a JSON text.
fn number(json: &str, key: &str) -> f64 {
    let at = json.find(&format!("\"{key}\":")).map_or(json.len(), |at| at + key.len() + 3);
    let digits: String = json[at..].chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    digits.parse().unwrap_or(f64::NAN)
}

fn nbd(dir: &Path, summary: &mut String) -> Result<(), Failed> {
    let (origin, cache, other) = (dir.join("nbd-origin"), dir.join("nbd-cache"), dir.join("nbdkit-file"));
    for (path, bytes) in [(&origin, FILE_BYTES), (&cache, CACHE_BYTES), (&other, FILE_BYTES)] {
        fill(path, bytes).map_err(|error| Failed::File { path: path.clone(), error })?;
    }
    let flashfront = root().join("target/release/flashfront");
    let paths = ["--cache".as_ref(), cache.as_os_str(), "--origin".as_ref(), origin.as_os_str()];
    run(Command::new(&flashfront).arg("format").args(paths).arg("--force").stdout(Stdio::null()))?;
    let (ours_socket, theirs_socket) = (dir.join("ours.sock"), dir.join("theirs.sock"));
    let ours = Command::new(&flashfront)
        .arg("serve")
        .args(paths)
        .arg("--nbd")
        .arg(format!("unix:{}", ours_socket.display()))
        .arg("--control")
        .arg(dir.join("control.sock"))
        .args(["--sequential-bypass", "0"])
        .stdout(Stdio::piped())
        .spawn();
    let mut ours = Server(started("flashfront", ours)?);
    let mut line = String::new();
    if let Some(stdout) = ours.0.stdout.take() {
        let path = ours_socket.clone();
        BufReader::new(stdout).read_line(&mut line).map_err(|error| Failed::File { path, error })?;
    }
    // nbdkit goes into the background when it listens; the pid file keeps it ours to stop.
    let theirs = Command::new("nbdkit").arg("-f").arg("-U").arg(&theirs_socket).arg("file").arg(&other).spawn();
    let theirs = Server(started("nbdkit", theirs)?);
    let ready = || theirs_socket.exists();
    while !ready() {
        // pacing: nbdkit has no way to say that it listens but its socket.
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // Everything that is read later is in the cache, and in nbdkit's page cache.
    let warm: &[&str] = &["--rw=write", "--bs=256k", "--iodepth=8"];
    for socket in [&ours_socket, &theirs_socket] {
        fio(socket, warm, 48, false)?;
    }
    for (what, job, field) in JOBS {
        let mut ratios = Vec::new();
        let mut shown = String::new();
        for _ in 0..NBD_ROUNDS {
            let (ours, theirs) = (fio(&ours_socket, job, field, true)?, fio(&theirs_socket, job, field, true)?);
            ratios.push(ours / theirs);
            let _ = write!(shown, "{ours:.0}/{theirs:.0} ");
        }
        ratios.sort_by(f64::total_cmp);
        let median = ratios[ratios.len() / 2];
        let _ = writeln!(summary, "| {what}: over NBD on a unix socket / nbdkit file | {median:.2} | IOPS {shown}|");
    }
    drop((ours, theirs));
    for path in [origin, cache, other] {
        fs::remove_file(&path).map_err(|error| Failed::File { path, error })?;
    }
    Ok(())
}

fn started(program: &str, child: std::io::Result<Child>) -> Result<Child, Failed> {
    child.map_err(|error| Failed::Start { program: program.into(), error })
}

/// A file without holes: the first write into one costs the file system more than later ones.
fn fill(path: &Path, bytes: u64) -> std::io::Result<()> {
    let mut file = fs::File::create(path)?;
    let zeroes = vec![0; 4 << 20];
    (0..bytes / zeroes.len() as u64).try_for_each(|_| file.write_all(&zeroes))?;
    file.sync_all()
}

fn fio(socket: &Path, job: &[&str], field: usize, timed: bool) -> Result<f64, Failed> {
    let mut command = Command::new("fio");
    command
        .args(["--name=bench", "--ioengine=nbd", "--minimal", "--randrepeat=0", "--norandommap"])
        .arg(format!("--size={DATA}"))
        .arg(format!("--uri=nbd+unix:///?socket={}", socket.display()))
        .args(job);
    if timed {
        command.args(["--time_based".to_owned(), format!("--runtime={SECONDS}")]);
    }
    let text = stdout_of(&mut command)?;
    let line = text.lines().find(|line| line.starts_with("3;")).unwrap_or_default();
    Ok(line.split(';').nth(field).and_then(|it| it.parse().ok()).unwrap_or(f64::NAN))
}

/// Writes the results into the tree, with the machine and the date.
fn keep(json: &str, summary: &str) -> Result<(), Failed> {
    let say = |program: &str, args: &[&str]| stdout_of(Command::new(program).args(args).current_dir(root()));
    let (date, host) = (say("date", &["+%F"])?, say("uname", &["-n"])?);
    let machine = say(
        "sh",
        &["-c", "uname -srm; nproc; grep -m1 'model name' /proc/cpuinfo; free -m | head -2; df -T . | tail -1"],
    )?;
    let commit = say("git", &["rev-parse", "--short", "HEAD"])?;
    let dir = root().join(format!("bench/runs/{}-{}", date.trim(), host.trim()));
    let setup = format!(
        "# Setup\n\nCommit {}, `cargo x bench --keep`, {}.\n\n```\n{machine}```\n\nFiles on the file system of the checkout; nothing else was asked of the machine, which is shared.\n",
        commit.trim(),
        date.trim()
    );
    let summary = format!(
        "# Speed, {}\n\nMedians of ratios, ours over theirs, in one run. Absolute figures of a shared machine mean little.\n\n{summary}",
        date.trim()
    );
    fs::create_dir_all(&dir).map_err(|error| Failed::File { path: dir.clone(), error })?;
    for (name, text) in [("setup.md", setup.as_str()), ("raw.json", json), ("summary.md", &summary)] {
        let path = dir.join(name);
        fs::write(&path, text).map_err(|error| Failed::File { path, error })?;
    }
    println!("kept in {}", dir.display());
    Ok(())
}
