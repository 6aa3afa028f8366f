// SPDX-License-Identifier: MIT OR Apache-2.0
//! Suites: named jobs in order. fio runs a job, or an act that measures by itself.

pub mod fio_job;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::figures::Measured;
pub use fio_job::{FioJob, Pattern};

/// Jobs in order.
#[derive(Clone, Debug)]
pub struct Suite {
    /// Its name on the command line.
    pub name: String,
    /// What it is, in a line.
    pub summary: String,
    /// Who published figures for it, if anybody did.
    pub source: Option<String>,
    /// Jobs in groups. A cache begins each group anew: `--before` runs, `fresh` makes a volume.
    pub groups: Vec<Group>,
}

/// Jobs that follow one another on the same cache.
#[derive(Clone, Debug)]
pub struct Group {
    /// In order.
    pub jobs: Vec<Job>,
}

/// A job.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its name in tables; no other job of the suite has it.
    pub name: String,
    /// What is asked for.
    pub work: Work,
    /// Which figure ratios compare.
    pub headline: Headline,
    /// Nothing is asked for so long before it.
    pub idle_before: Duration,
    /// Whether its figures are told; otherwise the job only prepares.
    pub measured: bool,
    /// What the source has, of each system there.
    pub published: Vec<Published>,
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

    /// Programs that it runs, each with the package of Debian that has it.
    fn programs(&self) -> Vec<(&'static str, &'static str)>;

    /// About how long it takes.
    fn estimate(&self) -> Duration;

    /// The commands that it runs there, for `--dry-run` and for results.
    fn commands(&self, place: &Place) -> Vec<Vec<String>>;

    /// Does it once. `stop` says that the user asked for an end: then [`BenchError::Interrupted`].
    ///
    /// # Errors
    /// Whatever went wrong, with what to do.
    fn run(&self, place: &Place, stop: &dyn Fn() -> bool) -> Result<Measured, BenchError>;
}

/// Where a job runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
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

/// How much smaller than the suite: a whole number's reciprocal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Scale(u64);

impl Scale {
    /// Full size.
    pub const FULL: Self = Self(1);

    /// By which number sizes are divided.
    #[must_use]
    pub const fn divisor(self) -> u64 {
        self.0
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
