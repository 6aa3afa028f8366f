// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of fio's arguments, and of how its output is read.
//!
//! The fixtures are fio 3.33's (Debian 12), on a file of 64 MiB, shortened to what is read. A job
//! `one` reads and writes (depth 2, 0.3 s). Two clones of `two` read 50 times a second.

use std::time::Duration;

use super::*;
use crate::figures::Direction;
use crate::suite::Pattern;

const OUTPUT: &str = include_str!("fixtures/three-jobs.json");
const LOGS: [&str; 3] = [
    include_str!("fixtures/log_iops.1.log"),
    include_str!("fixtures/log_iops.2.log"),
    include_str!("fixtures/log_iops.3.log"),
];

fn job() -> FioJob {
    FioJob {
        name: "zipf read".to_owned(),
        pattern: Pattern::Zipf(1.2),
        read_percent: 100,
        block_bytes: 4096,
        offset_bytes: 1 << 20,
        span_bytes: 2 << 20,
        total_bytes: 0,
        time: Duration::from_millis(1500),
        depth: 8,
        clones: 2,
        seed: 7,
    }
}

fn told(jobs: &[FioJob], place: Site) -> Vec<String> {
    let at = Where { place, direct: true };
    Prepared::new(jobs, &at, Path::new("/r"), Duration::from_secs(60)).command
}

#[test]
fn jobs_at_the_same_time_are_one_run() {
    let all = output::parse(OUTPUT).unwrap();
    assert_eq!(all.seconds, 0.301);
    let read = &all.directions[&Direction::Read];
    // Of fio's three jobs 1442, 15 and 15.
    assert_eq!((read.requests, read.bytes), (1472, 6_152_192));
    assert_eq!((all.both.requests, all.directions[&Direction::Write].requests), (1472 + 626, 626));
    assert!((read.iops - 1472.0 / 0.301).abs() < 1e-6, "{}", read.iops);
    // Computed from the bins of all three by another program.
    assert_eq!((read.p50_us, read.p99_us), (40.192, 3129.344));
    assert!(read.max_us >= 4465.0 && read.p99_99_us <= read.max_us, "{}", read.max_us);
    assert!(!all.directions.contains_key(&Direction::Trim));
}

#[test]
fn a_failed_job_is_an_error() {
    let failed = OUTPUT.replacen("\"error\":0", "\"error\":28", 1);
    let error = output::parse(&failed).unwrap_err();
    assert!(error.contains("the job one failed: No space left"), "{error}");
    assert!(output::parse("fio: bad option").is_err());
}

#[test]
fn logs_of_all_jobs_are_one_series() {
    let series = log::merge(&LOGS.map(str::to_owned), Duration::from_millis(100));
    let told: Vec<(f64, f64, f64)> = series.iter().map(|it| (it.at_s, it.read_iops, it.write_iops)).collect();
    assert_eq!(told, [(0.1, 5107.0 + 50.0 + 50.0, 2294.0), (0.2, 3120.0 + 50.0 + 50.0, 1220.0)]);
}

#[test]
fn the_interval_follows_the_length() {
    let ms = |seconds| log::interval(Duration::from_secs(seconds)).as_millis();
    assert_eq!([ms(1), ms(600), ms(43_200)], [100, 1000, 10_000]);
}

#[test]
fn a_job_is_a_list_of_arguments() {
    let all = told(&[job()], Site::Device("/dev/a b:1".into()));
    for argument in [
        "--name=zipf read",
        r"--filename=/dev/a b\:1",
        "--direct=1",
        "--rw=randread",
        "--random_distribution=zipf:1.2",
        "--offset=1048576",
        "--size=2097152",
        "--runtime=1500ms",
        "--numjobs=2",
        "--iodepth=8",
        "--readonly",
        "--allow_file_create=0",
    ] {
        assert!(all.iter().any(|it| it == argument), "{argument} is missing in {all:?}");
    }
    assert!(all.iter().all(|it| !it.starts_with("--io_size")), "{all:?}");
    let written = FioJob { read_percent: 70, total_bytes: 4096, pattern: Pattern::Random, ..job() };
    let all = told(&[job(), written], Site::Nbd("nbd://h/x".to_owned()));
    assert_eq!(all.iter().filter(|it| *it == "--uri=nbd://h/x").count(), 2);
    for argument in ["--rwmixread=70", "--io_size=4096", "--ioengine=nbd"] {
        assert!(all.iter().any(|it| it == argument), "{argument} is missing in {all:?}");
    }
    assert!(!all.iter().any(|it| it == "--readonly"), "a job writes: {all:?}");
}

#[test]
fn versions_are_compared_by_number() {
    for (version, enough) in
        [("fio-3.33", true), ("fio-3.16", true), ("fio-3.9", false), ("fio-4.0-rc1", true), ("x", false)]
    {
        assert_eq!(is_new_enough(version), enough, "{version}");
    }
}
