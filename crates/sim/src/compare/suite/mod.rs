// SPDX-License-Identifier: MIT OR Apache-2.0
//! The suites: what was run in each published comparison, on what, in what order. A suite is a file
//! here and a line in [`ALL`].

mod cache_size_2017;
mod caches_2015;
mod lvmcache_2017;
mod writeboost_2013;

use crate::load::Job;
use crate::rival::Geometry;

/// A published comparison.
#[derive(Debug)]
pub struct Suite {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Who published it.
    pub source: &'static str,
    /// What runs, by its name there.
    pub systems: &'static [Under],
    /// Requests a second are told, not KiB/s.
    pub by_iops: bool,
    /// The figures.
    pub(super) published: &'static str,
    pub(super) lines: fn() -> Vec<Line>,
}

/// A system under test.
#[derive(Debug)]
pub struct Under {
    /// Its name in the suite.
    pub name: &'static str,
    /// `flashfront`, `hdd`, `ssd`, or a rival's name.
    pub(super) runs: &'static str,
    /// Whether the job was asked by so many threads, each with one request in flight and its share
    /// of the bytes, where others had that depth. What one thread goes to others go to as well.
    pub(super) by_threads: bool,
}

/// Tasks that a system runs one after the other, its cache empty at the beginning.
#[derive(Clone, Debug)]
pub struct Line {
    /// On what.
    pub geometry: Geometry,
    /// In order.
    pub tasks: Vec<Task>,
}

/// A task.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its name in tables.
    pub name: String,
    /// What is asked for.
    pub jobs: Vec<Job>,
    /// Nothing is asked for so long before it.
    pub idle_before_ns: u64,
    /// The first task of the line that its figures count from (often itself); `None`: it only
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
    /// Its lines.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        (self.lines)()
    }

    /// The source's figures for a task: system, metric, figure.
    #[must_use]
    pub fn published_for(&self, task: &str) -> Vec<(&'static str, &'static str, f64)> {
        super::Published::read(self.published).of_task(task)
    }
}

const fn under(name: &'static str, runs: &'static str) -> Under {
    Under { name, runs, by_threads: false }
}

const fn by_threads(name: &'static str, runs: &'static str) -> Under {
    Under { name, runs, by_threads: true }
}

/// All of them.
pub const ALL: &[Suite] = &[caches_2015::SUITE, writeboost_2013::SUITE, lvmcache_2017::SUITE, cache_size_2017::SUITE];
