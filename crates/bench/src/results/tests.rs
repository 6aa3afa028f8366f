// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows and ratios are what their runs say, and JSON keeps them.

use super::*;
use crate::figures::Point;

/// A run with reads of 4 KiB that all took as long.
fn run(repeat: u32, requests: u64, us: u64) -> Run {
    let figures = Figures::of(requests * 4096, 2.0, BTreeMap::from([(us * 1000, requests)]));
    let series = vec![Point { at_s: 1.0, read_iops: 0.1, write_iops: 0.0 }];
    Run {
        repeat,
        started: "2026-01-01T00:00:00Z".to_owned(),
        commands: vec![vec!["fio".to_owned(), "--name=a b".to_owned()]],
        measured: Measured::new(2.0, BTreeMap::from([(Direction::Read, figures)]), series),
        disturbed: if repeat == 3 { vec!["steal".to_owned()] } else { Vec::new() },
    }
}

fn row(target: &str, headline: Headline, runs: impl IntoIterator<Item = Run>) -> Row {
    let mut row = Row::new(target, "job", headline, Vec::new());
    for run in runs {
        row.add(run);
    }
    row
}

fn results(rows: Vec<Row>) -> Results {
    let target = |name: &str| Target { name: name.to_owned(), ..Target::default() };
    let mut results = Results {
        format: FORMAT,
        suite: "quick".to_owned(),
        source: None,
        scale: "1/64".parse().unwrap(),
        scaling: Vec::new(),
        started: "2026-01-01T00:00:00Z".to_owned(),
        environment: Environment::default(),
        targets: vec![target("disk"), target("ssd")],
        results: rows,
        quiet: true,
        disturbed: Vec::new(),
        complete: true,
    };
    results.sum_up();
    results
}

#[test]
fn a_row_has_the_medians_of_its_runs() {
    let row = row("disk", Headline::Iops, [run(2, 400, 30), run(1, 200, 10), run(3, 300, 20)]);
    assert_eq!((row.iops, row.bandwidth_kib_s, row.p50_us, row.repeats), (150.0, 600.0, 20.0, 3));
    assert!((row.spread - 100.0 / 150.0).abs() < 1e-9, "{}", row.spread);
    assert_eq!(row.directions[&Direction::Read].iops, 150.0);
    assert_eq!(row.runs.iter().map(|run| run.repeat).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn ratios_are_of_the_same_turn() {
    let disk = row("disk", Headline::Iops, [run(1, 100, 10), run(2, 200, 10)]);
    let ssd = row("ssd", Headline::Iops, [run(1, 1000, 10), run(2, 1000, 10), run(3, 9, 10)]);
    let results = results(vec![disk, ssd]);
    let ratio = results.row("ssd", "job").unwrap().ratio.clone().unwrap();
    assert_eq!((ratio.to.as_str(), ratio.median, ratio.least, ratio.largest), ("disk", 7.5, 5.0, 10.0));
    assert_eq!(results.row("disk", "job").unwrap().ratio, None);
    assert!(!results.quiet);
    assert_eq!(results.disturbed.len(), 1);
    assert_eq!((&*results.disturbed[0].target, results.disturbed[0].repeat), ("ssd", 3));
}

#[test]
fn less_time_is_faster() {
    let slow = Measured { seconds: 20.0, ..Measured::default() };
    let fast = Measured { seconds: 5.0, ..Measured::default() };
    assert_eq!(Headline::Seconds.ratio(&fast, &slow), Some(4.0));
    assert_eq!(Headline::Iops.ratio(&fast, &slow), None, "neither did a request");
}

#[test]
fn json_brings_back_what_was_written() {
    let all = results(vec![row("disk", Headline::Bandwidth, [run(1, 100, 10), run(3, 7, 1)])]);
    let json = serde_json::to_string(&all).unwrap();
    assert_eq!(serde_json::from_str::<Results>(&json).unwrap(), all);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((value["scale"].as_str(), value["quiet"].as_bool()), (Some("1/64"), Some(false)));
    for name in ["target", "job", "iops", "bandwidth_kib_s", "p50_us", "p99_us", "repeats", "spread"] {
        assert!(!value["results"][0][name].is_null(), "the contract has {name}: {json}");
    }
}
