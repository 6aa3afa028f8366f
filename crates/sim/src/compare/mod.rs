// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs published comparisons again: on Flashfront, on models of the caches that were compared, and
//! on bare devices. Each figure stands beside the published one.

mod cell;
mod published;
mod scale;
mod suite;
mod task;
mod under;
mod validation;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use flashfront_engine::Time;

pub use cell::Cell;
pub use published::Published;
pub use suite::ALL;
pub use task::{AsFio, Session, Suite, Task};
pub use under::Under;
pub use validation::{Errors, Kind};

use self::cell::figures;
use crate::load::{PhaseResult, idle, run};
use crate::system::System;

/// A task as it went.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The number of the task's session in the suite.
    pub session: usize,
    /// The number of the task in its session.
    pub task: usize,
    /// The result of the task.
    pub result: PhaseResult,
}

/// What a system did in all tasks.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The system, by its name in the suite.
    pub system: &'static str,
    /// The tasks that ran, in order.
    pub ran: Vec<Ran>,
}

/// A suite, or a part of it, to be run.
#[derive(Debug)]
pub struct Comparison {
    /// The suite.
    pub suite: &'static Suite,
    /// The sessions that are run.
    pub sessions: Vec<Session>,
    /// The systems that run them, by their names in the suite.
    pub systems: Vec<&'static str>,
}

impl Comparison {
    /// A comparison of all that a suite has.
    #[must_use]
    pub fn of(suite: &'static Suite) -> Self {
        Self { suite, sessions: suite.sessions(), systems: suite.names() }
    }

    /// Ends with this task; false if no session has it.
    pub fn end_with(&mut self, task: &str) -> bool {
        self.sessions.retain(|session| session.tasks.iter().any(|it| it.name == task));
        for session in &mut self.sessions {
            let last = session.tasks.iter().position(|it| it.name == task).unwrap_or(0);
            session.tasks.truncate(last + 1);
        }
        !self.sessions.is_empty()
    }

    /// What has to be done, for a progress bar.
    #[must_use]
    pub fn work_bytes(&self) -> u64 {
        self.sessions.iter().map(Session::work_bytes).sum::<u64>() * self.systems.len() as u64
    }

    /// Runs all systems through all sessions, several at a time; `watch` hears of work done, from
    /// any thread, and stops all with false.
    pub fn run(&self, watch: &(dyn Fn(u64) -> bool + Sync)) -> Option<Vec<Compared>> {
        let (sessions, systems) = (&self.sessions, &self.systems);
        let under: Vec<&Under> = self.suite.systems.iter().filter(|under| systems.contains(&under.name)).collect();
        // The longest sessions first, so that no thread is left with one of them at the end.
        let mut parts: Vec<(usize, usize)> =
            (0..sessions.len()).flat_map(|session| (0..under.len()).map(move |system| (session, system))).collect();
        parts.sort_by_key(|(session, _)| std::cmp::Reverse(sessions[*session].work_bytes()));
        let (next, ran) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let threads = thread::available_parallelism().map_or(1, usize::from).min(parts.len().max(1));
        let all = thread::scope(|scope| {
            let worker = || {
                while let Some(&(session, system)) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut device = under[system].build(&sessions[session].geometry);
                    let results = run_line(&sessions[session], under[system].by_threads, &mut *device, watch)?;
                    let results = results.into_iter().enumerate().map(|(task, result)| Ran { session, task, result });
                    ran.lock().expect("no thread panics").push((system, results.collect::<Vec<_>>()));
                }
                Some(())
            };
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
            threads.into_iter().all(|thread| thread.join().expect("no thread panics").is_some())
        });
        let mut ran = ran.into_inner().expect("no thread panics");
        ran.sort_by_key(|(system, ran)| (*system, ran.first().map(|ran| ran.session)));
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
        for (at, session) in self.sessions.iter().enumerate() {
            for (nth, task) in session.tasks.iter().enumerate() {
                let Some(since) = task.measured_since else { continue };
                for system in compared {
                    let result = |task| system.ran.iter().find(|ran| ran.session == at && ran.task == task);
                    let (Some(first), Some(last)) = (result(since), result(nth)) else { continue };
                    let all: Vec<&PhaseResult> = (since..=nth).filter_map(result).map(|ran| &ran.result).collect();
                    let bare = matches!(system.system, "hdd" | "ssd");
                    for (metric, simulated) in figures(self.suite.by_iops, &first.result, &last.result, &all, bare) {
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

fn run_line(
    session: &Session,
    by_threads: bool,
    system: &mut dyn System,
    watch: &(dyn Fn(u64) -> bool + Sync),
) -> Option<Vec<PhaseResult>> {
    let (mut now, mut number) = (Time(0), 0);
    let mut results = Vec::new();
    for task in &session.tasks {
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

#[cfg(test)]
mod tests;
