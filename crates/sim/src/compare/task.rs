// SPDX-License-Identifier: MIT OR Apache-2.0
//! A published comparison has systems, sessions of tasks, and figures.

use super::published::Published;
use super::under::Under;
use crate::load::{Job, work_bytes};
use crate::rival::Geometry;

/// A long task: ten minutes.
const LONG_NS: u64 = 600_000_000_000;

/// A published comparison.
#[derive(Debug)]
pub struct Suite {
    /// The name on the command line.
    pub name: &'static str,
    /// A line on what it is.
    pub summary: &'static str,
    /// The publication.
    pub source: &'static str,
    /// The systems, by their names in the publication.
    pub systems: &'static [Under],
    /// Requests a second are told, not KiB/s.
    pub by_iops: bool,
    /// The figures.
    pub(super) published: &'static str,
    pub(super) sessions: fn() -> Vec<Session>,
}

/// Tasks that a system runs one after the other, its cache empty at the beginning.
#[derive(Clone, Debug)]
pub struct Session {
    /// The devices.
    pub geometry: Geometry,
    /// The tasks, in order.
    pub tasks: Vec<Task>,
}

/// A task.
#[derive(Clone, Debug)]
pub struct Task {
    /// The name in tables.
    pub name: String,
    /// The jobs of the task.
    pub jobs: Vec<Job>,
    /// Nothing is asked for so long before it.
    pub idle_before_ns: u64,
    /// The first task of the session that its figures count from (often itself); `None`: it only
    /// prepares.
    pub measured_since: Option<usize>,
    /// What fio is told besides, on real devices.
    pub fio: AsFio,
}

/// How fio ran a task where the models' jobs say it otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsFio {
    /// Jobs of fio (`numjobs`) that share the depth of the task's job.
    pub clones: u32,
    /// fio doesn't note which places it has asked for (`norandommap`).
    pub norandommap: bool,
}

impl AsFio {
    /// Nothing is said otherwise.
    pub const SAME: Self = Self { clones: 1, norandommap: false };
}

impl Task {
    /// Long timed tasks are told in steps of 10 s; others by the second.
    pub(super) fn interval_ns(&self) -> u64 {
        let longest_ns = self.jobs.iter().map(|job| job.time_ns).max().unwrap_or(0);
        if longest_ns > LONG_NS { 10_000_000_000 } else { 1_000_000_000 }
    }

    /// What its jobs are with threads in the stead of depth.
    pub(super) fn threads(&self) -> Vec<Job> {
        let of = |job: &Job| {
            let depth = u64::from(job.depth);
            let total_bytes = job.total_bytes / depth;
            let thread = |nth, job: &Job| Job { depth: 1, total_bytes, seed: job.clone_seed(nth), ..job.clone() };
            (0..depth).map(|nth| thread(nth, job)).collect::<Vec<_>>()
        };
        self.jobs.iter().flat_map(of).collect()
    }
}

impl Suite {
    /// The systems that can run.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        self.systems.iter().filter(|under| under.exists()).map(|under| under.name).collect()
    }

    /// The sessions of the suite.
    #[must_use]
    pub fn sessions(&self) -> Vec<Session> {
        (self.sessions)()
    }

    /// The source's figures for a task: system, metric, figure.
    #[must_use]
    pub fn published_for(&self, task: &str) -> Vec<(&'static str, &'static str, f64)> {
        Published::read(self.published).of_task(task)
    }
}

impl Session {
    /// What has to be done, in bytes, for a progress bar.
    pub(super) fn work_bytes(&self) -> u64 {
        self.tasks.iter().map(|task| work_bytes(&task.jobs)).sum()
    }
}
