// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as CSV: a line for each target and job.

use flashfront_bench::{Direction, Results, Row};

use crate::csv::{self, Column, optional};

/// The columns.
fn columns<'a>() -> [Column<&'a Row>; 18] {
    [
        ("target", |row| row.target.clone()),
        ("job", |row| row.job.clone()),
        ("iops", |row| figure(Some(row.iops))),
        ("bandwidth_kib_s", |row| figure(Some(row.bandwidth_kib_s))),
        ("p50_us", |row| figure(Some(row.p50_us))),
        ("p99_us", |row| figure(Some(row.p99_us))),
        ("repeats", |row| row.repeats.to_string()),
        ("spread", |row| figure(Some(row.spread))),
        ("ratio", |row| figure(row.ratio.as_ref().map(|it| it.median))),
        ("ratio_least", |row| figure(row.ratio.as_ref().map(|it| it.least))),
        ("ratio_largest", |row| figure(row.ratio.as_ref().map(|it| it.largest))),
        ("read_iops", |row| figure(row.directions.get(&Direction::Read).map(|it| it.iops))),
        ("read_p50_us", |row| figure(row.directions.get(&Direction::Read).map(|it| it.p50_us))),
        ("read_p99_us", |row| figure(row.directions.get(&Direction::Read).map(|it| it.p99_us))),
        ("write_iops", |row| figure(row.directions.get(&Direction::Write).map(|it| it.iops))),
        ("write_p50_us", |row| figure(row.directions.get(&Direction::Write).map(|it| it.p50_us))),
        ("write_p99_us", |row| figure(row.directions.get(&Direction::Write).map(|it| it.p99_us))),
        ("quiet", |row| row.runs.iter().all(|run| run.disturbed.is_empty()).to_string()),
    ]
}

fn figure(value: Option<f64>) -> String {
    optional(value.map(|value| format!("{value:.6}")))
}

pub(super) fn text(results: &Results) -> anyhow::Result<String> {
    csv::text(&columns(), &results.results)
}
