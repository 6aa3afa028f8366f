// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plan: which run comes after which, and about how long each takes.

use std::path::Path;
use std::time::Duration;

use super::Bench;
use crate::fill;
use crate::fio::{Prepared, Where};
use crate::results::Results;
use crate::suite::{FioJob, Job, Pattern, Site, Suite, Work};
use crate::target::What;

/// The time for starting and ending fio.
const AROUND: Duration = Duration::from_secs(1);
/// A disk's pace, for jobs that end by bytes; an SSD is faster.
const IN_ORDER_BYTES_PER_S: u64 = 150_000_000;
const RANDOM_PER_S: u64 = 150;
/// Random reads that a disk makes in a second if several are in flight and it chooses its way.
const RANDOM_DEEP_PER_S: u64 = 300;

/// The runs, in order.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The contents of the targets that will be lost, in words.
    pub destroyed: Vec<String>,
    /// fio's version, if a job needs fio.
    pub fio: Option<String>,
}

/// A run of a job on a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The turn, from 1.
    pub repeat: u32,
    /// The group of the suite, by its place.
    pub group: usize,
    /// The job in the group, by its place.
    pub job: usize,
    /// The job's name.
    pub job_name: String,
    /// The target, by its place.
    pub target: usize,
    /// The target's name.
    pub target_name: String,
    /// Whether its figures are told.
    pub measured: bool,
    /// About how long it takes.
    pub expected: Duration,
}

pub(super) fn steps(bench: &Bench) -> Vec<Step> {
    let mut steps = Vec::new();
    for repeat in 1..=bench.repeats {
        for (group, jobs) in bench.suite.groups.iter().enumerate() {
            for (target, spec) in bench.targets.iter().enumerate() {
                steps.extend(jobs.jobs.iter().enumerate().map(|(nth, job)| Step {
                    repeat,
                    group,
                    job: nth,
                    job_name: job.name.clone(),
                    target,
                    target_name: spec.name.clone(),
                    measured: job.counts_from.is_some(),
                    expected: expected(job),
                }));
            }
        }
    }
    steps
}

impl Bench {
    /// The commands of a step as they will be, but for names that are found only then (of `fresh`'s
    /// socket, of files in a folder).
    #[must_use]
    pub fn commands(&self, step: &Step, folder: &Path) -> Vec<Vec<String>> {
        let target = &self.targets[step.target];
        let place = match &target.what {
            What::Device(path) => Site::Device(path.clone()),
            What::File { path, .. } => Site::File(path.clone()),
            What::Nbd(uri) => Site::Nbd(uri.clone()),
            What::Folder(folder) => Site::Folder(folder.clone()),
            What::Fresh(_) => Site::Nbd("nbd+unix:///bench?socket=SOCKET".to_owned()),
        };
        match &self.suite.groups[step.group].jobs[step.job].work {
            Work::Act(act) => act.commands(&place),
            Work::Fio(jobs) => {
                let place = match place {
                    Site::Folder(folder) => Site::File(folder.join(super::file_in_folder())),
                    place => place,
                };
                let at = Where { place, direct: true };
                vec![Prepared::new(jobs, &at, &folder.join(super::turn::NOW), step.expected).command]
            }
        }
    }
}

impl Plan {
    /// About how long all takes.
    #[must_use]
    pub fn expected(&self, bench: &Bench) -> Duration {
        let makes = |what: &What| matches!(what, What::File { exists: false, .. } | What::Folder(_) | What::Fresh(_));
        let files = bench.targets.iter().filter(|target| makes(&target.what)).count() as u64;
        let filled = fill::read_ranges(&bench.suite).iter().map(|it| it.end - it.start).sum::<u64>();
        let filling = Duration::from_secs(files * filled / IN_ORDER_BYTES_PER_S);
        self.steps.iter().map(|step| step.expected).sum::<Duration>() + filling
    }

    /// About how long is left from a step on: a run that was made before tells how long it takes.
    #[must_use]
    pub fn left(&self, from: usize, results: &Results) -> Duration {
        let of = |step: &Step| {
            let run = results.row(&step.target_name, &step.job_name).and_then(|row| row.runs.last());
            run.map_or(step.expected, |run| Duration::from_secs_f64(run.measured.seconds.max(0.0)) + AROUND)
        };
        self.steps[from..].iter().map(of).sum()
    }
}

impl Suite {
    /// Jobs with targets in the order of tables.
    pub(super) fn order(&self, targets: &[String]) -> Vec<(String, String)> {
        self.jobs().flat_map(|job| targets.iter().map(|target| (job.name.clone(), target.clone()))).collect()
    }
}

/// About how long a job takes.
pub(super) fn expected(job: &Job) -> Duration {
    let work = match &job.work {
        Work::Act(act) => act.estimate(),
        // They run at the same time.
        Work::Fio(jobs) => {
            let by_time = jobs.iter().map(|job| job.time).max().unwrap_or_default();
            if by_time.is_zero() { by_bytes(job, jobs) } else { by_time }
        }
    };
    job.idle_before + work + AROUND
}

/// Estimates by the pace of the source's disk, or of a usual disk.
fn by_bytes(job: &Job, jobs: &[FioJob]) -> Duration {
    let published = |metric: &str| {
        let of = job.published.iter().find(|it| it.system == "hdd" && it.metric == metric)?;
        Some(of.value * 1024.0)
    };
    let total: u64 = jobs.iter().map(|job| job.total_bytes * u64::from(job.clones)).sum();
    let usual = |job: &FioJob| match job.pattern {
        Pattern::Sequential => IN_ORDER_BYTES_PER_S,
        _ if job.depth >= 8 => RANDOM_DEEP_PER_S * job.block_bytes,
        _ => RANDOM_PER_S * job.block_bytes,
    };
    let rate = published("kbps").map(|rate| rate + published("kbps_write").unwrap_or(0.0));
    let rate = rate.unwrap_or_else(|| jobs.iter().map(usual).sum::<u64>() as f64);
    Duration::from_secs_f64(total as f64 / rate.max(1.0))
}
