// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of results that were put together here.

use std::collections::BTreeMap;

use flashfront_bench::results::{Device, Disturbed};
use flashfront_bench::suite::Published;
use flashfront_bench::{Measured, Point};

use super::*;

fn measured(iops: f64, us: u64) -> Measured {
    let bins: BTreeMap<u64, u64> = (0..2000_u64).map(|nth| (us * 1000 + nth * nth * us / 400, 1)).collect();
    let reads = Figures::of((iops * 30.0) as u64 * 4096, 30.0, bins);
    let reads = Figures { iops, bandwidth_kib_s: iops * 4.0, ..reads };
    let series = (1..=30).map(|at| Point {
        at_s: f64::from(at),
        read_iops: iops * (1.0 - 0.5 / f64::from(at)),
        write_iops: 0.0,
    });
    let mut measured = Measured::new(30.0, [(Direction::Read, reads.clone())].into(), series.collect());
    measured.both = reads;
    measured
}

pub(super) fn results() -> Results {
    let targets = [("flashfront", "fresh"), ("hdd", "/dev/sdb"), ("ssd <1>", "/dev/nvme0n1")];
    let target = |(name, what): &(&str, &str)| Target {
        name: (*name).to_owned(),
        what: (*what).to_owned(),
        devices: vec![Device {
            path: (*what).to_owned(),
            size_bytes: 4 << 40,
            rotational: Some(true),
            ..Device::default()
        }],
        ..Target::default()
    };
    let mut rows = Vec::new();
    for (job, headline, factor) in [("random reads", Headline::Iops, 1.0), ("clone", Headline::Seconds, 0.1)] {
        for ((name, _), (iops, us)) in targets.iter().zip([(80_000.0, 90), (380.0, 9000), (99_000.0, 70)]) {
            let published = vec![Published { system: "bcache".to_owned(), metric: "iops".to_owned(), value: 25_065.0 }];
            let mut row = Row::new(name, job, headline, published);
            for (repeat, part) in [(1, 1.0), (2, 0.9), (3, 1.05)] {
                let mut measured = measured(iops * part * factor, us);
                measured.seconds = 30.0 * part;
                row.add(Run {
                    repeat,
                    started: "2026-11-28T11:00:00Z".to_owned(),
                    commands: vec![vec!["fio".to_owned(), "--name=<job>".to_owned()]],
                    measured,
                    disturbed: Vec::new(),
                });
            }
            rows.push(row);
        }
    }
    let mut results = Results {
        format: flashfront_bench::results::FORMAT,
        suite: "quick".to_owned(),
        source: None,
        scale: Scale::FULL,
        scaling: Vec::new(),
        started: "2026-11-28T11:00:00Z".to_owned(),
        environment: Environment::default(),
        targets: targets.iter().map(target).collect(),
        results: rows,
        quiet: true,
        disturbed: Vec::new(),
        complete: true,
    };
    results.sum_up();
    results
}

#[test]
fn the_report_has_bars_ratios_courses_latencies_and_the_machine() {
    let page = benched(&results()).unwrap();
    for part in [
        "The machine was quiet",
        "aria-label=\"Requests a second\"",
        "aria-label=\"Seconds\"",
        "bcache, published",
        "How many times as fast as flashfront",
        "aria-label=\"Answered over time: random reads\"",
        "aria-label=\"Times of reads: random reads\"",
        "Measured on",
        "fio --name=&lt;job&gt;",
        "ssd &lt;1&gt;",
    ] {
        assert!(page.contains(part), "{part} is missing in {page}");
    }
    assert!(!page.contains("<1>"), "a name is escaped");
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
}

#[test]
fn a_machine_that_was_not_quiet_and_a_bench_that_is_not_complete_are_said_at_the_top() {
    let mut results = results();
    results.quiet = false;
    results.complete = false;
    results.disturbed = vec![Disturbed {
        target: "hdd".to_owned(),
        job: "clone".to_owned(),
        repeat: 2,
        by: vec!["another program wrote 3 MiB to /dev/sdb.".to_owned()],
    }];
    let page = benched(&results).unwrap();
    let top = &page[..page.find("<svg").unwrap()];
    assert!(top.contains("Not complete") && top.contains("The machine was not quiet"), "{top}");
    assert!(top.contains("clone on hdd, turn 2: another program wrote"), "{top}");
}

/// A bench that was ended before its first run has a page, too.
#[test]
fn results_without_runs_make_a_page() {
    let mut results = results();
    results.results.clear();
    assert!(benched(&results).unwrap().contains("Measured on"));
}

/// Writes the page to a file to be looked at: `FLASHFRONT_REPORT=FILE cargo test report::benched`.
#[test]
fn the_page_can_be_looked_at() {
    let Some(path) = std::env::var_os("FLASHFRONT_REPORT") else { return };
    let page = crate::sim::report::page::page("", "Bench quick", &benched(&results()).unwrap());
    std::fs::write(path, page).unwrap();
}
