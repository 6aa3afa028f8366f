// SPDX-License-Identifier: MIT OR Apache-2.0
//! Published comparisons, run again: each of their jobs on Flashfront, on models of the caches that
//! were compared, and on bare devices; beside what was published.

mod published;
mod scale;
mod suite;
mod validation;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use flashfront_engine::{Mode, Options, Time};

pub use published::Published;
pub use suite::{ALL, AsFio, Line, Suite, Task, Under};
pub use validation::{Errors, Kind};

use crate::load::{PhaseResult, idle, run, work_bytes};
use crate::rival::{self, Geometry};
use crate::system::{Bare, Flashfront, FlashfrontSpec, System};

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The task that it is of.
    pub task: String,
    /// The system, by its name in the suite.
    pub system: &'static str,
    /// `kbps` (KiB/s: of reads where there are any, else of writes), `kbps_write`, `cache_read_kb`,
    /// `cache_write_kb`, `data_read_kb`, `data_write_kb`, `dirty_mb`, `hit_ratio` or `iops`.
    pub metric: &'static str,
    /// What the source has, if it has this figure.
    pub published: Option<f64>,
    /// What the models do.
    pub simulated: f64,
}

/// A task as it went.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Its line's number in the suite.
    pub line: usize,
    /// Its number in the line.
    pub task: usize,
    /// What came of it.
    pub result: PhaseResult,
}

/// What a system did in all tasks.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The system, by its name in the suite.
    pub system: &'static str,
    /// In order.
    pub ran: Vec<Ran>,
}

/// A long task: ten minutes.
const LONG_NS: u64 = 600_000_000_000;

/// A suite, or a part of it, to be run.
#[derive(Debug)]
pub struct Comparison {
    /// Of what.
    pub suite: &'static Suite,
    /// What is run.
    pub lines: Vec<Line>,
    /// By whom, by its name in the suite.
    pub systems: Vec<&'static str>,
}

impl Suite {
    /// The systems that can run.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        self.systems.iter().filter(|under| under.exists()).map(|under| under.name).collect()
    }
}

impl Comparison {
    /// All of a suite.
    #[must_use]
    pub fn of(suite: &'static Suite) -> Self {
        Self { suite, lines: suite.lines(), systems: suite.names() }
    }

    /// Ends with this task; false if no line has it.
    pub fn end_with(&mut self, task: &str) -> bool {
        self.lines.retain(|line| line.tasks.iter().any(|it| it.name == task));
        for line in &mut self.lines {
            let last = line.tasks.iter().position(|it| it.name == task).unwrap_or(0);
            line.tasks.truncate(last + 1);
        }
        !self.lines.is_empty()
    }

    /// What has to be done, for a progress bar.
    #[must_use]
    pub fn work_bytes(&self) -> u64 {
        self.lines.iter().map(Line::work_bytes).sum::<u64>() * self.systems.len() as u64
    }

    /// Runs all systems through all lines, several at a time; `watch` hears of work done, from any
    /// thread, and stops all with false.
    pub fn run(&self, watch: &(dyn Fn(u64) -> bool + Sync)) -> Option<Vec<Compared>> {
        let (lines, systems) = (&self.lines, &self.systems);
        let under: Vec<&Under> = self.suite.systems.iter().filter(|under| systems.contains(&under.name)).collect();
        // The longest lines first, so that no thread is left with one of them at the end.
        let mut parts: Vec<(usize, usize)> =
            (0..lines.len()).flat_map(|line| (0..under.len()).map(move |system| (line, system))).collect();
        parts.sort_by_key(|(line, _)| std::cmp::Reverse(lines[*line].work_bytes()));
        let (next, ran) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let threads = thread::available_parallelism().map_or(1, usize::from).min(parts.len().max(1));
        let all = thread::scope(|scope| {
            let worker = || {
                while let Some(&(line, system)) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut device = under[system].build(&lines[line].geometry);
                    let results = run_line(&lines[line], under[system].by_threads, &mut *device, watch)?;
                    let results = results.into_iter().enumerate().map(|(task, result)| Ran { line, task, result });
                    ran.lock().expect("no thread panics").push((system, results.collect::<Vec<_>>()));
                }
                Some(())
            };
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
            threads.into_iter().all(|thread| thread.join().expect("no thread panics").is_some())
        });
        let mut ran = ran.into_inner().expect("no thread panics");
        ran.sort_by_key(|(system, ran)| (*system, ran.first().map(|ran| ran.line)));
        let mut compared: Vec<Compared> =
            under.iter().map(|under| Compared { system: under.name, ran: Vec::new() }).collect();
        for (system, results) in ran {
            compared[system].ran.extend(results);
        }
        all.then_some(compared)
    }

    /// The figures, in the suite's order of tasks.
    #[must_use]
    pub fn cells(&self, compared: &[Compared]) -> Vec<Cell> {
        let published = Published::read(self.suite.published);
        let mut cells = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            for (nth, task) in line.tasks.iter().enumerate() {
                let Some(since) = task.measured_since else { continue };
                for system in compared {
                    let result = |task| system.ran.iter().find(|ran| ran.line == at && ran.task == task);
                    let (Some(first), Some(last)) = (result(since), result(nth)) else { continue };
                    let all: Vec<&PhaseResult> = (since..=nth).filter_map(result).map(|ran| &ran.result).collect();
                    let bare = matches!(system.system, "hdd" | "ssd");
                    for (metric, simulated) in self.suite.figures(&first.result, &last.result, &all, bare) {
                        let published = published.get(&task.name, system.system, metric);
                        cells.push(Cell {
                            task: task.name.clone(),
                            system: system.system,
                            metric,
                            published,
                            simulated,
                        });
                    }
                }
            }
        }
        cells
    }
}

impl Suite {
    /// What is told of phases that count as one.
    fn figures(
        &self,
        first: &PhaseResult,
        last: &PhaseResult,
        all: &[&PhaseResult],
        bare: bool,
    ) -> Vec<(&'static str, f64)> {
        let (before, after) = (&first.before, &last.after);
        let seconds = all.iter().map(|phase| phase.time_ns).sum::<u64>() as f64 / 1e9;
        let jobs = || all.iter().flat_map(|phase| &phase.jobs);
        let (read, written) =
            (jobs().map(|job| job.read_bytes).sum::<u64>(), jobs().map(|job| job.write_bytes).sum::<u64>());
        let kib = |bytes: u64| bytes as f64 / 1024.0;
        let mut figures = Vec::new();
        if self.by_iops {
            // With what wasn't simulated because nothing changed any more.
            let both = all.iter().map(|phase| phase.bytes_and_ns());
            let (bytes, ns) = both.fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
            figures.push(("iops", bytes / f64::from(1 << 12) * 1e9 / ns));
        } else {
            figures.push(("kbps", kib(if read > 0 { read } else { written }) / seconds));
            if read > 0 && written > 0 {
                figures.push(("kbps_write", kib(written) / seconds));
            }
        }
        if bare {
            return figures;
        }
        let blocks = after.read_blocks - before.read_blocks;
        if blocks > 0 {
            figures.push(("hit_ratio", (after.read_hit_blocks - before.read_hit_blocks) as f64 / blocks as f64));
        }
        figures.extend([
            ("cache_read_kb", kib(after.cache_read_bytes - before.cache_read_bytes)),
            ("cache_write_kb", kib(after.cache_write_bytes - before.cache_write_bytes)),
            ("data_read_kb", kib(after.origin_read_bytes - before.origin_read_bytes)),
            ("data_write_kb", kib(after.origin_write_bytes - before.origin_write_bytes)),
            ("dirty_mb", kib(after.dirty_bytes) / 1024.0),
        ]);
        figures
    }
}

impl Under {
    fn exists(&self) -> bool {
        matches!(self.runs, "flashfront" | "hdd" | "ssd") || rival::ALL.iter().any(|spec| spec.name == self.runs)
    }

    fn build(&self, geometry: &Geometry) -> Box<dyn System> {
        match self.runs {
            "hdd" => Box::new(Bare::new(geometry.origin, geometry.origin_bytes)),
            "ssd" => Box::new(Bare::new(geometry.cache, geometry.cache_bytes)),
            "flashfront" => Box::new(Flashfront::new(&FlashfrontSpec {
                origin: geometry.origin,
                origin_bytes: geometry.origin_bytes,
                cache: geometry.cache,
                cache_bytes: geometry.cache_bytes,
                mode: Mode::Writeback,
                // As the others in these comparisons: nothing goes past the cache because of its
                // length.
                options: Options { sequential_bypass_bytes: 0, ..Options::default() },
            })),
            name => {
                let spec = rival::ALL.iter().find(|spec| spec.name == name);
                (spec.expect("only systems that exist are run").build)(geometry)
            }
        }
    }
}

fn run_line(
    line: &Line,
    by_threads: bool,
    system: &mut dyn System,
    watch: &(dyn Fn(u64) -> bool + Sync),
) -> Option<Vec<PhaseResult>> {
    let (mut now, mut number) = (Time(0), 0);
    let mut results = Vec::new();
    for task in &line.tasks {
        // Counters were read after each task: what moves before the next one begins is the next
        // one's.
        let before = system.traffic();
        idle(system, &mut now, task.idle_before_ns, &mut |work| watch(work))?;
        let interval_ns = task.interval_ns();
        let jobs = if by_threads { task.threads() } else { task.jobs.clone() };
        let result = run(system, &mut now, &mut number, &jobs, interval_ns, &mut |work| watch(work))?;
        results.push(PhaseResult { before, ..result });
    }
    Some(results)
}

impl Line {
    fn work_bytes(&self) -> u64 {
        self.tasks.iter().map(|task| work_bytes(&task.jobs)).sum()
    }
}

impl Task {
    /// Long timed tasks are told in steps of 10 s; others by the second.
    fn interval_ns(&self) -> u64 {
        let longest_ns = self.jobs.iter().map(|job| job.time_ns).max().unwrap_or(0);
        if longest_ns > LONG_NS { 10_000_000_000 } else { 1_000_000_000 }
    }
}

#[cfg(test)]
mod tests;
