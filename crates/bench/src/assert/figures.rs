// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of a bench that a condition asks for.

use crate::assert::{Figure, Names, Value};
use crate::figures::{Direction, Figures, Measured};
use crate::results::{Results, Row, Run};
use crate::suite::{Job, Suite, Work};

/// Functions that every source of figures has, and what each figure is.
pub const COMMON: [(&str, &str); 9] = [
    ("iops", "requests a second"),
    ("bandwidth_kib_s", "KiB a second"),
    ("mean_us", "mean time of a request"),
    ("p50_us", "half of the requests took no longer"),
    ("p90_us", "90 of 100 took no longer"),
    ("p95_us", "95 of 100 took no longer"),
    ("p99_us", "99 of 100 took no longer"),
    ("p99_9_us", "999 of 1,000 took no longer"),
    ("max_us", "the longest"),
];

/// Functions that only `bench` has.
const MORE: [(&str, &str); 2] =
    [("p99_99_us", "9,999 of 10,000 took no longer"), ("seconds", "the time that the job took")];

/// The names of directions.
const DIRECTIONS: [(&str, Direction); 2] = [("read", Direction::Read), ("write", Direction::Write)];

impl Names {
    /// What can be asked of a suite on these targets.
    #[must_use]
    pub fn of(suite: &Suite, targets: Vec<String>) -> Self {
        let measured = || suite.jobs().filter(|job| job.counts_from.is_some());
        let directions = DIRECTIONS.iter().filter(|it| measured().any(|job| has(job, it.1)));
        // A job that has this name is meant before all jobs in that direction.
        let directions = directions.map(|it| it.0.to_owned()).filter(|name| measured().all(|job| job.name != *name));
        let jobs = measured().map(|job| job.name.clone()).chain(directions).collect();
        Self { functions: COMMON.into_iter().chain(MORE).collect(), jobs, targets }
    }
}

/// Whether a job has requests in a direction. A job in a folder has none that are told apart.
fn has(job: &Job, direction: Direction) -> bool {
    match &job.work {
        Work::Fio(jobs) => jobs.iter().any(|job| match direction {
            Direction::Read => job.read_percent > 0,
            _ => job.read_percent < 100,
        }),
        Work::Act(act) => !act.needs_folder() && (direction == Direction::Read || act.writes()),
    }
}

/// Returns a figure of a bench: the median of its runs, between the least and the largest.
///
/// `read` and `write` mean the requests of all jobs in that direction, unless a job has that name.
#[must_use]
pub fn figure(results: &Results, figure: &Figure) -> Option<Value> {
    let of_target = || results.results.iter().filter(|row| row.target == figure.target);
    if let Some(row) = of_target().find(|row| row.job == figure.job) {
        return value(row.runs.iter().filter_map(|run| of_run(figure.function, &run.measured)));
    }
    let direction = DIRECTIONS.iter().find(|it| it.0 == figure.job)?.1;
    let rows: Vec<&Row> = of_target().collect();
    let repeats = rows.iter().flat_map(|row| &row.runs).map(|run| run.repeat).max()?;
    value((1..=repeats).filter_map(|repeat| {
        let runs = rows.iter().flat_map(|row| &row.runs).filter(|run| run.repeat == repeat);
        of_direction(figure.function, direction, runs)
    }))
}

fn of_run(function: &str, measured: &Measured) -> Option<f64> {
    if function == "seconds" {
        return Some(measured.seconds);
    }
    // A job without requests of its own has no such figure.
    (measured.both.requests > 0).then(|| of_figures(function, &measured.both))
}

/// Requests of all jobs of a turn, in one direction.
fn of_direction<'a>(function: &str, direction: Direction, runs: impl Iterator<Item = &'a Run>) -> Option<f64> {
    let runs: Vec<&Run> = runs.filter(|run| run.measured.directions.contains_key(&direction)).collect();
    let seconds = runs.iter().map(|run| run.measured.seconds).sum::<f64>();
    if function == "seconds" {
        return (!runs.is_empty()).then_some(seconds);
    }
    let all = Figures::merged(runs.iter().filter_map(|run| run.measured.directions.get(&direction)), seconds);
    (all.requests > 0).then(|| of_figures(function, &all))
}

fn of_figures(function: &str, figures: &Figures) -> f64 {
    match function {
        "iops" => figures.iops,
        "bandwidth_kib_s" => figures.bandwidth_kib_s,
        "mean_us" => figures.mean_us,
        "p50_us" => figures.p50_us,
        "p90_us" => figures.p90_us,
        "p95_us" => figures.p95_us,
        "p99_us" => figures.p99_us,
        "p99_9_us" => figures.p99_9_us,
        "p99_99_us" => figures.p99_99_us,
        _ => figures.max_us,
    }
}

/// The median, the least and the largest; `None` if there are no values.
fn value(values: impl Iterator<Item = f64>) -> Option<Value> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (*values.first()?, *values.last()?);
    let (lower, upper) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    Some(Value { value: f64::midpoint(lower, upper), low, high })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::results::{Environment, FORMAT};
    use crate::suite::{Headline, Scale};

    fn run(repeat: u32, reads_us: &[u64], writes_us: &[u64], seconds: f64) -> Run {
        let figures = |us: &[u64]| {
            let mut bins = BTreeMap::new();
            us.iter().for_each(|us| *bins.entry(us * 1000).or_default() += 1);
            Figures::of(us.len() as u64 * 4096, seconds, bins)
        };
        let all = [(Direction::Read, reads_us), (Direction::Write, writes_us)];
        let all = all.into_iter().filter(|it| !it.1.is_empty()).map(|(direction, us)| (direction, figures(us)));
        Run {
            repeat,
            started: String::new(),
            commands: Vec::new(),
            measured: Measured::new(seconds, all.collect(), Vec::new()),
            disturbed: Vec::new(),
        }
    }

    fn results(rows: &[(&str, &[Run])]) -> Results {
        let row = |(job, runs): &(&str, &[Run])| {
            let mut row = Row::new("a", job, Headline::Iops, Vec::new());
            runs.iter().for_each(|run| row.add(run.clone()));
            row
        };
        Results {
            format: FORMAT,
            suite: String::new(),
            source: None,
            scale: Scale::FULL,
            scaling: Vec::new(),
            started: String::new(),
            environment: Environment::default(),
            targets: Vec::new(),
            results: rows.iter().map(row).collect(),
            quiet: true,
            disturbed: Vec::new(),
            complete: true,
        }
    }

    fn ask(results: &Results, function: &'static str, job: &str) -> Option<(f64, f64, f64)> {
        let figure = Figure { function, job: job.to_owned(), target: "a".to_owned() };
        super::figure(results, &figure).map(|it| (it.value, it.low, it.high))
    }

    #[test]
    fn a_figure_is_of_a_job_or_of_all_requests_in_a_direction() {
        let mixed = [run(1, &[100, 100], &[900], 2.0), run(2, &[100, 100, 100, 100], &[700], 2.0)];
        let reads = [run(1, &[500; 6], &[], 1.0), run(2, &[300; 6], &[], 1.0)];
        let results = results(&[("mixed", &mixed), ("scan", &reads)]);
        assert_eq!(ask(&results, "iops", "mixed"), Some((2.0, 1.5, 2.5)));
        assert_eq!(ask(&results, "max_us", "scan"), Some((400.0, 300.0, 500.0)));
        // 8 and 10 reads in 3 seconds each.
        assert_eq!(ask(&results, "iops", "read"), Some((3.0, 8.0 / 3.0, 10.0 / 3.0)));
        assert_eq!(ask(&results, "max_us", "write"), Some((800.0, 700.0, 900.0)));
        assert_eq!(ask(&results, "seconds", "write"), Some((2.0, 2.0, 2.0)), "only of jobs that write");
        assert_eq!(ask(&results, "iops", "other"), None);
    }

    #[test]
    fn a_job_that_is_called_read_is_that_job() {
        let results = results(&[("read", &[run(1, &[100; 4], &[], 1.0)]), ("scan", &[run(1, &[100; 9], &[], 1.0)])]);
        assert_eq!(ask(&results, "iops", "read"), Some((4.0, 4.0, 4.0)));
        assert_eq!(ask(&results, "max_us", "write"), None, "nothing was written");
    }
}
