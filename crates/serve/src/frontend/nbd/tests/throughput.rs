// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast the front-end alone is: fio against the disk in RAM, and against `nbdkit memory`.
//!
//! Prints, judges nothing:
//! `cargo test --release -p flashfront-serve nbd::tests::throughput -- --ignored --nocapture`

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::ram::Ram;
use super::server::{Order, Server};
use super::tools::{have, run};

/// Operations per second of one fio job.
fn fio(uri: &str, rw: &str, bs: &str, depth: u32, jobs: u32, dir: &Path) -> f64 {
    let output = run(Command::new("fio").current_dir(dir).args([
        "--name=speed",
        "--ioengine=nbd",
        "--size=256m",
        "--time_based",
        "--runtime=3",
        "--ramp_time=1",
        "--norandommap",
        "--group_reporting",
        "--output-format=terse",
        "--terse-version=3",
        &format!("--uri={uri}"),
        &format!("--rw={rw}"),
        &format!("--bs={bs}"),
        &format!("--iodepth={depth}"),
        &format!("--numjobs={jobs}"),
    ]));
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.starts_with("3;")).unwrap();
    let field = |index: usize| line.split(';').nth(index).unwrap().parse::<f64>().unwrap();
    // Fields 8 and 49 of the terse format, counted from 1: read and write IOPS.
    field(7) + field(48)
}

struct Nbdkit(Child);

impl Nbdkit {
    fn start(socket: &Path) -> Self {
        let child =
            Command::new("nbdkit").args(["-f", "-U"]).arg(socket).args(["memory", "size=256m"]).spawn().unwrap();
        let begin = Instant::now();
        while std::os::unix::net::UnixStream::connect(socket).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(10), "nbdkit did not start");
            std::thread::yield_now();
        }
        Self(child)
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
#[ignore = "a measurement of half a minute, no test"]
fn of_the_front_end_and_of_nbdkit() {
    if !have("fio") || !have("nbdkit") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("nbdkit");
    let nbdkit = Nbdkit::start(&socket);
    let nbdkit_uri = format!("nbd+unix:///?socket={}", socket.display());
    let server = Server::start(Ram::new(256 << 20, 512), Order::Fifo);
    println!("rw        bs    QD jobs   flashfront  nbdkit memory (IOPS)");
    for (rw, bs, depth, jobs) in [
        ("write", "1m", 8, 1),
        ("randread", "4k", 32, 1),
        ("randwrite", "4k", 32, 1),
        ("randread", "4k", 32, 2),
        ("randwrite", "4k", 32, 2),
        ("randread", "4k", 1, 1),
        ("read", "1m", 8, 1),
    ] {
        let ours = fio(&server.uri, rw, bs, depth, jobs, dir.path());
        let theirs = fio(&nbdkit_uri, rw, bs, depth, jobs, dir.path());
        println!("{rw:9} {bs:4} {depth:3} {jobs:4} {ours:12.0} {theirs:14.0}");
    }
    drop(nbdkit);
    server.stop();
}
