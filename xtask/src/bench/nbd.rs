// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon beside `nbdkit file` on a file of the same size: the same fio jobs, in turns.
//!
//! The turns (A B A B) make a machine that changes its speed change both. nbdkit answers from the
//! page cache, that is from as much RAM as there is. So ours runs twice: as it is by default, and
//! with a RAM front that holds the data. It also runs beside `qemu-nbd --cache=none`, whose bytes
//! come from the device each time, as ours do by default. (nbdkit has a `cache=none`, too, but
//! reads from the page cache all the same.)
//!
//! One more is a server with nothing behind its socket. With many requests of 4 KiB in flight, the
//! rest between that server and ours is ours to save.
//!
//! Where there is /dev/fuse, the daemon with the RAM front shows the volume as a file, too. fio
//! reads and writes that with libaio, as a loop device does.
//!
//! Each server's processor time per request is that of its whole process. What the kernel does for
//! it in threads of its own isn't in it, nor is the client's part.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::found::{Found, fill, median};
use super::server::{Server, echo, fio, fio_at, nbdkit, ours, qemu_nbd};
use crate::run::{Failed, run};

const ROUNDS: usize = 3;
const SECONDS: f64 = 2.0;
/// Bytes that the clients read and write: they fit in the cache, so that reads hit.
const DATA: &str = "512m";
/// RAM for the second of ours: room for the data, as nbdkit has it in the page cache.
const RAM_FRONT: &str = "768 MiB";
const FILE_BYTES: u64 = 1 << 30;
const CACHE_BYTES: u64 = 2 << 30;

/// The jobs of fio: name, options, and the field of their IOPS in the terse output (version 3).
///
/// Their order matters: random writes scatter the blocks in the log.
const JOBS: [(&str, &[&str], usize); 8] = [
    ("1 MiB sequential read of data written in order, 8 in flight", &["--rw=read", "--bs=1m", "--iodepth=8"], 7),
    ("4 KiB random read hits, 32 in flight", &["--rw=randread", "--bs=4k", "--iodepth=32"], 7),
    ("4 KiB random read hits, 1 in flight", &["--rw=randread", "--bs=4k", "--iodepth=1"], 7),
    (
        "4 KiB random read hits, 4 clients with 32 in flight each",
        &["--rw=randread", "--bs=4k", "--iodepth=32", "--numjobs=4"],
        7,
    ),
    ("4 KiB random write, 32 in flight", &["--rw=randwrite", "--bs=4k", "--iodepth=32"], 48),
    ("4 KiB random write, 1 in flight", &["--rw=randwrite", "--bs=4k", "--iodepth=1"], 48),
    (
        "4 KiB random write, 4 clients with 32 in flight each",
        &["--rw=randwrite", "--bs=4k", "--iodepth=32", "--numjobs=4"],
        48,
    ),
    ("1 MiB sequential read of data written at random, 8 in flight", &["--rw=read", "--bs=1m", "--iodepth=8"], 7),
];

pub(super) fn nbd(dir: &Path) -> Result<Found, Failed> {
    let names = [
        "nbd-origin",
        "nbd-cache",
        "nbd-front-origin",
        "nbd-front-cache",
        "nbdkit-file",
        "nbdkit-bare-file",
        "qemu-file",
    ];
    let paths = names.map(|name| dir.join(name));
    let sizes = [FILE_BYTES, CACHE_BYTES, FILE_BYTES, CACHE_BYTES, FILE_BYTES, FILE_BYTES, FILE_BYTES];
    for (path, bytes) in paths.iter().zip(sizes) {
        fill(path, bytes)?;
    }
    let fuse = Fuse::new(dir)?;
    let fuse_options = fuse.as_ref().map(|fuse| ["--fuse".to_owned(), fuse.0.display().to_string()]);
    let front: Vec<&str> =
        ["--ram-front-bytes", RAM_FRONT].into_iter().chain(fuse_options.iter().flatten().map(String::as_str)).collect();
    let servers = [
        ours(dir, &paths[1], &paths[0], &[])?,
        ours(dir, &paths[3], &paths[2], &front)?,
        nbdkit(&paths[4], &[])?,
        nbdkit(&paths[5], &["cache=none"])?,
        qemu_nbd(dir, &paths[6])?,
        echo(dir)?,
    ];
    // Everything that is read later is in the cache, and in nbdkit's page cache, and what fits in
    // the RAM front.
    for server in &servers {
        fio(server, DATA, &["--rw=write", "--bs=256k", "--iodepth=8"], 48)?;
        fio(server, DATA, &["--rw=read", "--bs=256k", "--iodepth=8"], 7)?;
    }
    let mut summary = String::from(
        "| over NBD on a unix socket | ours / nbdkit file | with RAM front / nbdkit file | ours / nbdkit file cache=none | ours / qemu-nbd cache=none | with RAM front / nothing behind the socket | with RAM front: by FUSE / by NBD | IOPS of the rounds: ours/with RAM front/nbdkit/nbdkit cache=none/qemu-nbd/nothing/with RAM front by FUSE |\n|---|--:|--:|--:|--:|--:|--:|---|\n",
    );
    let mut costs = String::from(
        "\n| processor time of the server's process for a request, us | ours | with RAM front | nbdkit file | nbdkit file cache=none | qemu-nbd cache=none | nothing behind the socket | with RAM front, by FUSE |\n|---|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for (what, job, field) in JOBS {
        let runtime = format!("--runtime={SECONDS}");
        let job: Vec<&str> = job.iter().copied().chain(["--time_based", &runtime]).collect();
        let (mut ratios, mut spent, mut shown) = ([const { Vec::new() }; 6], [const { Vec::new() }; 7], String::new());
        for _ in 0..ROUNDS {
            let mut rows = Vec::new();
            for server in &servers {
                rows.push(measured(server, || fio(server, DATA, &job, field))?);
            }
            rows.push(match &fuse {
                Some(fuse) => measured(&servers[1], || fio_at(&fuse.place(), DATA, &job, field))?,
                None => (f64::NAN, f64::NAN),
            });
            spent.iter_mut().zip(&rows).for_each(|(spent, (_, us))| spent.push(*us));
            let iops: Vec<f64> = rows.into_iter().map(|(iops, _)| iops).collect();
            for (ratios, (a, b)) in ratios.iter_mut().zip([(0, 2), (1, 2), (0, 3), (0, 4), (1, 5), (6, 1)]) {
                ratios.push(iops[a] / iops[b]);
            }
            shown += &iops.iter().map(|iops| format!("{iops:.0}")).collect::<Vec<_>>().join("/");
            shown.push(' ');
        }
        let ratios = ratios.map(|of| format!("{:.2}", median(of))).join(" | ");
        let _ = writeln!(summary, "| {what} | {ratios} | {shown}|");
        let spent = spent.map(|of| format!("{:.1}", median(of))).join(" | ");
        let _ = writeln!(costs, "| {what} | {spent} |");
    }
    drop(servers);
    for path in paths {
        std::fs::remove_file(&path).map_err(|error| Failed::File { path, error })?;
    }
    Ok(Found { summary: summary + &costs, json: None })
}

/// Runs a load; its requests a second, and the server's processor time for each in microseconds.
fn measured(server: &Server, load: impl FnOnce() -> Result<f64, Failed>) -> Result<(f64, f64), Failed> {
    let before = server.cpu_us()?;
    let iops = load()?;
    Ok((iops, (server.cpu_us()? - before) / (iops * SECONDS)))
}

/// The folder in which a daemon shows its volume as a file.
struct Fuse(PathBuf);

impl Fuse {
    /// Makes the folder; none where there is no FUSE.
    fn new(dir: &Path) -> Result<Option<Self>, Failed> {
        if !Path::new("/dev/fuse").exists() {
            return Ok(None);
        }
        let path = dir.join("fuse");
        std::fs::create_dir_all(&path).map_err(|error| Failed::File { path: path.clone(), error })?;
        Ok(Some(Self(path)))
    }

    /// The place of the file, for [`fio_at`].
    fn place(&self) -> [String; 3] {
        let file = self.0.join("data");
        ["--ioengine=libaio".to_owned(), "--direct=1".to_owned(), format!("--filename={}", file.display())]
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        // The daemon was killed, which leaves a dead mount. Without one there is nothing to do.
        let _ = run(Command::new("fusermount3").arg("-quz").arg(&self.0));
        let _ = std::fs::remove_dir(&self.0);
    }
}
