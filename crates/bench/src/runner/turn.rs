// SPDX-License-Identifier: MIT OR Apache-2.0
//! A turn: one target, and the jobs of one group on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flashfront_device::real::DeviceFile;
use rustix::fs::{Mode as FileMode, OFlags};

use super::plan::{Plan, Step};
use super::{Bench, Fresh, News, now};
use crate::error::BenchError;
use crate::figures::{Figures, Measured};
use crate::fill::Made;
use crate::fio::{Prepared, Where};
use crate::quiet::{self, Moment, Watched};
use crate::results::{Results, Run};
use crate::safety;
use crate::store::Store;
use crate::suite::{Act, Job, Site, Work};
use crate::target::{TargetSpec, What};

/// How often the user may ask for an end of a pause.
const STEP: Duration = Duration::from_millis(100);
/// The folder of the run that is under way, in the result folder.
pub(super) const NOW: &str = "run";

/// Runs all steps that have no run yet.
pub(super) fn all(
    bench: &Bench,
    plan: &Plan,
    store: &Store,
    made: &BTreeMap<String, Made>,
    results: &mut Results,
    news: &mut dyn News,
) -> Result<(), BenchError> {
    let mut from = 0;
    while from < plan.steps.len() {
        let first = &plan.steps[from];
        let same = |step: &&Step| (step.repeat, step.group, step.target) == (first.repeat, first.group, first.target);
        let len = plan.steps[from..].iter().take_while(same).count();
        let steps = &plan.steps[from..from + len];
        if let Some(begin) = where_to_begin(bench, steps, results) {
            let turn = Turn { bench, plan, store, made, from };
            turn.run(steps, begin, results, news)?;
        }
        from += len;
    }
    Ok(())
}

/// The first step of a turn that is to run; `None` if all are done. A fresh volume begins anew, as
/// its cache is gone; any other target goes on behind what it did last.
fn where_to_begin(bench: &Bench, steps: &[Step], results: &Results) -> Option<usize> {
    let is_done = |step: &Step| has_run(results, step);
    if steps.iter().filter(|step| step.measured).all(is_done) {
        return None;
    }
    let is_fresh = steps.first().is_some_and(|step| matches!(bench.targets[step.target].what, What::Fresh(_)));
    let last_done = steps.iter().rposition(is_done);
    Some(if is_fresh { 0 } else { last_done.map_or(0, |last| last + 1) })
}

fn has_run(results: &Results, step: &Step) -> bool {
    let row = results.row(&step.target_name, &step.job_name);
    row.is_some_and(|row| row.runs.iter().any(|run| run.repeat == step.repeat))
}

struct Turn<'a> {
    bench: &'a Bench,
    plan: &'a Plan,
    store: &'a Store,
    made: &'a BTreeMap<String, Made>,
    /// The place of its first step in the plan.
    from: usize,
}

/// A target that is ready for I/O.
struct Ready {
    /// The place where fio works; for acts that need a folder, the folder.
    at: Where,
    folder: Option<PathBuf>,
    watched: Watched,
    fresh: Option<Box<dyn Fresh>>,
    /// No other program takes the device while this is open.
    _guard: Option<DeviceFile>,
}

impl Turn<'_> {
    fn run(&self, steps: &[Step], begin: usize, results: &mut Results, news: &mut dyn News) -> Result<(), BenchError> {
        let Some(spec) = steps.first().map(|step| &self.bench.targets[step.target]) else { return Ok(()) };
        // Behind a run of an earlier time the cache is as that run left it.
        if begin == 0 {
            shell("--before", spec, self.bench.before.get(&spec.name))?;
        }
        let ready = self.open(spec)?;
        let done = self.jobs(steps, begin, &ready, results, news);
        let ended = ready.fresh.map_or(Ok(()), Fresh::end);
        done?;
        ended?;
        shell("--after", spec, self.bench.after.get(&spec.name))
    }

    fn open(&self, spec: &TargetSpec) -> Result<Ready, BenchError> {
        let writes = self.bench.suite.writes();
        let of_file =
            |place: fn(PathBuf) -> Site, path: &Path| Where { place: place(path.to_owned()), direct: is_direct(path) };
        let mut ready = Ready {
            at: Where { place: Site::Nbd(String::new()), direct: true },
            folder: None,
            watched: Watched::default(),
            fresh: None,
            _guard: None,
        };
        match &spec.what {
            What::Device(path) => {
                ready._guard = Some(safety::open(path, writes)?);
                ready.at = Where { place: Site::Device(path.clone()), direct: true };
                ready.watched.device = Some(path.clone());
            }
            What::File { path, exists } => {
                if *exists {
                    ready._guard = Some(safety::open(path, writes)?);
                }
                ready.at = of_file(Site::File, path);
            }
            What::Folder(folder) => {
                let file = self.made.get(&spec.name).map(Made::path);
                ready.at = file.map_or(ready.at, |file| of_file(Site::File, file));
                ready.folder = Some(folder.clone());
            }
            What::Nbd(uri) => {
                ready.at.place = Site::Nbd(uri.clone());
                ready.watched.part_of_target = servers_of(uri);
            }
            What::Fresh(mode) => {
                let fresh = self.bench.fresh.make(*mode)?;
                ready.at.place = Site::Nbd(fresh.uri());
                ready.fresh = Some(fresh);
            }
        }
        Ok(ready)
    }

    fn jobs(
        &self,
        steps: &[Step],
        begin: usize,
        ready: &Ready,
        results: &mut Results,
        news: &mut dyn News,
    ) -> Result<(), BenchError> {
        let names: Vec<String> = self.bench.targets.iter().map(|target| target.name.clone()).collect();
        let order = self.bench.suite.order(&names);
        for (nth, step) in steps.iter().enumerate().skip(begin) {
            let job = &self.bench.suite.groups[step.group].jobs[step.job];
            pause(job.idle_before, news)?;
            news.begins(step, self.plan.left(self.from + nth, results));
            let started = now();
            let (mut run, bytes_before) = (
                Run {
                    repeat: step.repeat,
                    started,
                    commands: Vec::new(),
                    measured: Measured::default(),
                    disturbed: Vec::new(),
                },
                Moment::now(&ready.watched),
            );
            (run.commands, run.measured) = self.work(job, step, ready, news)?;
            let (cpus, bytes) = (results.environment.cpus, run.measured.both.bytes);
            run.disturbed = Moment::now(&ready.watched).disturbed_since(&bytes_before, &ready.watched, cpus, bytes);
            // Of a turn that begins anew some figures are there already.
            if !step.measured || has_run(results, step) {
                continue;
            }
            run.measured = since(job, steps, step, results, run.measured);
            news.ended(step, &run.measured, &run.disturbed);
            results.row_of(&step.target_name, job, &order).add(run);
            results.sum_up();
            self.store.save(results)?;
        }
        Ok(())
    }

    /// Does a job once.
    fn work(
        &self,
        job: &Job,
        step: &Step,
        ready: &Ready,
        news: &mut dyn News,
    ) -> Result<(Vec<Vec<String>>, Measured), BenchError> {
        if news.stop() {
            return Err(BenchError::Interrupted);
        }
        match &job.work {
            Work::Fio(jobs) => {
                let folder = self.store.folder().join(NOW);
                let fail = |error: std::io::Error| BenchError::Failed(format!("{}: {error}", folder.display()));
                // A killed bench leaves its run's logs there, which are no part of this one.
                if folder.exists() {
                    std::fs::remove_dir_all(&folder).map_err(fail)?;
                }
                std::fs::create_dir_all(&folder).map_err(fail)?;
                let prepared = Prepared::new(jobs, &ready.at, &folder, step.expected);
                let measured = prepared.run(&mut || !news.stop());
                std::fs::remove_dir_all(&folder).map_err(fail)?;
                Ok((vec![prepared.command], measured?))
            }
            Work::Act(act) => {
                let place = place_of(&**act, ready);
                let began = Instant::now();
                let mut measured = act.run(&place, &|| news.stop())?;
                if measured.seconds <= 0.0 {
                    measured.seconds = began.elapsed().as_secs_f64();
                }
                Ok((act.commands(&place), measured))
            }
        }
    }
}

fn place_of(act: &dyn Act, ready: &Ready) -> Site {
    match &ready.folder {
        Some(folder) if act.needs_folder() => Site::Folder(folder.clone()),
        _ => ready.at.place.clone(),
    }
}

/// A job's figures count from an earlier job of its turn, if the source counts so: then all runs
/// since are one.
fn since(job: &Job, steps: &[Step], step: &Step, results: &Results, last: Measured) -> Measured {
    let Some(from) = job.counts_from.filter(|from| *from < step.job) else { return last };
    let earlier = steps.iter().filter(|it| (from..step.job).contains(&it.job));
    let mut earlier = earlier.filter_map(|it| {
        let row = results.row(&it.target_name, &it.job_name)?;
        row.runs.iter().find(|run| run.repeat == step.repeat).map(|run| &run.measured)
    });
    // Each of them counts from the first job on already: the last one has all before it.
    let Some(before) = earlier.next_back() else { return last };
    let seconds = before.seconds + last.seconds;
    let mut directions = BTreeMap::new();
    for direction in before.directions.keys().chain(last.directions.keys()) {
        let parts = [before, &last].into_iter().filter_map(|it| it.directions.get(direction));
        directions.insert(*direction, Figures::merged(parts, seconds));
    }
    let mut series = before.series.clone();
    series.extend(last.series.iter().map(|point| crate::Point { at_s: point.at_s + before.seconds, ..*point }));
    Measured::new(seconds, directions, series)
}

/// Waits, but for a wish to end.
fn pause(time: Duration, news: &dyn News) -> Result<(), BenchError> {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        if news.stop() {
            return Err(BenchError::Interrupted);
        }
        std::thread::sleep(left.min(STEP));
    }
}

/// Runs a command of the user's by the shell; the environment names the target.
fn shell(option: &str, target: &TargetSpec, command: Option<&String>) -> Result<(), BenchError> {
    let Some(command) = command else { return Ok(()) };
    let output = Command::new("sh")
        .args(["-c", command])
        .env("BENCH_TARGET", &target.name)
        .env("BENCH_DEVICE", &target.text)
        .stdin(Stdio::null())
        .output();
    let output = output
        .map_err(|error| BenchError::Failed(format!("{option} of {}: sh can't be started: {error}", target.name)))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(BenchError::Failed(format!(
        "{option} of {} failed ({}): {command}: {}",
        target.name,
        output.status,
        said.trim()
    )))
}

/// Whether the file system lets I/O go past the page cache.
fn is_direct(path: &Path) -> bool {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC, FileMode::empty()).is_ok()
}

/// The processes that listen at the URI's socket on this machine: their work is the target's.
fn servers_of(uri: &str) -> Vec<u64> {
    let socket = || {
        let query = uri.strip_prefix("nbd+unix:").or_else(|| uri.strip_prefix("nbds+unix:"))?.split_once('?')?.1;
        query.split('&').find_map(|part| part.strip_prefix("socket="))
    };
    socket().map(quiet::listeners).unwrap_or_default()
}
