// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume in an object store 50 ms and 100 MB/s away, beside the same cache before a local file:
//! durable writes in turns. Then what is written for long, by what the link carries.
//!
//! The store is in RAM (`store`), behind the model of a link (`far`).

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::far::far;
use super::found::{Found, fill, median, parse};
use super::server::{Server, control, fio, ours, ours_knowing};
use super::store::Objects;
use crate::run::{Failed, packaged, run, stdout_of};

const ROUNDS: usize = 5;
const ROUND_TRIP: Duration = Duration::from_millis(50);
const BYTES_PER_SECOND: f64 = 100e6;
const VOLUME_BYTES: u64 = 2 << 30;
const CACHE_BYTES: u64 = 2 << 30;
/// What the writes in turns touch: far less than the dirty limit.
const TOUCHED: &str = "256m";
/// The cache of what is written for long, which is several times as much.
const SMALL_CACHE_BYTES: u64 = 512 << 20;
const IMPORTED_BYTES: u64 = 1 << 30;
/// The field of the IOPS of writes in fio's terse output.
const WRITE_IOPS: usize = 48;

/// The jobs in turns: durable writes, and writes.
const JOBS: [(&str, &[&str]); 3] = [
    ("4 KiB random write and FLUSH, 1 in flight", &["--rw=randwrite", "--bs=4k", "--iodepth=1", "--fsync=1"]),
    (
        "4 KiB random write, 32 in flight, FLUSH on each 32",
        &["--rw=randwrite", "--bs=4k", "--iodepth=32", "--fsync=32"],
    ),
    ("4 KiB random write, 32 in flight", &["--rw=randwrite", "--bs=4k", "--iodepth=32"]),
];

/// What is written for long, with options.
const LONG: [(&str, &[&str]); 2] = [
    ("1 MiB in order", &["--rw=write", "--bs=1m", "--iodepth=8"]),
    ("4 KiB at random", &["--rw=randwrite", "--bs=4k", "--iodepth=32"]),
];
/// Seconds until writers wait for the link, and seconds that are measured after that.
const UNTIL_THE_LIMIT: &str = "--runtime=8";
const MEASURED: &str = "--runtime=30";

/// The store, and the link to it.
struct Store {
    objects: Objects,
    /// The port of the link's near end.
    port: u16,
}

impl Store {
    fn start() -> Result<Self, Failed> {
        let failed = |error| Failed::Start { program: "the store".into(), error };
        let objects = Objects::default();
        let port = objects.serve().map_err(failed)?;
        Ok(Self { objects, port: far(port, ROUND_TRIP, BYTES_PER_SECOND).map_err(failed)? })
    }

    /// What lets a program find the store.
    fn variables(&self) -> [(&'static str, String); 4] {
        [
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port)),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", "none".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "none".to_owned()),
        ]
    }

    /// Makes a volume, and serves it with a cache of that size.
    fn served(&self, dir: &Path, name: &str, cache_bytes: u64) -> Result<(Server, PathBuf), Failed> {
        let (cache, origin) = (dir.join(format!("objects-{name}")), format!("s3://bucket/{name}"));
        fill(&cache, cache_bytes)?;
        let mut create = Command::new(packaged()?);
        create.args(["object", "create", &origin, "--size", &format!("{VOLUME_BYTES}B")]).envs(self.variables());
        run(create.stdout(Stdio::null()))?;
        Ok((ours_knowing(&self.variables(), dir, &cache, origin.as_ref(), &[])?, cache))
    }
}

pub(super) fn objects(dir: &Path) -> Result<Found, Failed> {
    let store = Store::start()?;
    let mut summary = in_turns(dir, &store)?;
    summary += &long(dir, &store)?;
    Ok(Found { summary, json: None })
}

/// Durable writes before the store and before a file, A B A B.
fn in_turns(dir: &Path, store: &Store) -> Result<String, Failed> {
    let (far, far_cache) = store.served(dir, "turns", CACHE_BYTES)?;
    let (near_cache, file) = (dir.join("objects-near"), dir.join("objects-file"));
    fill(&near_cache, CACHE_BYTES)?;
    fill(&file, VOLUME_BYTES)?;
    let near = ours(dir, &near_cache, &file, &[])?;
    let mut table = String::from(
        "| written to a volume 50 ms away | of the same before a local file | more microseconds for each | IOPS of the rounds: store/file |\n|---|--:|--:|---|\n",
    );
    for (what, job) in JOBS {
        let job: Vec<&str> = job.iter().copied().chain(["--time_based", "--runtime=4"]).collect();
        let (mut ratios, mut more, mut shown) = (Vec::new(), Vec::new(), String::new());
        for _ in 0..ROUNDS {
            let far = fio(&far, TOUCHED, &job, WRITE_IOPS)?;
            let near = fio(&near, TOUCHED, &job, WRITE_IOPS)?;
            ratios.push(far / near);
            more.push(1e6 / far - 1e6 / near);
            let _ = write!(shown, "{far:.0}/{near:.0} ");
        }
        let _ = writeln!(table, "| {what} | {:.2} | {:.0} | {shown}|", median(ratios), median(more));
    }
    drop((far, near));
    remove(&[far_cache, near_cache, file])?;
    Ok(table)
}

/// Several times the cache: what the link has carried, of what it can, while writers wait for it.
fn long(dir: &Path, store: &Store) -> Result<String, Failed> {
    let mut table = String::from(
        "\n| written through a cache of 512 MiB, beyond its limit | MB/s sent, by the link's 100 | bytes sent for each written |\n|---|--:|--:|\n",
    );
    for (nth, (what, job)) in LONG.into_iter().enumerate() {
        let (server, cache) = store.served(dir, &format!("long{nth}"), SMALL_CACHE_BYTES)?;
        let ask = |verb: &[&str]| -> Result<String, Failed> {
            stdout_of(Command::new(packaged()?).args(verb).arg("--control").arg(control(&cache)))
        };
        let figure = |of: &[&str]| -> Result<f64, Failed> {
            let status = parse(&ask(&["status", "--json"])?)?;
            let value = of.iter().fold(&status["volumes"][0], |value, key| &value[key]);
            Ok(value.as_f64().unwrap_or(f64::NAN))
        };
        let write = |runtime| -> Result<f64, Failed> {
            let job: Vec<&str> = job.iter().copied().chain(["--time_based", runtime]).collect();
            fio(&server, "2g", &job, WRITE_IOPS)
        };
        write(UNTIL_THE_LIMIT)?;
        let (before, begin) = (figure(&["store", "put", "bytes"])?, Instant::now());
        write(MEASURED)?;
        let (after, took) = (figure(&["store", "put", "bytes"])?, begin.elapsed().as_secs_f64());
        ask(&["drain"])?;
        let (sent, written) = (figure(&["store", "put", "bytes"])?, figure(&["written_bytes"])?);
        let rate = (after - before) / took / BYTES_PER_SECOND;
        let _ = writeln!(table, "| {what} | {rate:.2} | {:.2} |", sent / written);
        drop(server);
        remove(&[cache])?;
        store.objects.forget("/bucket/long");
    }
    let (took, bytes) = import(dir, store)?;
    let _ = writeln!(table, "| `object import` of 1 GiB, no cache | {:.2} | |", bytes / took / BYTES_PER_SECOND);
    Ok(table)
}

/// How many seconds an import takes, and of how many bytes. There is one flush, at its end.
fn import(dir: &Path, store: &Store) -> Result<(f64, f64), Failed> {
    let file = dir.join("objects-image");
    let noise = || -> std::io::Result<u64> {
        std::io::copy(&mut File::open("/dev/urandom")?.take(IMPORTED_BYTES), &mut File::create(&file)?)
    };
    let bytes = noise().map_err(|error| Failed::File { path: file.clone(), error })?;
    let mut import = Command::new(packaged()?);
    import.args(["object", "import"]).arg(&file).arg("s3://bucket/image").envs(store.variables());
    let begin = Instant::now();
    run(import.stdout(Stdio::null()))?;
    let took = begin.elapsed().as_secs_f64();
    remove(&[file])?;
    Ok((took, bytes as f64))
}

fn remove(paths: &[PathBuf]) -> Result<(), Failed> {
    let one = |path: &PathBuf| std::fs::remove_file(path).map_err(|error| Failed::File { path: path.clone(), error });
    paths.iter().try_for_each(one)
}
