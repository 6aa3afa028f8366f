// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results: what was run where, and what came of it. They are JSON, written and read.
//!
//! Runs are what was measured; rows are made of them, a row for each target and job. So a result
//! folder can be read again, gone on with, and told anew.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::figures::{Direction, Figures, Measured};
use crate::suite::{Headline, Job, Published, Scale};

/// The version of this layout of JSON.
pub const FORMAT: u32 = 1;

/// The results of a bench.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`FORMAT`].
    pub format: u32,
    /// The suite's name.
    pub suite: String,
    /// The publisher of the suite's figures, if there is one.
    pub source: Option<String>,
    /// The scale of the suite.
    pub scale: Scale,
    /// The effects of scaling, in sentences; empty at full size.
    pub scaling: Vec<String>,
    /// When the bench began, in UTC (RFC 3339).
    pub started: String,
    /// The machine and its programs.
    pub environment: Environment,
    /// The targets, in their order. Ratios are to the first.
    pub targets: Vec<Target>,
    /// A row for each target and measured job that has a run, jobs in the suite's order.
    pub results: Vec<Row>,
    /// Whether nothing else disturbed the runs.
    pub quiet: bool,
    /// The runs that were disturbed, and what disturbed them.
    pub disturbed: Vec<Disturbed>,
    /// Whether all runs of the suite are there.
    pub complete: bool,
}

/// The machine and its programs, as far as figures hang on them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Flashfront's version.
    pub flashfront: String,
    /// fio's version, as fio prints it; `None` if no job needs fio.
    pub fio: Option<String>,
    /// The kernel's name, release and version.
    pub kernel: String,
    /// The machine's architecture.
    pub architecture: String,
    /// The processor's name.
    pub cpu: String,
    /// How many processors there are.
    pub cpus: usize,
    /// RAM.
    pub memory_bytes: u64,
    /// Whether this is a virtual machine.
    pub virtual_machine: bool,
}

/// Something under test.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The name in tables.
    pub name: String,
    /// The target as the user wrote it.
    pub what: String,
    /// The block devices that it is or lies on.
    pub devices: Vec<Device>,
    /// Notes for a reader of its figures, in sentences.
    pub notes: Vec<String>,
    /// The command that ran before each turn.
    pub before: Option<String>,
    /// The command that ran after each turn.
    pub after: Option<String>,
}

/// A block device as the kernel describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The path.
    pub path: String,
    /// The maker's name for it, if the kernel knows one.
    pub model: Option<String>,
    /// The serial number or WWN, if the kernel knows one.
    pub serial: Option<String>,
    /// The size.
    pub size_bytes: u64,
    /// The scheduler of its queue.
    pub scheduler: Option<String>,
    /// Whether it rotates.
    pub rotational: Option<bool>,
    /// `write back` or `write through`.
    pub write_cache: Option<String>,
}

/// The figures of one job on one target: medians of its runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The target's name.
    pub target: String,
    /// The job's name.
    pub job: String,
    /// The figure that ratios compare.
    pub headline: Headline,
    /// Requests a second, reads and writes together.
    pub iops: f64,
    /// KiB a second, reads and writes together.
    pub bandwidth_kib_s: f64,
    /// Half of all requests took no longer.
    pub p50_us: f64,
    /// 99 of 100 requests took no longer.
    pub p99_us: f64,
    /// How many runs there are.
    pub repeats: u32,
    /// How far the runs' headlines are apart: (largest - least) / median; 0 for one run.
    pub spread: f64,
    /// Each direction that had requests.
    pub directions: BTreeMap<Direction, Figures>,
    /// Figures that only this job has, such as `clone_s`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<String, f64>,
    /// How many times as fast as the first target; `None` for the first target itself.
    pub ratio: Option<Ratio>,
    /// The figures of the suite's source for this job, for each system there.
    pub published: Vec<Published>,
    /// The runs, in their order.
    pub runs: Vec<Run>,
}

/// How many times as fast as the first target: of the runs in the same turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The first target.
    pub to: String,
    /// The median over the turns.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The largest.
    pub largest: f64,
}

/// A run of a job on a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The turn that it was in, from 1.
    pub repeat: u32,
    /// When it began, in UTC (RFC 3339).
    pub started: String,
    /// The commands, each as a list of arguments.
    pub commands: Vec<Vec<String>>,
    /// The measured figures.
    pub measured: Measured,
    /// The disturbances, in sentences; empty if it was quiet.
    pub disturbed: Vec<String>,
}

/// A run that something disturbed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disturbed {
    /// The target's name.
    pub target: String,
    /// The job's name.
    pub job: String,
    /// The turn, from 1.
    pub repeat: u32,
    /// The disturbances, in sentences.
    pub by: Vec<String>,
}

impl Headline {
    /// The figure of a run that ratios compare.
    #[must_use]
    pub fn of(self, measured: &Measured) -> f64 {
        match self {
            Self::Iops => measured.both.iops,
            Self::Bandwidth => measured.both.bandwidth_kib_s,
            Self::Seconds => measured.seconds,
        }
    }

    /// How many times as fast `this` is as `first`; `None` if one of them did nothing.
    #[must_use]
    pub fn ratio(self, this: &Measured, first: &Measured) -> Option<f64> {
        let (this, first) = (self.of(this), self.of(first));
        let (above, below) = if self == Self::Seconds { (first, this) } else { (this, first) };
        (above > 0.0 && below > 0.0).then(|| above / below)
    }
}

impl Row {
    /// A row without runs.
    #[must_use]
    pub fn new(target: &str, job: &str, headline: Headline, published: Vec<Published>) -> Self {
        Self {
            target: target.to_owned(),
            job: job.to_owned(),
            headline,
            iops: 0.0,
            bandwidth_kib_s: 0.0,
            p50_us: 0.0,
            p99_us: 0.0,
            repeats: 0,
            spread: 0.0,
            directions: BTreeMap::new(),
            others: BTreeMap::new(),
            ratio: None,
            published,
            runs: Vec::new(),
        }
    }

    /// Adds a run, and makes the row's figures anew.
    pub fn add(&mut self, run: Run) {
        self.runs.push(run);
        self.runs.sort_by_key(|run| run.repeat);
        let of = |figure: fn(&Measured) -> f64| median(self.runs.iter().map(|run| figure(&run.measured)));
        (self.iops, self.bandwidth_kib_s) = (of(|it| it.both.iops), of(|it| it.both.bandwidth_kib_s));
        (self.p50_us, self.p99_us) = (of(|it| it.both.p50_us), of(|it| it.both.p99_us));
        self.repeats = u32::try_from(self.runs.len()).unwrap_or(u32::MAX);
        let headlines: Vec<f64> = self.runs.iter().map(|run| self.headline.of(&run.measured)).collect();
        let (least, largest) = bounds(&headlines);
        let middle = median(headlines);
        self.spread = if middle > 0.0 { (largest - least) / middle } else { 0.0 };
        self.directions = self.of_directions();
        let names = self.runs.iter().flat_map(|run| run.measured.others.keys());
        let names: std::collections::BTreeSet<&String> = names.collect();
        let other = |name: &String| median(self.runs.iter().filter_map(|run| run.measured.others.get(name).copied()));
        self.others = names.into_iter().map(|name| (name.clone(), other(name))).collect();
    }

    /// Medians of each direction, without bins: each run has its own.
    fn of_directions(&self) -> BTreeMap<Direction, Figures> {
        let mut all: BTreeMap<Direction, Vec<&Figures>> = BTreeMap::new();
        for (direction, figures) in self.runs.iter().flat_map(|run| &run.measured.directions) {
            all.entry(*direction).or_default().push(figures);
        }
        all.into_iter().map(|(direction, figures)| (direction, median_figures(&figures))).collect()
    }
}

impl Results {
    /// Makes ratios and the summary of disturbed runs anew, from the rows' runs.
    pub fn sum_up(&mut self) {
        let Some(first) = self.targets.first().map(|target| target.name.clone()) else { return };
        let firsts: Vec<Row> = self.results.iter().filter(|row| row.target == first).cloned().collect();
        for row in self.results.iter_mut().filter(|row| row.target != first) {
            row.ratio = firsts.iter().find(|it| it.job == row.job).and_then(|it| Ratio::of(row, it));
        }
        let disturbed = self.results.iter().flat_map(|row| {
            row.runs.iter().filter(|run| !run.disturbed.is_empty()).map(|run| Disturbed {
                target: row.target.clone(),
                job: row.job.clone(),
                repeat: run.repeat,
                by: run.disturbed.clone(),
            })
        });
        self.disturbed = disturbed.collect();
        self.quiet = self.disturbed.is_empty();
    }

    /// Copies the results without bins and series, for readers of the figures alone.
    #[must_use]
    pub fn without_bins(&self) -> Self {
        let mut brief = self.clone();
        for measured in brief.results.iter_mut().flat_map(|row| &mut row.runs).map(|run| &mut run.measured) {
            measured.series.clear();
            measured.both.bins.clear();
            for figures in measured.directions.values_mut() {
                figures.bins.clear();
            }
        }
        brief
    }

    /// The row of a job on a target.
    #[must_use]
    pub fn row(&self, target: &str, job: &str) -> Option<&Row> {
        self.results.iter().find(|row| row.target == target && row.job == job)
    }

    /// Returns the row of a job on a target, and makes it if there is none yet.
    ///
    /// Rows of a job lie side by side.
    pub(crate) fn row_of(&mut self, target: &str, job: &Job, order: &[(String, String)]) -> &mut Row {
        if self.row(target, &job.name).is_none() {
            self.results.push(Row::new(target, &job.name, job.headline, job.published.clone()));
            let place = |row: &Row| order.iter().position(|(job, target)| *job == row.job && *target == row.target);
            self.results.sort_by_key(place);
        }
        let row = self.results.iter_mut().find(|row| row.target == target && row.job == job.name);
        row.expect("the row was there, or was just made")
    }
}

impl Ratio {
    fn of(row: &Row, first: &Row) -> Option<Self> {
        let same_turn = |run: &Run| first.runs.iter().find(|it| it.repeat == run.repeat);
        let ratio = |run: &Run| row.headline.ratio(&run.measured, &same_turn(run)?.measured);
        let ratios: Vec<f64> = row.runs.iter().filter_map(ratio).collect();
        let (least, largest) = bounds(&ratios);
        (!ratios.is_empty()).then(|| Self { to: first.target.clone(), median: median(ratios), least, largest })
    }
}

fn median_figures(all: &[&Figures]) -> Figures {
    let of = |figure: fn(&Figures) -> f64| median(all.iter().map(|it| figure(it)));
    Figures {
        requests: of(|it| it.requests as f64) as u64,
        bytes: of(|it| it.bytes as f64) as u64,
        iops: of(|it| it.iops),
        bandwidth_kib_s: of(|it| it.bandwidth_kib_s),
        mean_us: of(|it| it.mean_us),
        p50_us: of(|it| it.p50_us),
        p90_us: of(|it| it.p90_us),
        p95_us: of(|it| it.p95_us),
        p99_us: of(|it| it.p99_us),
        p99_9_us: of(|it| it.p99_9_us),
        p99_99_us: of(|it| it.p99_99_us),
        max_us: of(|it| it.max_us),
        bins: BTreeMap::new(),
    }
}

/// The middle of some figures, or the mean of the two in the middle; 0 if there are none.
fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    match figures.len() {
        0 => 0.0,
        len if len % 2 == 1 => figures[len / 2],
        len => f64::midpoint(figures[len / 2 - 1], figures[len / 2]),
    }
}

/// The least and the largest; 0 if there are none.
fn bounds(figures: &[f64]) -> (f64, f64) {
    let least = figures.iter().copied().min_by(f64::total_cmp).unwrap_or(0.0);
    (least, figures.iter().copied().max_by(f64::total_cmp).unwrap_or(0.0))
}

#[cfg(test)]
mod tests;
