// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runner takes targets in turns: in each repeat, and for each group of the suite's jobs, one
//! target after the other.
//!
//! What disturbs all targets alike (a warm room, a slow hour) so falls on all of them. Results are
//! saved after each run: an interrupted bench loses the run it is in, and no other.

mod plan;
mod turn;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use flashfront_engine::Mode;

use crate::error::BenchError;
use crate::figures::Measured;
use crate::fill::{self, Made};
use crate::fio::Fio;
use crate::results::{Environment, FORMAT, Results, Target};
use crate::safety::{self, MayDestroy};
use crate::store::Store;
use crate::suite::{Scale, Suite, Work};
use crate::target::{TargetSpec, What};
use crate::{cold, machine, suite};

pub use plan::{Plan, Step};

/// Makes Flashfront volumes for the target `fresh`.
pub trait FreshMaker {
    /// Describes such a volume, and the devices under it.
    fn describe(&self, mode: Mode) -> Target;

    /// Paths that it would overwrite: each with whether it needs the user's word.
    fn overwrites(&self, writes: bool) -> Vec<PathBuf>;

    /// Gets ready for all volumes of a bench: files that are there no longer are made.
    ///
    /// # Errors
    /// Whatever went wrong.
    fn prepare(
        &mut self,
        suite: &Suite,
        scale: Scale,
        folder: &Path,
        watch: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), BenchError>;

    /// Makes and serves a volume with an empty cache.
    ///
    /// # Errors
    /// Whatever went wrong.
    fn make(&self, mode: Mode) -> Result<Box<dyn Fresh>, BenchError>;
}

/// A volume that is served; it ends when it is dropped.
pub trait Fresh {
    /// The NBD URI.
    fn uri(&self) -> String;

    /// Stops it. What was cached is gone then.
    ///
    /// # Errors
    /// Whatever went wrong.
    fn end(self: Box<Self>) -> Result<(), BenchError>;
}

/// Hears of progress, and may ask for an end.
pub trait News {
    /// Whether to stop. Called several times a second.
    fn stop(&self) -> bool;
    /// Notes that a file is filled by this many bytes more.
    fn filled(&mut self, bytes: u64);
    /// A run begins; about this much time is left for all.
    fn begins(&mut self, step: &Step, left: Duration);
    /// A run has ended, and is saved.
    fn ended(&mut self, step: &Step, measured: &Measured, disturbed: &[String]);
}

/// A bench: what is run, on what, how often.
pub struct Bench {
    /// The suite.
    pub suite: Suite,
    /// The scale of the suite.
    pub scale: Scale,
    /// The targets, in their order.
    pub targets: Vec<TargetSpec>,
    /// How often each job runs on each target.
    pub repeats: u32,
    /// Commands before a turn, by the target's name.
    pub before: BTreeMap<String, String>,
    /// Commands after a turn.
    pub after: BTreeMap<String, String>,
    /// The paths that may be overwritten.
    pub may_destroy: MayDestroy,
    /// The maker of fresh volumes.
    pub fresh: Box<dyn FreshMaker>,
    /// Flashfront's version.
    pub version: String,
}

impl Bench {
    /// Checks everything that can be checked without changing anything, and plans the runs.
    ///
    /// # Errors
    /// A program is missing; a target may not be used, or is too small.
    pub fn plan(&self) -> Result<Plan, BenchError> {
        self.check_names()?;
        let needs_fio = self.suite.jobs().any(|job| matches!(job.work, Work::Fio(_)));
        let fio = needs_fio.then(Fio::find).transpose()?;
        for (program, package) in self.suite.jobs().flat_map(|job| programs(&job.work)) {
            if !is_there(program) {
                return Err(BenchError::Failed(format!(
                    "the suite {} runs {program}, which is not installed; install it first: apt-get install {package}",
                    self.suite.name
                )));
            }
        }
        let writes = self.suite.writes();
        let mut destroyed = Vec::new();
        for target in &self.targets {
            self.fits(target)?;
            let found = safety::check(target, writes, &self.may_destroy)?;
            destroyed.extend(found.into_iter().map(|found| format!("{} on {}", found, target.text)));
            if let (Some(fio), What::Nbd(uri)) = (&fio, &target.what) {
                fio.can_reach(&suite::Site::Nbd(uri.clone()))?;
            }
        }
        if self.has_fresh() {
            for path in self.fresh.overwrites(writes) {
                let text = path.display().to_string();
                let found = safety::path_is_free(&path, &text, true, &self.may_destroy)?;
                destroyed.extend(found.into_iter().map(|found| format!("{found} on {text}")));
            }
        }
        Ok(Plan { steps: plan::steps(self), destroyed, fio: fio.map(|fio| fio.version) })
    }

    fn has_fresh(&self) -> bool {
        self.targets.iter().any(|target| matches!(target.what, What::Fresh(_)))
    }

    fn check_names(&self) -> Result<(), BenchError> {
        for (nth, target) in self.targets.iter().enumerate() {
            if self.targets[..nth].iter().any(|other| other.name == target.name) {
                return Err(BenchError::Wrong(format!(
                    "two targets are called {0}; give them names: --target NAME={1}",
                    target.name, target.text
                )));
            }
        }
        let names: Vec<&str> = self.targets.iter().map(|target| target.name.as_str()).collect();
        for (option, commands) in [("--before", &self.before), ("--after", &self.after)] {
            if let Some(name) = commands.keys().find(|name| !names.contains(&name.as_str())) {
                return Err(BenchError::Wrong(format!(
                    "{option} {name}=...: no target is called {name}; the targets are: {}",
                    names.join(", ")
                )));
            }
        }
        let fresh = self.has_fresh();
        let texts = self.targets.iter().map(|target| target.text.as_str());
        let used: Vec<String> = if fresh {
            self.fresh.overwrites(true).iter().map(|path| path.display().to_string()).collect()
        } else {
            Vec::new()
        };
        self.may_destroy.all_used(texts.chain(used.iter().map(String::as_str)))
    }

    /// Whether the target has what the suite's jobs need.
    fn fits(&self, target: &TargetSpec) -> Result<(), BenchError> {
        let needs = self.suite.needs_bytes();
        let by_folder = self.suite.jobs().find(|job| matches!(&job.work, Work::Act(act) if act.needs_folder()));
        match (&target.what, by_folder) {
            (What::Folder(_), _) | (_, None) => {}
            (_, Some(job)) => {
                return Err(BenchError::Wrong(format!(
                    "--target {}: the job {} needs a folder of a mounted file system; mount one there, and give the folder",
                    target.text, job.name
                )));
            }
        }
        match &target.what {
            What::Device(path) | What::File { path, exists: true } => {
                let has = safety::open(path, false)?.geometry().size_bytes;
                if has < needs { Err(fill::too_small(&target.text, has, needs, self.scale.divisor())) } else { Ok(()) }
            }
            What::File { path, exists: false } => {
                fill::has_room(path.parent().unwrap_or(path), needs, self.scale.divisor())
            }
            What::Folder(folder) if by_folder.is_none() => fill::has_room(folder, needs, self.scale.divisor()),
            What::Folder(_) | What::Nbd(_) | What::Fresh(_) => Ok(()),
        }
    }

    /// The targets as results tell them.
    fn described(&self) -> Vec<Target> {
        let by_folder = self.suite.jobs().any(|job| matches!(&job.work, Work::Act(act) if act.needs_folder()));
        let describe = |target: &TargetSpec| {
            let (path, note) = match &target.what {
                What::Device(path) | What::File { path, exists: true } => (Some(path.clone()), None),
                What::File { path, .. } => {
                    (path.parent().map(Path::to_owned), Some("a file that bench made and filled"))
                }
                What::Folder(folder) if by_folder => (Some(folder.clone()), cold::note()),
                What::Folder(folder) => {
                    (Some(folder.clone()), Some("a file in a folder; the file system is measured, too"))
                }
                What::Nbd(_) => (None, Some("through NBD: the client's and the server's time is in it")),
                What::Fresh(mode) => {
                    let described = self.fresh.describe(*mode);
                    return Target { name: target.name.clone(), what: target.text.clone(), ..described };
                }
            };
            let path = path.map(|it| if it.as_os_str().is_empty() { PathBuf::from(".") } else { it });
            Target {
                name: target.name.clone(),
                what: target.text.clone(),
                devices: path.as_deref().map(machine::devices_of).unwrap_or_default(),
                notes: note.map(str::to_owned).into_iter().collect(),
                before: None,
                after: None,
            }
        };
        let with_commands = |target: Target| Target {
            before: self.before.get(&target.name).cloned(),
            after: self.after.get(&target.name).cloned(),
            ..target
        };
        self.targets.iter().map(describe).map(with_commands).collect()
    }

    /// Results without a run.
    fn nothing_yet(&self, plan: &Plan) -> Results {
        Results {
            format: FORMAT,
            suite: self.suite.name.clone(),
            source: self.suite.source.clone(),
            scale: self.scale,
            scaling: self.suite.scaling.clone(),
            started: now(),
            environment: Environment::here(&self.version, plan.fio.as_deref()),
            targets: self.described(),
            results: Vec::new(),
            quiet: true,
            disturbed: Vec::new(),
            complete: false,
        }
    }

    /// Whether results of an earlier time are of the same machine, programs and devices.
    fn same_as(&self, plan: &Plan, earlier: &Results) -> Result<(), BenchError> {
        let here = self.nothing_yet(plan);
        let mut differs = earlier.environment.differs(&here.environment);
        for (then, now) in earlier.targets.iter().zip(&here.targets) {
            if then.devices != now.devices {
                differs.push(format!("the devices of {}: {:?} and {:?}", then.name, then.devices, now.devices));
            }
        }
        if differs.is_empty() {
            return Ok(());
        }
        Err(BenchError::Failed(format!(
            "this is not where the bench began, so its figures would not belong together: {}. Begin a new one instead of --resume",
            differs.join("; ")
        )))
    }

    /// Runs what is missing, and saves after each run. With `earlier`, goes on.
    ///
    /// # Errors
    /// [`BenchError::Interrupted`] and all else; finished runs are in the store.
    pub fn run(
        &mut self,
        plan: &Plan,
        store: &Store,
        earlier: Option<Results>,
        news: &mut dyn News,
    ) -> Result<Results, BenchError> {
        let mut results = match earlier {
            Some(earlier) => {
                self.same_as(plan, &earlier)?;
                earlier
            }
            None => self.nothing_yet(plan),
        };
        store.save(&results)?;
        if results.complete {
            return Ok(results);
        }
        if self.has_fresh() {
            let mut watch = |bytes| {
                news.filled(bytes);
                !news.stop()
            };
            self.fresh.prepare(&self.suite, self.scale, store.folder(), &mut watch)?;
        }
        let made = self.make_files(news)?;
        turn::all(self, plan, store, &made, &mut results, news)?;
        results.complete = true;
        store.save(&results)?;
        Ok(results)
    }

    /// The files of targets that are files to be made, by the target's name.
    fn make_files(&self, news: &mut dyn News) -> Result<BTreeMap<String, Made>, BenchError> {
        let ranges = fill::read_ranges(&self.suite);
        let mut made = BTreeMap::new();
        for target in &self.targets {
            let path = match &target.what {
                What::File { path, exists: false } => path.clone(),
                What::Folder(folder) if self.suite.jobs().any(|job| matches!(job.work, Work::Fio(_))) => {
                    folder.join(file_in_folder())
                }
                _ => continue,
            };
            let mut watch = |bytes| {
                news.filled(bytes);
                !news.stop()
            };
            made.insert(target.name.clone(), Made::new(&path, self.suite.needs_bytes(), &ranges, &mut watch)?);
        }
        Ok(made)
    }
}

fn programs(work: &Work) -> Vec<(&'static str, &'static str)> {
    match work {
        Work::Fio(_) => Vec::new(),
        Work::Act(act) => act.programs(),
    }
}

/// Whether a program can be found.
fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    program.contains('/') && Path::new(program).exists()
        || std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The file that fio's jobs use in a folder.
fn file_in_folder() -> String {
    format!("flashfront-bench-{}.data", std::process::id())
}

/// Now, in UTC.
fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests;
