// SPDX-License-Identifier: MIT OR Apache-2.0
//! Suites are what their sources ran, and smaller where that is asked for.

use super::*;
use crate::suite::{FioJob, Pattern};

const GIB: u64 = 1 << 30;

fn full(name: &str) -> Suite {
    find(name, Scale::FULL, None).unwrap_or_else(|| panic!("{name} is known"))
}

fn fio<'a>(suite: &'a Suite, name: &str) -> &'a [FioJob] {
    let job = suite.jobs().find(|job| job.name == name).unwrap_or_else(|| panic!("{name} is a job"));
    match &job.work {
        Work::Fio(jobs) => jobs,
        Work::Act(_) => panic!("{name} is fio's"),
    }
}

#[test]
fn the_published_suites_are_there_in_full() {
    let names: Vec<&str> = known().into_iter().map(|(name, _)| name).collect();
    let published = ["caches-2015", "writeboost-2013", "lvmcache-2017", "cache-size-2017"];
    assert_eq!(names, [&["quick", "git", "database", "replay"][..], &published].concat());
    let caches = full("caches-2015");
    assert_eq!(caches.jobs().filter(|job| job.counts_from.is_some()).count(), 22);
    let job = &fio(&caches, "5")[0];
    assert_eq!((job.pattern, job.depth, job.block_bytes), (Pattern::Random, 32, 4096));
    assert_eq!((job.offset_bytes, job.span_bytes, job.total_bytes), (GIB, 8 * GIB, 4 * GIB));
    assert_eq!(caches.needs_bytes(), 541 * GIB);
    let first = caches.jobs().next().unwrap();
    assert!(first.published.iter().any(|it| (&*it.system, &*it.metric, it.value) == ("hdd", "kbps", 173_630.0)));

    // The source's (jobs, depth) of four and 32.
    let writeboost = full("writeboost-2013");
    let job = &fio(&writeboost, "SSD 4x32")[0];
    assert_eq!((job.clones, job.depth, job.pattern, job.time.as_secs()), (4, 32, Pattern::Uniform, 15));
    // Two jobs at once, each with half of the data; nothing is written.
    let lvmcache = full("lvmcache-2017");
    let jobs = fio(&lvmcache, "full 12 h");
    assert_eq!(jobs.iter().map(|job| job.offset_bytes / GIB).collect::<Vec<_>>(), [1, 3]);
    assert!(!lvmcache.writes() && caches.writes());
}

#[test]
fn scaling_divides_places_amounts_and_times() {
    let scale = "1/64".parse().unwrap();
    let caches = find("caches-2015", scale, None).unwrap();
    let job = &fio(&caches, "21")[0];
    assert_eq!((job.offset_bytes, job.span_bytes, job.total_bytes), (17 * GIB / 64, 8 * GIB / 64, 4 * GIB / 64));
    assert_eq!((job.block_bytes, job.depth), (4096, 32), "what a request is stays");
    assert!(!caches.scaling.is_empty() && full("caches-2015").scaling.is_empty());
    let times = |scale: &str| {
        let suite = find("lvmcache-2017", scale.parse().unwrap(), None).unwrap();
        fio(&suite, "full 24 h")[0].time.as_secs()
    };
    assert_eq!((times("1"), times("1/64"), times("1/4096")), (43_200, 675, 10));
    let quick = find("quick", "1/4096".parse().unwrap(), Some(Duration::from_secs(1))).unwrap();
    assert_eq!((quick.needs_bytes(), fio(&quick, "write")[0].time.as_secs()), (1 << 20, 1));
}

#[test]
fn only_reciprocals_are_scales() {
    for wrong in ["", "0", "2", "1/0", "1/5000", "0.5", "64", "1/x"] {
        assert!(wrong.parse::<Scale>().is_err(), "{wrong}");
    }
    assert_eq!("1/64".parse::<Scale>().unwrap().to_string(), "1/64");
    assert_eq!("1/1".parse::<Scale>().unwrap(), Scale::FULL);
}

#[test]
fn a_part_of_a_suite_keeps_what_prepares() {
    let mut suite = full("lvmcache-2017");
    suite.keep_wanted(&["full 12 h".to_owned()], false).unwrap();
    let names: Vec<(&str, Option<usize>)> = suite.jobs().map(|job| (&*job.name, job.counts_from)).collect();
    assert_eq!(names, [("junk, in order", None), ("junk, by zipf", None), ("full 12 h", Some(2))]);
    let mut quick = full("quick");
    quick.keep_wanted(&[], true).unwrap();
    assert_eq!(quick.jobs().count(), 5);
    assert!(!quick.writes());
    let error = quick.keep_wanted(&["write".to_owned()], false).unwrap_err().to_string();
    assert!(error.contains("no job `write`") && error.contains("zipf read again"), "{error}");
    assert!(full("writeboost-2013").keep_wanted(&[], true).is_err(), "all of it writes");
}
