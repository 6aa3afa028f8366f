// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the suites: that they ask for what was asked for then, and that all published figures
//! have their cell.

use std::collections::BTreeSet;

use super::suite::ALL;
use super::task::Suite;
use super::{Cell, Compared, Comparison, Kind, Published, Ran};
use crate::load::{JobResult, PhaseResult};
use crate::system::Traffic;

fn suite(name: &str) -> &'static Suite {
    ALL.iter().find(|suite| suite.name == name).unwrap()
}

/// As if each system had answered each task in a second.
fn at_once(suite: &Suite) -> Vec<Compared> {
    let histogram = || hdrhistogram::Histogram::new(2).unwrap();
    let result = |reads: bool, writes: bool| PhaseResult {
        time_ns: 1_000_000_000,
        jobs: vec![JobResult {
            name: String::new(),
            time_ns: 1_000_000_000,
            reads: 1,
            writes: 0,
            flushes: 0,
            read_bytes: u64::from(reads) << 20,
            write_bytes: u64::from(writes) << 19,
            read_ns: histogram(),
            write_ns: histogram(),
            flush_ns: histogram(),
        }],
        series: Vec::new(),
        before: Traffic::default(),
        unsimulated_ns: 0,
        after: Traffic { read_blocks: 4, read_hit_blocks: 3, cache_read_bytes: 4096, ..Traffic::default() },
    };
    let sessions = suite.sessions();
    let ran = || {
        let tasks =
            sessions.iter().enumerate().flat_map(|(session, it)| (0..it.tasks.len()).map(move |task| (session, task)));
        let ran = |(session, task): (usize, usize)| {
            let job = &sessions[session].tasks[task].jobs[0];
            Ran { session, task, result: result(job.read_percent > 0, job.read_percent < 100) }
        };
        tasks.map(ran).collect()
    };
    suite.systems.iter().map(|under| Compared { system: under.name, ran: ran() }).collect()
}

#[test]
fn every_published_figure_has_its_cell() {
    for suite in ALL {
        let published = Published::read(suite.published);
        let cells = Comparison::of(suite).cells(&at_once(suite));
        let told = cells.iter().filter(|cell| cell.published.is_some()).count();
        assert_eq!(told, published.len(), "{}", suite.name);
        let names: BTreeSet<_> = cells.iter().map(|cell| (&cell.task, cell.system, cell.metric)).collect();
        assert_eq!(names.len(), cells.len(), "{}: a cell twice", suite.name);
    }
    assert_eq!(Published::read(suite("caches-2015").published).len(), 557);
}

#[test]
fn figures_are_told_in_the_units_of_their_source() {
    let cells = Comparison::of(suite("caches-2015")).cells(&at_once(suite("caches-2015")));
    let figure = |task: &str, system: &str, metric: &str| {
        cells
            .iter()
            .find(|cell| cell.task == task && cell.system == system && cell.metric == metric)
            .map(|it| it.simulated)
    };
    assert_eq!(figure("1", "flashfront", "kbps"), Some(1024.0));
    assert_eq!(figure("6", "flashfront", "kbps"), Some(512.0), "of writes, where there are no reads");
    assert_eq!(figure("19", "bcache", "kbps_write"), Some(512.0));
    assert_eq!(figure("19", "bcache", "cache_read_kb"), Some(4.0));
    assert_eq!(figure("1", "hdd", "cache_read_kb"), None, "a bare device has no cache");
    assert_eq!(figure("1", "bcache", "hit_ratio"), Some(0.75));
}

/// What the 22 runs move, by their fio arguments.
#[test]
fn the_runs_of_2015_are_as_long_as_they_were() {
    let sessions = suite("caches-2015").sessions();
    let gib = |tasks: std::ops::Range<usize>| {
        sessions[0].tasks[tasks].iter().map(|task| task.jobs[0].total_bytes >> 30).sum::<u64>()
    };
    assert_eq!((sessions[0].tasks.len(), gib(0..5), gib(5..14), gib(14..19), gib(19..22)), (22, 29, 516, 29, 9));
}

#[test]
fn errors_are_parts_of_what_was_published() {
    let cell = |task: &str, metric, published, simulated| Cell {
        task: task.to_owned(),
        system: "bcache",
        metric,
        published: Some(published),
        simulated,
    };
    let suite = suite("caches-2015");
    let cells = [
        cell("1", "kbps", 100.0, 110.0),
        cell("2", "kbps", 100.0, 80.0),
        cell("1", "cache_read_kb", 8388608.0, 8388608.0),
        // A hundredth of 8 GiB are 83,886 KiB: this is a tenth of that, and none of it was
        // published.
        cell("2", "data_write_kb", 0.0, 8388.608),
    ];
    let errors = |kind, system| suite.errors(&cells, kind, system).map(|it| (it.cells, it.median, it.nine_of_ten));
    assert_eq!(errors(Kind::Speed, None), Some((2, 0.1, 0.2)));
    assert_eq!(errors(Kind::Bytes, Some("bcache")), Some((2, 0.0, 0.1)));
    assert_eq!(errors(Kind::Hits, None), None);
    assert_eq!(errors(Kind::Speed, Some("gflash")), None);
}

#[test]
fn a_part_of_a_suite_is_its_lines_up_to_a_task() {
    let mut comparison = Comparison::of(suite("lvmcache-2017"));
    assert!(comparison.end_with("full 30 min"));
    let tasks: Vec<_> = comparison.sessions.iter().map(|session| session.tasks.len()).collect();
    assert_eq!(tasks, [3]);
    assert!(!comparison.end_with("empty 30 min"), "its session is gone");
}

/// The first task on the devices alone: near what was published, as the models were calibrated.
#[test]
fn devices_alone_run_as_published() {
    let mut comparison = Comparison::of(suite("caches-2015"));
    assert!(comparison.end_with("1"));
    comparison.systems = vec!["hdd"];
    let compared = comparison.run(&|_| true).unwrap();
    let cells = comparison.cells(&compared);
    let [cell] = &cells[..] else { panic!("{cells:?}") };
    assert_eq!(cell.published, Some(173_630.0));
    assert!((0.95..1.05).contains(&(cell.simulated / 173_630.0)), "{cell:?}");
    assert!(comparison.run(&|_| false).is_none(), "who watches can stop it");
}
