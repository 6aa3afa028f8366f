// SPDX-License-Identifier: MIT OR Apache-2.0
//! A suite is a list of named jobs. fio runs a job, or an [`Act`] that measures by itself.
//!
//! `suites` has the suites that there are.

pub mod fio_job;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::figures::Measured;
pub use fio_job::{FioJob, Pattern};

/// Jobs in order.
#[derive(Clone, Debug)]
pub struct Suite {
    /// The name on the command line.
    pub name: String,
    /// The suite in a line.
    pub summary: String,
    /// The publisher of figures for it, if there is one.
    pub source: Option<String>,
    /// Jobs in groups. A cache begins each group anew: `--before` runs, `fresh` makes a volume.
    pub groups: Vec<Group>,
    /// The effects of scaling, in sentences; empty at full size.
    pub scaling: Vec<String>,
    /// The cache device's size in the source, scaled: for `fresh` if no other is given.
    pub cache_bytes: u64,
}

/// Jobs that follow one another on the same cache.
#[derive(Clone, Debug)]
pub struct Group {
    /// The jobs, in order.
    pub jobs: Vec<Job>,
}

/// A job.
#[derive(Clone, Debug)]
pub struct Job {
    /// The name in tables; no other job of the suite has it.
    pub name: String,
    /// The work.
    pub work: Work,
    /// The figure that ratios compare.
    pub headline: Headline,
    /// A pause before the job.
    pub idle_before: Duration,
    /// The job of the group from which its figures count, usually itself; `None`: it only prepares.
    pub counts_from: Option<usize>,
    /// The figures of the source, for each system there.
    pub published: Vec<Published>,
}

impl Suite {
    /// Returns its jobs, in order.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.groups.iter().flat_map(|group| &group.jobs)
    }

    /// Whether a job writes to the target's blocks.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.jobs().any(|job| job.work.writes())
    }

    /// Whether a job takes a time instead of an amount, so that another time may be asked for.
    #[must_use]
    pub fn has_timed_jobs(&self) -> bool {
        self.jobs().any(|job| match &job.work {
            Work::Fio(jobs) => jobs.iter().any(|job| !job.time.is_zero()),
            Work::Act(act) => act.is_timed(),
        })
    }

    /// How many bytes of a target it needs, from the first.
    #[must_use]
    pub fn needs_bytes(&self) -> u64 {
        self.jobs().map(|job| job.work.needs_bytes()).max().unwrap_or(0)
    }

    /// Keeps the jobs of these names (all, if there are none), and those before them in their group
    /// that prepare; with `reads_only`, none that writes.
    ///
    /// # Errors
    /// A name that no job has, or nothing is left.
    pub fn keep_wanted(&mut self, names: &[String], reads_only: bool) -> Result<(), BenchError> {
        let all: Vec<String> = self.jobs().map(|job| job.name.clone()).collect();
        if let Some(name) = names.iter().find(|name| !all.contains(name)) {
            let (suite, all) = (&self.name, all.join(", "));
            return Err(BenchError::Wrong(format!("the suite {suite} has no job `{name}`; its jobs are: {all}")));
        }
        self.keep_if(|job| (names.is_empty() || names.contains(&job.name)) && !(reads_only && job.work.writes()));
        if self.groups.is_empty() {
            let suite = &self.name;
            return Err(BenchError::Wrong(format!("no job of the suite {suite} is left: all that were named write")));
        }
        Ok(())
    }

    fn keep_if(&mut self, wanted: impl Fn(&Job) -> bool) {
        for group in &mut self.groups {
            let Some(last) = group.jobs.iter().rposition(|job| wanted(job) && job.counts_from.is_some()) else {
                group.jobs.clear();
                continue;
            };
            group.jobs.truncate(last + 1);
            // Places in the group move as jobs go.
            let stays: Vec<bool> =
                group.jobs.iter().map(|job| wanted(job) || (job.counts_from.is_none() && !job.work.writes())).collect();
            for (nth, job) in group.jobs.iter_mut().enumerate() {
                let gone = |from: usize| stays[..from].iter().filter(|stays| !**stays).count();
                // The job that this one would count from may be gone: then it counts from itself.
                job.counts_from =
                    job.counts_from.map(|from| if stays[from] { from - gone(from) } else { nth - gone(nth) });
            }
            let mut stays = stays.iter();
            group.jobs.retain(|_| *stays.next().expect("a word for each job"));
        }
        self.groups.retain(|group| !group.jobs.is_empty());
    }
}

impl Work {
    /// Whether it writes to the target's blocks.
    #[must_use]
    pub fn writes(&self) -> bool {
        match self {
            Self::Fio(jobs) => jobs.iter().any(|job| job.read_percent < 100),
            Self::Act(act) => act.writes(),
        }
    }

    /// How many bytes of a target it needs, from the first.
    #[must_use]
    pub fn needs_bytes(&self) -> u64 {
        match self {
            Self::Fio(jobs) => jobs.iter().map(|job| job.offset_bytes + job.span_bytes).max().unwrap_or(0),
            Self::Act(act) => act.needs_bytes(),
        }
    }
}

/// How a job is run.
#[derive(Clone, Debug)]
pub enum Work {
    /// fio runs these jobs at the same time.
    Fio(Vec<FioJob>),
    /// The act runs and measures by itself.
    Act(Arc<dyn Act>),
}

/// Something measured that is not fio: a clone of a repository, a database, a trace.
pub trait Act: fmt::Debug + Send + Sync {
    /// Whether it needs a mounted folder; otherwise a place with blocks (a device, a file, NBD).
    fn needs_folder(&self) -> bool;

    /// Whether it writes to blocks. In a folder an act may make files of its own, and removes them.
    fn writes(&self) -> bool;

    /// How many bytes of the target it needs, from the first.
    fn needs_bytes(&self) -> u64;

    /// Whether it takes the time that its suite was made for, and not as long as it needs.
    fn is_timed(&self) -> bool {
        false
    }

    /// Programs that it runs, each with the package of Debian that has it.
    fn programs(&self) -> Vec<(&'static str, &'static str)>;

    /// About how long it takes.
    fn estimate(&self) -> Duration;

    /// The commands that it runs there, for `--dry-run` and for results.
    fn commands(&self, place: &Site) -> Vec<Vec<String>>;

    /// Does it once. `stop` says that the user asked for an end: then [`BenchError::Interrupted`].
    ///
    /// # Errors
    /// The fault, with what to do.
    fn run(&self, place: &Site, stop: &dyn Fn() -> bool) -> Result<Measured, BenchError>;
}

/// The place where a job runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Site {
    /// A block device.
    Device(PathBuf),
    /// A file.
    File(PathBuf),
    /// An export of an NBD server, by its URI.
    Nbd(String),
    /// A folder of a mounted file system.
    Folder(PathBuf),
}

/// The figure of a job that ratios compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Headline {
    /// Requests a second.
    Iops,
    /// KiB a second.
    Bandwidth,
    /// The time that the run takes: less is faster.
    Seconds,
}

/// A figure that the suite's source has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// The system, by its name there.
    pub system: String,
    /// `iops`, or `kbps` (KiB/s: of reads where there are any, else of writes), `hit_ratio`, ...
    pub metric: String,
    /// The figure.
    pub value: f64,
}

/// The scale of a suite: a whole number's reciprocal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Scale(u64);

impl Scale {
    /// Full size.
    pub const FULL: Self = Self(1);

    /// The number by which sizes are divided.
    #[must_use]
    pub const fn divisor(self) -> u64 {
        self.0
    }
}

impl Scale {
    /// An amount at this scale: whole units of `unit` bytes, and at least one.
    #[must_use]
    pub fn amount(self, bytes: u64, unit: u64) -> u64 {
        if bytes == 0 { 0 } else { (bytes / self.0 / unit).max(1) * unit }
    }

    /// A place at this scale, at a border of `unit` bytes.
    #[must_use]
    pub fn place(self, bytes: u64, unit: u64) -> u64 {
        bytes / self.0 / unit * unit
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 1 { f.write_str("1") } else { write!(f, "1/{}", self.0) }
    }
}

impl FromStr for Scale {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let divisor = if text == "1" { Some("1") } else { text.strip_prefix("1/") };
        let divisor = divisor.and_then(|it| it.parse().ok()).filter(|it| (1..=4096).contains(it));
        divisor.map(Self).ok_or_else(|| "expected 1, or 1/N with N from 1 to 4096, such as 1/64".to_owned())
    }
}

impl TryFrom<String> for Scale {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Scale> for String {
    fn from(scale: Scale) -> Self {
        scale.to_string()
    }
}
